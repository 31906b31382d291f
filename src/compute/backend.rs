//! What a device computes: the ops, and what ranks exchange.
//!
//! An op that is a fusion of others has them as its default body, from [`unfused`](crate::unfused): a backend without a kernel for the fusion writes
//! nothing, and one that has a kernel for some sizes falls back to the same body for others.

use crate::{
    Activated, Activation, AddNorm, AttentionSpec, DeltaHeads, DeltaInputs, DeltaLayer, Device, ExpertRows,
    HeadColumns, HeadGate, HeadPart, HeadRows, KvPlace, LayerInput, NextNorm, NormWeights, Part, QkNormRope, Router,
    RouterVectors, ScanHeads, ScanInputs, ScanLayer, ScanRows, Scoring, SharedExpert, ShortConv, TableRows, Tensor,
    unfused,
};
use std::ops::Range;

/// One method per op, for one rank alone. [`ops`](crate::ops) has the contracts and checks shapes.
pub trait Ops: Device {
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
    /// See [`ops::delta_layer`](crate::ops::delta_layer).
    fn delta_layer(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        mixed: &mut Tensor<Self::Storage>,
        layer: DeltaLayer<Tensor<Self::Storage>, Self::Vector>,
        states: (&mut Self::States, usize),
        device_batch: &Self::DeviceBatch,
    ) {
        unfused::delta_layer(self, out, mixed, layer, states, device_batch);
    }
    /// See [`ops::scan_layer`](crate::ops::scan_layer).
    fn scan_layer(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        rows: ScanRows<Tensor<Self::Storage>>,
        layer: ScanLayer<Tensor<Self::Storage>, Self::Vector>,
        states: (&mut Self::States, usize),
        device_batch: &Self::DeviceBatch,
    ) {
        unfused::scan_layer(self, out, rows, layer, states, device_batch);
    }
    /// See [`ops::embedding`](crate::ops::embedding).
    fn embedding(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        table: &Self::Matrix,
        scale: f32,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::add_embedding`](crate::ops::add_embedding).
    fn add_embedding(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        table: &Self::Matrix,
        rows: TableRows,
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
        layer: LayerInput<Tensor<Self::Storage>, Self::Matrix, Self::Vector>,
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
    ) {
        unfused::linear_add_norm(self, residual, delta, layer, add, next);
    }
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
    ) {
        unfused::rope_and_attention(self, scoring, heads, transform, cache, place, device_batch);
    }
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
        layer: LayerInput<Tensor<Self::Storage>, Self::Matrix, Self::Vector>,
        activation: Activation,
    ) {
        unfused::gated_linear(self, out, gate_up, layer, activation);
    }
    /// See [`ops::route`](crate::ops::route).
    fn route(
        &mut self,
        routes: &mut Self::Routes,
        logits: &mut Tensor<Self::Storage>,
        vectors: RouterVectors<Self::Vector>,
        router: &Router,
    );
    /// Whether [`gated_expert_linear`](Self::gated_expert_linear) needs memory for gates and ups.
    const STORES_GATES: bool;
    /// See [`ops::gated_expert_linear`](crate::ops::gated_expert_linear).
    fn gated_expert_linear(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        gate_up: Option<&mut Tensor<Self::Storage>>,
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
    /// See [`ops::count_experts`](crate::ops::count_experts).
    fn count_experts(&mut self, counts: &Self::ExpertCounts, routes: &Self::Routes, device_batch: &Self::DeviceBatch);
    /// See [`ops::combine`](crate::ops::combine).
    fn combine(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        shared: Option<SharedExpert<Tensor<Self::Storage>>>,
        routes: &Self::Routes,
        experts: Range<usize>,
    );
    /// See [`ops::host_experts`](crate::ops::host_experts).
    fn host_experts(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        experts: &Self::HostExperts,
        shared: Option<SharedExpert<Tensor<Self::Storage>>>,
        routes: &Self::Routes,
        device_batch: &Self::DeviceBatch,
    );
    /// See [`ops::sigmoid_mul`](crate::ops::sigmoid_mul).
    fn sigmoid_mul(&mut self, x: &mut Tensor<Self::Storage>, gate: &Tensor<Self::Storage>);
    /// See [`ops::head_linear`](crate::ops::head_linear).
    fn head_linear(
        &mut self,
        out: (&mut Tensor<Self::Storage>, HeadColumns),
        x: (&Tensor<Self::Storage>, HeadColumns),
        weight: &Self::Heads,
    );
    /// See [`ops::place_heads`](crate::ops::place_heads).
    fn place_heads(&mut self, out: &mut Tensor<Self::Storage>, heads: usize, parts: &[HeadPart<Tensor<Self::Storage>>]);
    /// See [`ops::gather`](crate::ops::gather).
    fn gather(&mut self, out: &mut Tensor<Self::Storage>, x: &Tensor<Self::Storage>, device_batch: &Self::DeviceBatch);
    /// See [`ops::pool_states`](crate::ops::pool).
    fn pool_states(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        device_batch: &Self::DeviceBatch,
    );
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

/// What the ranks that compute a model together exchange. A device of one rank is asked for none of it.
pub trait Collectives: Device {
    /// Whether ranks divide sums among them where the caller does not ask for [`Rounding::BatchInvariant`]. Without it they divide only
    /// what is computed apart, and every number of ranks gives the same bits.
    const DIVIDES_SUMS: bool;
    /// Ends every wait of other ranks for this one, which computes no further pass. Their passes end with an error.
    fn abandon(&self);
    /// See [`ops::join_columns`](crate::ops::join_columns).
    fn join_columns(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        part: Option<Part<Tensor<Self::Storage>>>,
        shares: &[Range<usize>],
    );
    /// See [`ops::join_slots`](crate::ops::join_slots).
    fn join_slots(
        &mut self,
        out: &mut Tensor<Self::Storage>,
        x: &Tensor<Self::Storage>,
        columns: &[Range<usize>],
        experts: &[Range<usize>],
        routes: &Self::Routes,
    );
    /// See [`ops::reduce_add_norm`](crate::ops::reduce_add_norm).
    fn reduce_add_norm(
        &mut self,
        residual: &mut Tensor<Self::Storage>,
        share: &Tensor<Self::Storage>,
        add: AddNorm<Self::Vector>,
        next: Option<NextNorm<Tensor<Self::Storage>, Self::Vector>>,
    );
}

/// A device that computes models.
pub trait Backend: Ops + Collectives {}

impl<B: Ops + Collectives> Backend for B {}
