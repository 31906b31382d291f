//! What a device can do: hold tensors, and one method per op.
//!
//! Models call `ops`, which check shapes; `ops` call a [`Backend`]. Each op has its own file in every backend folder
//! under the same name. Nothing here allocates after an engine has opened.
//!
//! A backend also owns the life of a pass. The runner calls, in this order:
//! [`commit_blocks`](Backend::commit_blocks), [`upload`](Backend::upload), the ops of all stages,
//! [`finish`](Backend::finish), [`poll`](Backend::poll) until it answers `true`, and [`results`](Backend::results).
//! Up to [`DEPTH`](Backend::DEPTH) passes are in flight at once, each with a batch of its own from
//! [`device_batches`](Backend::device_batches), used in turn. Where the device records graphs, a graph that was captured by
//! [`capture_pass`](Backend::capture_pass) stands for the ops up to the logits.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod activation;
mod attention_spec;
pub mod batch;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod experts;
mod host_matrix;
mod host_vector;
mod kv_shape;
mod layer_input;
mod norm;
pub mod ops;
mod part;
mod qk_norm_rope;
pub mod recurrent;

pub use activation::{Activated, Activation, Curve};
pub use attention_spec::{AttentionSpec, HeadRows, Scoring};
pub use device::{Defaults, DeviceMemory};
pub use experts::{
    CHOSEN_MAX, EXPERTS_MAX, ExpertRows, ExpertsShape, GROUPS_MAX, Groups, Router, RouterVectors, RoutesShape, Scores,
    SharedExpert,
};
pub use host_matrix::HostMatrix;
pub use host_vector::HostVector;
pub use kv_shape::{KvCacheDtype, KvFormat, KvGroups, KvHeads, KvLayout, KvPlace, KvShape, Windowed};
pub use layer_input::LayerInput;
pub use norm::{AddNorm, NextNorm, NormKind, NormWeights};
pub use part::Part;
pub use qk_norm_rope::{NormExtent, NormOrder, Pairing, QkNormRope, QkNormWeights, RopeTable, WholeRows};

pub use recurrent::{
    ConvForm, DeltaHeads, DeltaInputs, GateOrder, HeadGate, ScanHeads, ScanInputs, ShortConv, StateShape, ValueOrder,
};

use crate::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use base::error::{Error, Result};
use formats::DType;
use std::ops::Range;
use std::time::{Duration, Instant};

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

/// What became of a pass that was to be recorded: [`Backend::capture_pass`].
pub enum Recording<G> {
    /// Its ops have run, and are recorded.
    Graph(G),
    /// Its ops have run, but they could not be recorded.
    Refused(Error),
    /// None of its ops has run: the device records no graphs, or they are not those of other passes of this size. In the latter case the batch was uploaded
    /// as it is.
    Nothing,
}

/// A device and its memory.
///
/// Activations are matrices of one row per token. Their number type is the backend's own: f32 on the CPU, the model's type
/// on a GPU. Calls may be asynchronous; what a later call reads, an earlier one has written.
pub trait Backend: Send {
    /// Memory of an activation tensor.
    type Storage: Send;
    /// Weights of a linear layer, or an embedding table. `[out, in]`
    type Matrix: Send;
    /// Weights of a linear layer for each expert. `[experts, out, in]`
    type Experts: Send;
    /// Which experts compute each token, and how much each counts. `[tokens, chosen]`
    type Routes: Send;
    /// Norm weights, a bias or a table, in f32. `[len]`
    type Vector: Send;
    /// Keys and values of all layers. Per layer `[block][kv_head]`, each as [`KvFormat`] says
    type KvCache: Send;
    /// Recurrent states of sequences. `[slots, numbers]`
    type States: Send;
    /// A batch where the device can read it, and the tokens sampled for it.
    type DeviceBatch: Send;
    /// The ops of a pass up to its logits, recorded for a number of rows. [`Infallible`](std::convert::Infallible) where the
    /// device records none.
    type Graph: Send;
    /// Restores the state of the calling thread that the backend's calls change, when it is dropped.
    type ContextGuard: Send;

    /// Passes that may be in flight at once.
    ///
    /// With 1, an op has computed when its call returns: the runner computes a pass stage by stage while its caller waits.
    /// With more, an op launches and returns: the runner launches a pass whole when it is submitted.
    const DEPTH: usize;
    /// Whether ranks divide sums among them where the caller does not ask for [`Rounding::BatchInvariant`]. Without it they divide only
    /// what is computed apart, and every number of ranks gives the same bits.
    const DIVIDES_SUMS: bool;
    /// Sizes that hold where the caller names none.
    const DEFAULTS: Defaults;

    /// The number type in which weights that are stored as `stored` are kept, where the caller asked for `asked`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](base::error::Error::Unsupported) for a type in which the device does not compute.
    fn weight_dtype(stored: DType, asked: Option<DType>) -> Result<DType>;
    /// The device's own memory, as it is now. `None` where tensors lie in the host's memory.
    fn device_memory(&self) -> Result<Option<DeviceMemory>>;
    /// Saves the state of the calling thread before other calls change it. Every call of a runner begins with this one.
    fn enter(&self) -> Result<Self::ContextGuard>;

    /// A tensor that holds up to `capacity` rows of `cols` numbers.
    fn tensor(&self, capacity: usize, cols: usize) -> Result<Tensor<Self::Storage>>;
    /// Takes the numbers of a tensor's rows as rows of `cols` numbers.
    ///
    /// # Panics
    ///
    /// If they are no whole number of such rows, or the device pads rows of either length.
    fn reshape(tensor: &mut Tensor<Self::Storage>, cols: usize);
    /// Weights stacked along their rows: `parts` share the number of columns, and each has its own coding. Not copied where the
    /// device can read the file's bytes.
    fn matrix(&self, parts: &[HostMatrix]) -> Result<Self::Matrix>;
    /// Weights of as many experts as there are lists, each stacked as [`matrix`](Self::matrix) stacks them: all have the same shape.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory), and [`Error::Unsupported`](base::error::Error::Unsupported) for a coding that the device
    /// does not multiply with for experts.
    fn experts(&self, experts: &[Vec<HostMatrix>]) -> Result<Self::Experts>;
    /// Room for the choices of `router` for up to `tokens` tokens.
    fn routes(&self, router: &Router, tokens: usize) -> Result<Self::Routes>;
    /// Small weights stacked end to end, converted to f32.
    fn vector(&self, parts: &[HostVector]) -> Result<Self::Vector>;
    /// A table computed on the host.
    fn table(&self, values: &[f32]) -> Result<Self::Vector>;
    /// Blocks for keys and values, not touched before they are used.
    fn kv_cache(&self, shape: &KvLayout, blocks: usize) -> Result<Self::KvCache>;
    /// Recurrent states, not touched before they are used.
    fn states(&mut self, shape: &StateShape) -> Result<Self::States>;
    /// Memory for the batches of all passes in flight, each of at most `limits`. `[DEPTH]`
    fn device_batches(&self, limits: &BatchLimits) -> Result<Vec<Self::DeviceBatch>>;

    /// Rows and columns of a weight matrix.
    fn matrix_shape(matrix: &Self::Matrix) -> (usize, usize);
    /// The shape of the weights of experts.
    fn experts_shape(experts: &Self::Experts) -> ExpertsShape;
    /// What routes have room for, and their tokens.
    fn routes_shape(routes: &Self::Routes) -> RoutesShape;
    /// Numbers in a vector.
    fn vector_len(vector: &Self::Vector) -> usize;
    /// The shape of a KV cache.
    fn kv_layout(cache: &Self::KvCache) -> &KvLayout;
    /// The shape of recurrent states.
    fn state_shape(states: &Self::States) -> StateShape;
    /// The batch as the host sees it.
    fn batch(device_batch: &Self::DeviceBatch) -> &Batch;

    /// Ends every wait of other ranks for this one, which computes no further pass. Their passes end with an error.
    fn abandon(&self);

    /// Copies a batch to the device: a pass begins. The pass that used `device_batch` before has been collected.
    fn upload(&mut self, device_batch: &mut Self::DeviceBatch, batch: &Batch) -> Result<()>;
    /// Ends a pass whose ops were all called: what its batch asked for goes to the host.
    ///
    /// # Errors
    ///
    /// That of the first op that failed, if one did.
    fn finish(&mut self, device_batch: &mut Self::DeviceBatch) -> Result<()>;
    /// Waits for the end of a pass that was [finished](Self::finish), at most until `deadline`. `false`: the deadline came first.
    fn poll(&mut self, device_batch: &mut Self::DeviceBatch, deadline: Option<Instant>) -> Result<bool>;
    /// What the batch asked for, once [`poll`](Self::poll) answered `true`.
    fn results<'a>(&self, device_batch: &'a Self::DeviceBatch) -> Sampled<'a>;
    /// How long the device worked on a pass, once [`poll`](Self::poll) answered `true`. `None` where the calling thread computed.
    fn device_time(&self, device_batch: &Self::DeviceBatch) -> Result<Option<Duration>>;

    /// Runs and records `launches`, the ops of a pass over `batch` up to its logits, padded to `rows` rows.
    ///
    /// `batch` has rows of one token each, of which all are sampled. `launches` is called twice: the first call runs, so that
    /// whatever a kernel needs before it can be recorded is done, and the pass has its logits. All that it names must outlive the graph.
    fn capture_pass(
        &mut self,
        device_batch: &mut Self::DeviceBatch,
        batch: &Batch,
        rows: usize,
        launches: &mut dyn FnMut(&mut Self, &mut Self::DeviceBatch),
    ) -> Result<Recording<Self::Graph>>;
    /// Whether all passes should be recorded when the runner opens, after one of `rows` rows, the most, has run: where to prepare others takes longer
    /// than a pass should wait, or where a recording may disturb others in the process.
    fn records_at_opening(&self, rows: usize) -> bool;
    /// As [`upload`](Self::upload), for a pass whose ops up to the logits are those of `graph`: the batch is padded to its rows.
    ///
    /// `false`: the ops of this pass differ from those that were recorded. The batch was uploaded as it is, and its ops must be called.
    fn upload_padded(
        &mut self,
        graph: &Self::Graph,
        device_batch: &mut Self::DeviceBatch,
        batch: &Batch,
    ) -> Result<bool>;
    /// Launches the recorded ops over the batch that was uploaded last.
    fn launch_graph(&mut self, graph: &Self::Graph) -> Result<()>;

    /// Copies blocks out of a cache: their keys and values as all that was launched before leaves them.
    /// `[blocks][layer][kv_head]`, each as [`KvFormat`] says.
    fn read_blocks(&mut self, cache: &Self::KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()>;
    /// Copies blocks into a cache, after all that was launched before. The same form.
    fn write_blocks(&mut self, cache: &mut Self::KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()>;

    /// Copies a recurrent state out, as all that was launched before leaves it: f32 in little-endian order.
    fn read_state(&mut self, states: &Self::States, slot: StateSlot, to: &mut [u8]) -> Result<()>;
    /// Copies a recurrent state in, after all that was launched before. The same form.
    fn write_state(&mut self, states: &mut Self::States, slot: StateSlot, from: &[u8]) -> Result<()>;

    /// Gives the blocks that `batch` writes memory, where the cache does not have it yet. Comes before [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    fn commit_blocks(&mut self, cache: &mut Self::KvCache, batch: &Batch) -> Result<()>;

    /// Gives memory of the blocks that `unused` names back to the system, as far as nothing else lies in its pages, once all that was
    /// launched has ended; returns the bytes. 0: nothing has changed. Otherwise all these blocks have lost what they held. `[blocks]`
    fn release_blocks(&mut self, cache: &mut Self::KvCache, unused: &[bool]) -> Result<u64>;
    /// Gets memory for blocks that [`release_blocks`](Self::release_blocks) named, where that can fail.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory). Nothing has changed then.
    fn restore_blocks(&mut self, cache: &mut Self::KvCache, blocks: &[BlockId]) -> Result<()>;
    /// Bytes of a cache that have memory.
    fn kv_bytes_mapped(cache: &Self::KvCache) -> u64;

    /// See [`ops::copy_blocks`](crate::ops::copy_blocks).
    fn copy_blocks(&mut self, cache: &mut Self::KvCache, device_batch: &Self::DeviceBatch);
    /// See [`ops::copy_states`](crate::ops::copy_states).
    fn copy_states(&mut self, states: &mut Self::States, device_batch: &Self::DeviceBatch);
    /// See [`ops::causal_conv`](crate::ops::causal_conv).
    fn causal_conv(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        weight: &Self::Vector,
        conv: ShortConv,
        states: (&mut Self::States, usize),
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::gated_delta`](crate::ops::gated_delta).
    fn gated_delta(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        inputs: DeltaInputs<Tensor<Self::Storage>, Self::Vector>,
        heads: DeltaHeads,
        states: (&mut Self::States, usize),
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::selective_scan`](crate::ops::selective_scan).
    fn selective_scan(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        inputs: ScanInputs<Tensor<Self::Storage>, Self::Vector>,
        heads: ScanHeads,
        states: (&mut Self::States, usize),
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::gated_norm`](crate::ops::gated_norm).
    fn gated_norm(&mut self, x: &mut Tensor<Self::Storage>, gate: HeadGate<Tensor<Self::Storage>, Self::Vector>);
    /// See [`ops::embedding`](crate::ops::embedding).
    fn embedding(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        table: &Self::Matrix,
        scale: f32,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::norm`](crate::ops::norm).
    fn norm(&mut self, out: &mut Tensor<Self::Storage>, x: &Tensor<Self::Storage>, norm: NormWeights<Self::Vector>);
    /// See [`ops::add_norm`](crate::ops::add_norm).
    fn add_norm(
        &mut self,
        residual: &mut Tensor<Self::Storage>,
        delta: &Tensor<Self::Storage>,
        add: AddNorm<Self::Vector>,
        next: Option<NextNorm<Tensor<Self::Storage>, Self::Vector>>,
    );
    /// See [`ops::linear`](crate::ops::linear).
    fn linear(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        weight: &Self::Matrix,
        bias: Option<&Self::Vector>,
        columns: Range<usize>,
    );
    /// See [`ops::linear_add_norm`](crate::ops::linear_add_norm).
    fn linear_add_norm(
        &mut self,
        residual: &mut Tensor<Self::Storage>,
        delta: &mut Tensor<Self::Storage>,
        layer: LayerInput<Tensor<Self::Storage>, Self::Matrix, Self::Vector>,
        add: AddNorm<Self::Vector>,
        next: NextNorm<Tensor<Self::Storage>, Self::Vector>,
        reader: &Self::Matrix,
    );
    /// See [`ops::rope_and_cache`](crate::ops::rope_and_cache).
    fn rope_and_cache(
        &mut self,
        spec: &AttentionSpec,
        qkv: &mut Tensor<Self::Storage>,
        transform: QkNormRope<Self::Vector, Tensor<Self::Storage>>,
        cache: &mut Self::KvCache,
        place: KvPlace,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::attention`](crate::ops::attention).
    fn attention(
        &mut self,
        scoring: Scoring<Self::Vector>,
        out: &mut Tensor<Self::Storage>,
        qkv: &Tensor<Self::Storage>,
        cache: &Self::KvCache,
        place: KvPlace,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::rope_and_attention`](crate::ops::rope_and_attention).
    fn rope_and_attention(
        &mut self,
        scoring: Scoring<Self::Vector>,
        heads: HeadRows<Tensor<Self::Storage>>,
        transform: QkNormRope<Self::Vector, Tensor<Self::Storage>>,
        cache: &mut Self::KvCache,
        place: KvPlace,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::activate`](crate::ops::activate).
    fn activate(&mut self, out: &mut Tensor<Self::Storage>, activated: Activated<Tensor<Self::Storage>>);
    /// See [`ops::activate_mul`](crate::ops::activate_mul).
    fn activate_mul(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        gate_up: &Tensor<Self::Storage>,
        activation: Activation,
    );
    /// See [`ops::gated_linear`](crate::ops::gated_linear).
    fn gated_linear(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        gate_up: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        weight: &Self::Matrix,
        bias: Option<&Self::Vector>,
        activation: Activation,
    );
    /// See [`ops::route`](crate::ops::route).
    fn route(
        &mut self,
        routes: &mut Self::Routes,
        logits: &mut Tensor<Self::Storage>,
        vectors: RouterVectors<Self::Vector>,
        router: &Router,
    );
    /// See [`ops::gated_expert_linear`](crate::ops::gated_expert_linear).
    fn gated_expert_linear(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        gate_up: &mut Tensor<Self::Storage>,
        layer: LayerInput<Tensor<Self::Storage>, Self::Experts, Self::Vector>,
        activation: Activation,
        routes: &Self::Routes,
    );
    /// See [`ops::expert_linear`](crate::ops::expert_linear).
    fn expert_linear(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        layer: LayerInput<Tensor<Self::Storage>, Self::Experts, Self::Vector>,
        rows: ExpertRows,
        routes: &Self::Routes,
    );
    /// See [`ops::combine`](crate::ops::combine).
    fn combine(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        shared: Option<SharedExpert<Tensor<Self::Storage>>>,
        routes: &Self::Routes,
    );
    /// See [`ops::sigmoid_mul`](crate::ops::sigmoid_mul).
    fn sigmoid_mul(&mut self, x: &mut Tensor<Self::Storage>, gate: &Tensor<Self::Storage>);
    /// See [`ops::join_columns`](crate::ops::join_columns).
    fn join_columns(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        part: Option<Part<Tensor<Self::Storage>>>,
        shares: &[Range<usize>],
    );
    /// See [`ops::reduce_add_norm`](crate::ops::reduce_add_norm).
    fn reduce_add_norm(
        &mut self,
        residual: &mut Tensor<Self::Storage>,
        share: &Tensor<Self::Storage>,
        add: AddNorm<Self::Vector>,
        next: Option<NextNorm<Tensor<Self::Storage>, Self::Vector>>,
    );
    /// See [`ops::gather`](crate::ops::gather).
    fn gather(&mut self, out: &mut Tensor<Self::Storage>, x: &Tensor<Self::Storage>, device_batch: &Self::DeviceBatch);
    /// See [`ops::keep_hidden_states`](crate::ops::keep_hidden_states).
    fn keep_hidden_states(&mut self, device_batch: &mut Self::DeviceBatch, gathered: &Tensor<Self::Storage>);
    /// See [`ops::scale_logits`](crate::ops::scale_logits).
    fn scale_logits(&mut self, logits: &mut Tensor<Self::Storage>, scale: f32, softcap: Option<f32>);
    /// See [`ops::process_logits`](crate::ops::process_logits).
    fn process_logits(&mut self, device_batch: &mut Self::DeviceBatch, logits: &mut Tensor<Self::Storage>);
    /// See [`ops::sample`](crate::ops::sample).
    fn sample(&mut self, device_batch: &mut Self::DeviceBatch, logits: &Tensor<Self::Storage>);
    /// See [`ops::logprobs`](crate::ops::logprobs).
    fn logprobs(&mut self, device_batch: &mut Self::DeviceBatch, logits: &mut Tensor<Self::Storage>);
}

/// A matrix of activations: one row per token, or one per sample. `[rows, cols]`
///
/// Its memory is sized for `capacity` rows when the engine opens; `rows` says how many are in use in this pass.
pub struct Tensor<S> {
    rows: usize,
    cols: usize,
    capacity: usize,
    pub(crate) storage: S,
}

impl<S> Tensor<S> {
    pub(crate) fn new(storage: S, capacity: usize, cols: usize) -> Tensor<S> {
        Tensor { rows: 0, cols, capacity, storage }
    }

    /// Rows in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows that there is memory for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the rows in use. What they hold is not defined until an op writes them.
    ///
    /// # Panics
    ///
    /// If `rows` exceeds the capacity: the batch is larger than its limits.
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows <= self.capacity, "{rows} rows in a tensor made for {}", self.capacity);
        self.rows = rows;
    }

    /// Takes the numbers of its rows as rows of `cols` numbers.
    ///
    /// # Panics
    ///
    /// If the rows are no whole number of them.
    pub(crate) fn divide(&mut self, cols: usize) {
        assert!((self.rows * self.cols).is_multiple_of(cols) && (self.capacity * self.cols).is_multiple_of(cols));
        (self.rows, self.capacity) = (self.rows * self.cols / cols, self.capacity * self.cols / cols);
        self.cols = cols;
    }
}
