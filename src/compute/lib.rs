//! What a device can do: hold tensors ([`Device`]), compute ([`Ops`]), and exchange numbers with other ranks ([`Collectives`]). All three are a [`Backend`].
//!
//! Models call `ops`, which check shapes; `ops` call a backend. Each op has its own file in every backend folder
//! under the same name; a fusion of ops has none where a backend computes them one by one. Nothing here allocates after an engine has opened.
//!
//! A device also owns the life of a pass. The runner calls, in this order:
//! [`commit_blocks`](Device::commit_blocks), [`upload`](Device::upload), the ops of all stages,
//! [`finish`](Device::finish), [`poll`](Device::poll) until it answers `true`, and [`results`](Device::results).
//! Up to [`DEPTH`](Device::DEPTH) passes are in flight at once, each with a batch of its own from
//! [`device_batches`](Device::device_batches), used in turn. Where the device records graphs, a graph that was captured by
//! [`capture_pass`](Device::capture_pass) stands for the ops up to the logits.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod activation;
mod attention_spec;
mod backend;
pub mod batch;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod experts;
pub mod explain;
mod head_part;
mod host_matrix;
mod host_vector;
mod kv_shape;
mod layer_input;
mod norm;
pub mod ops;
mod part;
mod qk_norm_rope;
pub mod recurrent;
mod table_rows;
mod tensor;
mod unfused;

pub use activation::{Activated, Activation, Curve};
pub use attention_spec::{AttentionSpec, HeadRows, Reach, Scoring};
pub use backend::{Backend, Collectives, Ops};
pub use device::{Defaults, Device, DeviceMemory, Recording};
pub use experts::{
    CHOSEN_MAX, EXPERTS_MAX, ExpertForm, ExpertRows, ExpertsShape, GROUPS_MAX, Groups, HostExpertWeights, Router,
    RouterVectors, RoutesShape, Scores, SharedExpert,
};
pub use head_part::{HEAD_PARTS_MAX, HeadColumns, HeadPart};
pub use host_matrix::HostMatrix;
pub use host_vector::HostVector;
pub use kv_shape::{
    KvCacheDtype, KvFormat, KvGroups, KvHeads, KvLayout, KvPlace, KvShape, KvSplit, KvValues, SplitTables, Windowed,
};
pub use layer_input::{Adapter, LayerInput};
pub use norm::{AddNorm, NextNorm, NormKind, NormWeights};
pub use part::Part;
pub use qk_norm_rope::{NormExtent, NormOrder, Pairing, QkNormRope, QkNormWeights, RopeTable, WholeRows};

pub use recurrent::{
    ConvForm, DeltaHeads, DeltaInputs, DeltaLayer, GateOrder, HeadGate, ScanGate, ScanHeads, ScanInputs, ScanLayer,
    ScanRows, ShortConv, StateShape, ValueOrder,
};
pub use table_rows::TableRows;
pub use tensor::Tensor;

/// What a row's logits may depend on, in their last bits. On the CPU always the row alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Also the size of the batch and how a prompt was cut, where that is faster.
    Fastest,
    /// The row alone.
    BatchInvariant,
}

/// When a GPU reads the keys and values of a prefix once for all rows that share it. Sums of these rows have another order then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedPrefixes {
    /// Every row reads its own.
    Never,
    /// Where enough rows share enough tokens.
    WhereItPays,
    /// Wherever two rows share a block.
    Always,
}
