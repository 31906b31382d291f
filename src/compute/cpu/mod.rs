//! The CPU: threads of the engine, weights as they lie in the mapped file, f32 activations.
//!
//! Each op has an obvious reference and a fast twin in its own file; [`Isa`] chooses the twin. The result of a row depends
//! on that row alone: every sum runs in an order that neither the batch, nor how a prompt was cut, nor the number of
//! threads can change. That is what makes the engine's answers reproducible.
#![allow(unsafe_code)]

mod activate;
mod activate_mul;
mod adapter;
mod add_embedding;
mod add_norm;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
mod causal_conv;
mod combine;
mod copy_blocks;
mod copy_states;
mod count_experts;
mod device;
mod disjoint;
mod embedding;
mod expert_linear;
mod experts;
mod explain;
mod gated_delta;
mod gated_expert_linear;
mod gated_norm;
mod gather;
mod head_linear;
mod host_experts;
mod int8;
mod isa;
mod join_columns;
mod join_slots;
mod keep_hidden_states;
mod kv_cache;
mod lanes;
mod linear;
mod logprobs;
mod matrix;
#[cfg_attr(not(target_os = "linux"), path = "no_nodes.rs")]
mod nodes;
mod norm;
mod number;
mod pages;
mod place_heads;
mod pool;
mod pool_states;
mod process_logits;
mod reduce_add_norm;
mod remote;
mod rope_and_cache;
mod route;
mod rows;
mod sample;
mod scale_logits;
mod selective_scan;
mod sigmoid_mul;
mod states;
mod team;

pub use count_experts::ExpertCounts;
pub use experts::{Experts, Routes};
pub use host_experts::{Choices, HostExperts};
pub use isa::Isa;
pub use kv_cache::KvCache;
pub use linear::Activations;
pub use matrix::Matrix;
pub use nodes::{Node, Nodes};
pub use number::{KvNumber, Number};
pub use pages::Pages;
pub use pool::Pool;
pub use remote::Links;
pub(super) use sample::philox;
pub use states::States;
pub use team::{Member, Team};

use super::{
    Activated, Activation, AddNorm, AttentionSpec, Collectives, DeltaHeads, DeltaInputs, ExpertRows, HeadColumns,
    HeadGate, HeadPart, HostMatrix, KvPlace, LayerInput, NextNorm, NormWeights, Ops, Part, QkNormRope, Router,
    RouterVectors, ScanHeads, ScanInputs, Scoring, SharedExpert, ShortConv, TableRows,
};
use crate::batch::{Batch, BatchLimits, MAX_LOGPROBS};
use base::TokenId;
use base::error::{Result, room};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The specifications: obvious loops over plain slices, which every backend is tested against.
#[doc(hidden)]
pub mod reference {
    pub use super::activate::reference as activate;
    pub use super::activate_mul::reference as activate_mul;
    pub use super::add_embedding::reference as add_embedding;
    pub use super::add_norm::reference as add_norm;
    pub use super::attention::reference as attention;
    pub use super::causal_conv::reference as causal_conv;
    pub use super::combine::reference as combine;
    pub use super::copy_blocks::reference as copy_blocks;
    pub use super::embedding::reference as embedding;
    pub use super::expert_linear::reference as expert_linear;
    pub use super::gated_delta::reference as gated_delta;
    pub use super::gated_norm::reference as gated_norm;
    pub use super::gather::reference as gather;
    pub use super::head_linear::reference as head_linear;
    pub use super::join_columns::reference as join_columns;
    pub use super::join_slots::reference as join_slots;
    pub use super::linear::reference as linear;
    pub use super::logprobs::reference as logprobs;
    pub use super::norm::reference as norm;
    pub use super::place_heads::reference as place_heads;
    pub use super::pool_states::reference as pool_states;
    pub use super::process_logits::reference as process_logits;
    pub use super::reduce_add_norm::reference as sum_of_shares;
    pub use super::rope_and_cache::reference as rope_and_cache;
    pub use super::route::reference as route;
    pub use super::sample::reference as sample;
    pub use super::scale_logits::reference as scale_logits;
    pub use super::selective_scan::reference as selective_scan;
    pub use super::sigmoid_mul::reference as sigmoid_mul;
}

/// The CPU as a backend.
pub struct Cpu {
    pool: Pool,
    isa: Isa,
    activations: Activations,
    /// Grows with the tensors that are made when the engine opens.
    scratch: Mutex<linear::Scratch>,
    /// Of models with experts, one for each thread. Grow with the experts that are loaded.
    workers: Mutex<Vec<experts::Worker>>,
    /// For experts that are computed for another device, one for each shape. Grows with the layers that are loaded.
    host_experts: Mutex<Vec<host_experts::Scratch>>,
    /// This rank's place, where several compute a model together.
    member: Option<Member>,
    /// Where its threads run.
    node: Option<Node>,
    /// Whether the team broke up during an exchange of this pass.
    is_lost: AtomicBool,
    /// For sums that are divided among ranks.
    sum_of_shares: Option<Tensor>,
    /// For attention, a part for each thread.
    #[cfg(target_arch = "x86_64")]
    work: Vec<attention::Work>,
}

/// Activations on the CPU.
pub type Tensor = super::Tensor<Pages<f32>>;

/// A batch, and what was sampled for it.
pub struct DeviceBatch {
    batch: Batch,
    sampled: Vec<TokenId>,
    /// Final hidden states that the batch asks for. `[pooled_rows, hidden]`
    hidden_states: Vec<f32>,
    /// What the model computed for the adjusted tokens. `[adjustments]`
    raw: Vec<f32>,
    /// As in [`Sampled`], and empty where the batch did not ask.
    logprobs: Vec<f32>,
    top_tokens: Vec<TokenId>,
    top_logprobs: Vec<f32>,
}

impl Cpu {
    /// A backend of `threads` threads, the caller's included.
    ///
    /// # Panics
    ///
    /// If this machine lacks the instruction set: [`Isa::detect`] and [`Isa::available`] name those it has. Without memory, too: see [`open`](Cpu::open).
    pub fn new(threads: usize, isa: Isa) -> Cpu {
        Cpu::open(threads, isa).expect("memory for the threads")
    }

    /// The same.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory), if there is no memory for what threads know.
    pub fn open(threads: usize, isa: Isa) -> Result<Cpu> {
        Cpu::on_node(threads, isa, None)
    }

    fn on_node(threads: usize, isa: Isa, node: Option<&Node>) -> Result<Cpu> {
        assert!(Isa::available().contains(&isa), "this machine has no {isa:?}");
        let pool = Pool::on_node(threads, node);
        Ok(Cpu {
            #[cfg(target_arch = "x86_64")]
            work: attention::Work::new(isa, pool.threads())?,
            pool,
            isa,
            activations: Activations::Rounded,
            scratch: Mutex::default(),
            workers: Mutex::default(),
            host_experts: Mutex::default(),
            member: None,
            node: node.cloned(),
            is_lost: AtomicBool::new(false),
            sum_of_shares: None,
        })
    }

    /// As [`open`](Cpu::open), for one of the ranks that compute a model together, on a node of its own where there are several.
    pub fn in_team(threads: usize, isa: Isa, member: Member, node: Option<&Node>) -> Result<Cpu> {
        Ok(Cpu { member: Some(member), ..Cpu::on_node(threads, isa, node)? })
    }

    /// With what products do with activations.
    pub fn with_activations(self, activations: Activations) -> Cpu {
        Cpu { activations, ..self }
    }

    /// How products are computed.
    fn arithmetic(&self) -> linear::Arithmetic {
        linear::Arithmetic { isa: self.isa, activations: self.activations }
    }

    /// This rank's place.
    ///
    /// # Panics
    ///
    /// If it has none: a model on one rank exchanges nothing.
    fn member(&self) -> &Member {
        self.member.as_ref().expect("one of several ranks")
    }

    /// Remembers whether an exchange took place.
    fn note_exchange(&self, passed: bool) {
        if !passed {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Brings weights to the memory of the node, where there is one.
    fn populate(&self, part: &HostMatrix) {
        if let (Some(node), Some(planes)) = (&self.node, part.planes()) {
            [planes.codes, planes.scales, planes.zeros].into_iter().for_each(|bytes| node.populate(bytes));
        }
    }

    /// Memory for a batch of at most `limits`.
    pub fn device_batch(&self, limits: &BatchLimits) -> Result<DeviceBatch> {
        let (what, knob) = ("the results of a pass", "max_num_seqs");
        Ok(DeviceBatch {
            batch: Batch::within(limits)?,
            sampled: room(limits.samples(), what, knob)?,
            hidden_states: Vec::new(),
            raw: Vec::new(),
            logprobs: room(limits.samples(), what, knob)?,
            top_tokens: room(limits.samples() * MAX_LOGPROBS, what, knob)?,
            top_logprobs: room(limits.samples() * MAX_LOGPROBS, what, knob)?,
        })
    }
}

impl Tensor {
    /// The rows in use. `[rows, cols]`
    pub fn values(&self) -> &[f32] {
        &self.storage[..self.rows() * self.cols()]
    }

    /// The rows in use, to be written. `[rows, cols]`
    pub fn values_mut(&mut self) -> &mut [f32] {
        let len = self.rows() * self.cols();
        &mut self.storage[..len]
    }
}

impl Ops for Cpu {
    fn copy_blocks(&mut self, cache: &mut KvCache, device_batch: &DeviceBatch) {
        copy_blocks::run(cache, device_batch);
    }

    fn embedding(&mut self, out: &mut Tensor, table: &Matrix, scale: f32, device_batch: &DeviceBatch) {
        embedding::run(self, out, table, scale, device_batch);
    }

    fn add_embedding(&mut self, out: &mut Tensor, table: &Matrix, rows: TableRows, device_batch: &DeviceBatch) {
        add_embedding::run(self, out, table, rows, device_batch);
    }

    fn norm(&mut self, out: &mut Tensor, x: &Tensor, norm: NormWeights<Box<[f32]>>) {
        norm::run(self, out, x, norm);
    }

    fn add_norm(
        &mut self,
        residual: &mut Tensor,
        delta: &Tensor,
        add: AddNorm<Box<[f32]>>,
        next: Option<NextNorm<Tensor, Box<[f32]>>>,
    ) {
        add_norm::run(self, residual, delta, add, next);
    }

    fn linear(&mut self, out: &mut Tensor, layer: LayerInput<Tensor, Matrix, Box<[f32]>>, columns: Range<usize>) {
        linear::run(self, out, layer.x, layer.weight, layer.bias.map(|b| &b[..]), columns.clone());
        if let Some(adapter) = layer.adapter {
            adapter::add(self, out, adapter, columns);
        }
    }

    fn rope_and_cache(
        &mut self,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Box<[f32]>, Tensor>,
        cache: &mut KvCache,
        place: KvPlace,
        device_batch: &DeviceBatch,
    ) {
        rope_and_cache::run(self, spec, qkv, transform, cache, place, device_batch);
    }

    fn attention(
        &mut self,
        scoring: Scoring<Box<[f32]>>,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: &KvCache,
        place: KvPlace,
        device_batch: &DeviceBatch,
    ) {
        attention::run(self, scoring, out, qkv, cache, place, device_batch);
    }

    fn activate(&mut self, out: &mut Tensor, activated: Activated<Tensor>) {
        activate::run(self, out, activated);
    }

    fn activate_mul(&mut self, out: &mut Tensor, gate_up: &Tensor, activation: Activation) {
        activate_mul::run(self, out, gate_up, activation);
    }

    fn copy_states(&mut self, states: &mut States, device_batch: &DeviceBatch) {
        copy_states::run(states, device_batch);
    }

    fn causal_conv(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        weight: &Box<[f32]>,
        conv: ShortConv,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        causal_conv::run(self, out, x, weight, conv, states, device_batch);
    }

    fn gated_delta(
        &mut self,
        out: &mut Tensor,
        inputs: DeltaInputs<Tensor, Box<[f32]>>,
        heads: DeltaHeads,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        gated_delta::run(self, out, inputs, heads, states, device_batch);
    }

    fn selective_scan(
        &mut self,
        out: &mut Tensor,
        inputs: ScanInputs<Tensor, Box<[f32]>>,
        heads: ScanHeads,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        selective_scan::run(self, out, inputs, heads, states, device_batch);
    }

    fn gated_norm(&mut self, x: &mut Tensor, gate: HeadGate<Tensor, Box<[f32]>>) {
        gated_norm::run(self, x, gate);
    }

    fn route(&mut self, routes: &mut Routes, logits: &mut Tensor, vectors: RouterVectors<Box<[f32]>>, router: &Router) {
        route::run(self, routes, logits, vectors, router);
    }

    const STORES_GATES: bool = true;

    fn gated_expert_linear(
        &mut self,
        out: &mut Tensor,
        gate_up: Option<&mut Tensor>,
        layer: LayerInput<Tensor, Experts, Box<[f32]>>,
        activation: Activation,
        routes: &Routes,
    ) {
        gated_expert_linear::run(self, out, gate_up.expect("gates are stored"), layer, activation, routes);
    }

    fn expert_linear(
        &mut self,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Box<[f32]>>,
        rows: ExpertRows,
        routes: &Routes,
    ) {
        expert_linear::run(self, out, layer, rows, routes);
    }

    fn count_experts(&mut self, counts: &ExpertCounts, routes: &Routes, device_batch: &DeviceBatch) {
        count_experts::run(counts, routes, device_batch);
    }

    fn combine(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        experts: Range<usize>,
    ) {
        combine::run(self, out, x, shared, routes, experts);
    }

    fn host_experts(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        experts: &HostExperts,
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        _device_batch: &DeviceBatch,
    ) {
        host_experts::run(self, out, x, experts, shared, routes);
    }

    fn sigmoid_mul(&mut self, x: &mut Tensor, gate: &Tensor) {
        sigmoid_mul::run(self, x, gate);
    }

    fn head_linear(&mut self, out: (&mut Tensor, HeadColumns), x: (&Tensor, HeadColumns), weight: &Experts) {
        head_linear::run(self, out, x, weight);
    }

    fn place_heads(&mut self, out: &mut Tensor, heads: usize, parts: &[HeadPart<Tensor>]) {
        place_heads::run(self, out, heads, parts);
    }

    fn gather(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        gather::run(self, out, x, device_batch);
    }

    fn pool_states(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        pool_states::run(self, out, x, device_batch);
    }

    fn keep_hidden_states(&mut self, device_batch: &mut DeviceBatch, gathered: &Tensor) {
        keep_hidden_states::run(device_batch, gathered);
    }

    fn scale_logits(&mut self, logits: &mut Tensor, scale: f32, softcap: Option<f32>) {
        scale_logits::run(self, logits, scale, softcap);
    }

    fn process_logits(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        process_logits::run(device_batch, logits);
    }

    fn sample(&mut self, device_batch: &mut DeviceBatch, logits: &Tensor) {
        sample::run(self, device_batch, logits);
    }

    fn logprobs(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        logprobs::run(self, device_batch, logits);
    }
}

impl Collectives for Cpu {
    const DIVIDES_SUMS: bool = false;

    fn abandon(&self) {
        self.member.iter().for_each(Member::abandon);
    }

    fn join_columns(&mut self, out: &mut Tensor, part: Option<Part<Tensor>>, shares: &[Range<usize>]) {
        join_columns::run(self, out, part, shares);
    }

    fn join_slots(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        columns: &[Range<usize>],
        experts: &[Range<usize>],
        routes: &Routes,
    ) {
        join_slots::run(self, out, x, columns, experts, routes);
    }

    fn reduce_add_norm(
        &mut self,
        residual: &mut Tensor,
        share: &Tensor,
        add: AddNorm<Box<[f32]>>,
        next: Option<NextNorm<Tensor, Box<[f32]>>>,
    ) {
        reduce_add_norm::run(self, residual, share, add, next);
    }
}
