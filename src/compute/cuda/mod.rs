//! NVIDIA GPUs, through the driver alone: our own kernels, and cuBLASLt for large products where it is installed.
//!
//! Everything of an engine runs on one stream, in the order of the calls. An op launches and returns; the host waits in
//! [`poll`](crate::Device::poll) only. Launches take sizes from the host and addresses that are fixed when the engine opens; what changes
//! from pass to pass is read from [`DeviceBatch`], so that a pass of fixed sizes can be captured as a [`Graph`].
//! This file owns the kernels of all ops, and each op is one call of the op's file. No op file imports it: they import
//! device.rs, which knows no op. A launch that fails is remembered here, and reported by the next call that can answer with an error.
#![allow(unsafe_code)]

mod access;
mod activate;
mod activate_mul;
mod add_embedding;
mod add_norm;
mod attention;
mod bytes;
mod causal_conv;
mod combine;
mod copy_blocks;
mod copy_states;
mod count_experts;
mod device;
mod device_batch;
mod driver;
mod embedding;
mod exchange;
mod expert_linear;
mod experts;
pub mod explain;
mod gated_delta;
mod gated_linear;
mod gated_norm;
mod gather;
mod gemm;
mod gpu;
pub mod gpus;
mod graph;
mod head_linear;
mod host_experts;
mod join_columns;
mod join_slots;
mod keep_hidden_states;
mod kernels;
mod kv_cache;
mod latent_cache;
mod launch_log;
mod library;
mod linear_add_norm;
mod logprobs;
mod management;
mod matrix;
mod nccl;
mod norm;
mod params;
mod pass;
mod peers;
mod pieces;
mod place_heads;
mod pool_states;
mod process_logits;
mod ranks;
mod recurrent;
mod reduce_add_norm;
mod rope_and_cache;
mod route;
mod sample;
mod sampling_extras;
mod scale_logits;
mod selective_scan;
mod settings;
mod sigmoid_mul;
mod states;
mod storage;
mod team;
mod tensor_map;
mod upload;

pub use device_batch::DeviceBatch;

pub use count_experts::ExpertCounts;
pub use driver::{ContextGuard, Event, EventKind, check_ordinal, device_count};
pub use experts::{Experts, Routes};
pub use gemm::Route;
pub use graph::{Graph, PassGraph};
pub use head_linear::Heads;
pub use host_experts::{HostExperts, HostThreads};
pub use kernels::Chaining;
pub use kv_cache::KvCache;
pub use management::FreeBefore;
pub use matrix::{Matrix, Vector};
pub use nanovllm_kernels::are_built;
pub use nccl::{UniqueId, nccl_version};
pub use peers::{Fault, Member, Peers, Transport};
pub use reduce_add_norm::AllReduce;
pub use rope_and_cache::check_rotary;
pub use states::States;
pub use storage::{Storage, Tensor};
pub use team::Team;

use super::{
    Activated, Activation, AddNorm, AttentionSpec, Collectives, DeltaHeads, DeltaInputs, DeltaLayer, ExpertRows,
    HeadColumns, HeadGate, HeadPart, HeadRows, KvPlace, LayerInput, NextNorm, NormWeights, Ops, Part, QkNormRope,
    Router, RouterVectors, ScanGate, ScanHeads, ScanInputs, ScanLayer, ScanRows, Scoring, SharedExpert, SharedPrefixes,
    ShortConv, TableRows, unfused,
};
use attention::partition::{Geometry, LayerWindow};
use base::error::{Error, Result};
use cudarc::driver::sys;
use device::Device;
use driver::Context;
use exchange::Exchanges;
use formats::DType;
use kernels::KernelLoading;
use parking_lot::Mutex;
use selective_scan::Launched;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A GPU as a backend.
pub struct Cuda {
    // Fields are dropped in this order: the context last, after all that needs it.
    kernels: Kernels,
    loader: Mutex<matrix::Loader>,
    /// The distinct sliding windows of the layers of each kind, each of which has a plan of its own.
    windows: Vec<LayerWindow>,
    /// How attention is cut for each kind of layers, known once a KV cache was made.
    geometries: RefCell<Vec<Geometry>>,
    /// Of a layer, where they are known.
    query_heads: Option<usize>,
    shared_prefixes: SharedPrefixes,
    /// What was free before the device was opened, if that was measured.
    free_before: Option<FreeBefore>,
    /// The first launch that failed: call and code.
    failure: Option<(&'static str, i32)>,
    /// Where this is one of several ranks.
    exchanges: Option<Exchanges>,
    /// How the host computes experts, where it does.
    host_threads: Option<HostThreads>,
    /// The host, once there are experts that it computes.
    host: OnceLock<Arc<host_experts::Host>>,
    /// Whether it computes nothing, see [`Cuda::set_host_idle`].
    host_is_idle: Arc<AtomicBool>,
    device: Device,
}

/// Kernels that serve every model of one number type.
struct Kernels {
    copy_blocks: copy_blocks::Kernels,
    /// Loaded with the first states.
    recurrent: Option<Box<recurrent::Kernels>>,
    /// Loaded with the first routes.
    experts: OnceLock<Box<experts::Kernels>>,
    embedding: embedding::Kernels,
    add_embedding: add_embedding::Kernels,
    norm: norm::Kernels,
    add_norm: add_norm::Kernels,
    linear: gemm::Kernels,
    rope_and_cache: rope_and_cache::Kernels,
    activate: activate::Kernels,
    activate_mul: activate_mul::Kernels,
    gather: gather::Kernels,
    head_linear: head_linear::Kernels,
    place_heads: place_heads::Kernels,
    pool_states: pool_states::Kernels,
    scale_logits: scale_logits::Kernels,
    sigmoid_mul: sigmoid_mul::Kernels,
    process_logits: process_logits::Kernels,
    sample: sample::Kernels,
    upload: upload::Kernels,
    logprobs: logprobs::Kernels,
    join_columns: join_columns::Kernels,
    reduce_add_norm: reduce_add_norm::Kernels,
}

impl Kernels {
    fn recurrent(&self) -> &recurrent::Kernels {
        self.recurrent.as_ref().expect("a model with states has loaded them")
    }

    fn experts(&self) -> &experts::Kernels {
        self.experts.get().expect("a model with routes has loaded them")
    }

    fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels {
            copy_blocks: copy_blocks::Kernels::new(device)?,
            recurrent: None,
            experts: OnceLock::new(),
            embedding: embedding::Kernels::new(device)?,
            add_embedding: add_embedding::Kernels::new(device)?,
            norm: norm::Kernels::new(device)?,
            add_norm: add_norm::Kernels::new(device)?,
            linear: gemm::Kernels::new(device)?,
            rope_and_cache: rope_and_cache::Kernels::new(device)?,
            activate: activate::Kernels::new(device)?,
            activate_mul: activate_mul::Kernels::new(device)?,
            gather: gather::Kernels::new(device)?,
            head_linear: head_linear::Kernels::new(device)?,
            place_heads: place_heads::Kernels::new(device)?,
            pool_states: pool_states::Kernels::new(device)?,
            scale_logits: scale_logits::Kernels::new(device)?,
            sigmoid_mul: sigmoid_mul::Kernels::new(device)?,
            process_logits: process_logits::Kernels::new(device)?,
            sample: sample::Kernels::new(device)?,
            upload: upload::Kernels::new(device)?,
            logprobs: logprobs::Kernels::new(device)?,
            join_columns: join_columns::Kernels::new(device)?,
            reduce_add_norm: reduce_add_norm::Kernels::new(device)?,
        })
    }
}

impl Cuda {
    /// Opens device `ordinal` for weights, activations and caches in `dtype`.
    pub fn open(ordinal: usize, dtype: DType) -> Result<Cuda> {
        Cuda::in_context(Context::open(ordinal)?, dtype, KernelLoading::AtFirstLaunch)
    }

    fn in_context(context: Arc<Context>, dtype: DType, kernel_loading: KernelLoading) -> Result<Cuda> {
        if dtype == DType::F32 {
            return Err(Error::Unsupported { what: "F32 on CUDA: choose BF16 or F16, or device CPU".to_owned() });
        }
        let device = Device::new(context, dtype, kernel_loading);
        let kernels = Kernels::new(&device)?;
        let loader = Mutex::new(matrix::Loader::new());
        Ok(Cuda {
            kernels,
            loader,
            windows: vec![LayerWindow::default()],
            geometries: RefCell::new(Vec::new()),
            query_heads: None,
            shared_prefixes: SharedPrefixes::WhereItPays,
            free_before: None,
            failure: None,
            exchanges: None,
            host_threads: None,
            host: OnceLock::new(),
            host_is_idle: Arc::default(),
            device,
        })
    }

    fn failed(&self) -> Result<()> {
        self.host.get().into_iter().for_each(|host| host.check());
        match self.failure {
            Some((call, code)) => Err(Error::Device { call, code }),
            None if self.is_lost() => Err(Error::RankLost),
            None => Ok(()),
        }
    }

    fn remember(&mut self, result: Result<()>) {
        if let Err(error) = result
            && self.failure.is_none()
        {
            self.failure = Some(match error {
                Error::Device { call, code } => (call, code),
                // Of the ops, only the first that brings hidden states allocates. A pass that lacks an op is lost either way.
                _ => ("cuMemHostAlloc", sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32),
            });
        }
    }
}

impl Ops for Cuda {
    fn copy_blocks(&mut self, cache: &mut KvCache, device_batch: &DeviceBatch) {
        let result = self.kernels.copy_blocks.run(&self.device, &mut cache.blocks, device_batch);
        self.remember(result);
    }

    fn embedding(&mut self, out: &mut Tensor, table: &Matrix, scale: f32, device_batch: &DeviceBatch) {
        let result = self.kernels.embedding.run(&self.device, out, table, scale, device_batch);
        self.remember(result);
    }

    fn add_embedding(&mut self, out: &mut Tensor, table: &Matrix, rows: TableRows, device_batch: &DeviceBatch) {
        let result = self.kernels.add_embedding.run(&self.device, out, table, rows, device_batch);
        self.remember(result);
    }

    fn norm(&mut self, out: &mut Tensor, x: &Tensor, norm: NormWeights<Vector>) {
        let result = self.kernels.norm.run(&self.device, out, x, norm);
        self.remember(result);
    }

    fn add_norm(
        &mut self,
        residual: &mut Tensor,
        delta: &Tensor,
        add: AddNorm<Vector>,
        next: Option<NextNorm<Tensor, Vector>>,
    ) {
        let result = self.kernels.add_norm.run(&self.device, residual, delta, add, next);
        self.remember(result);
    }

    fn linear(&mut self, out: &mut Tensor, layer: LayerInput<Tensor, Matrix, Vector>, columns: Range<usize>) {
        let result = self.kernels.linear.run(&self.device, out, layer, columns);
        self.remember(result);
    }

    fn linear_add_norm(
        &mut self,
        residual: &mut Tensor,
        delta: &mut Tensor,
        layer: LayerInput<Tensor, Matrix, Vector>,
        add: AddNorm<Vector>,
        mut next: NextNorm<Tensor, Vector>,
    ) {
        match linear_add_norm::run(&self.device, &mut self.kernels.linear, residual, layer, add, &mut next) {
            Ok(false) => unfused::linear_add_norm(self, residual, delta, layer, add, next),
            result => self.remember(result.map(drop)),
        }
    }

    fn rope_and_cache(
        &mut self,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Vector, Tensor>,
        cache: &mut KvCache,
        place: KvPlace,
        device_batch: &DeviceBatch,
    ) {
        let result = self.kernels.rope_and_cache.run(
            &self.device,
            spec,
            qkv,
            transform,
            cache.blocks.layer(place),
            device_batch,
        );
        self.remember(result);
    }

    fn attention(
        &mut self,
        scoring: Scoring<Vector>,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: &KvCache,
        place: KvPlace,
        device_batch: &DeviceBatch,
    ) {
        let at = cache.blocks.layer(place);
        let result = cache.attention[at.kind].run(&self.device, scoring, out, qkv, at, device_batch);
        self.remember(result);
    }

    fn rope_and_attention(
        &mut self,
        scoring: Scoring<Vector>,
        heads: HeadRows<Tensor>,
        transform: QkNormRope<Vector, Tensor>,
        cache: &mut KvCache,
        place: KvPlace,
        device_batch: &DeviceBatch,
    ) {
        let at = cache.blocks.layer(place);
        // Kernels that prepare heads themselves store keys and values.
        let has_keys = heads.qkv.cols() > heads.out.cols();
        let fused = cache.attention[at.kind].stored().filter(|_| has_keys).and_then(|attention| {
            let fused = attention.fused(&self.device, scoring.spec, &transform, &at, device_batch);
            fused.map(|fused| (attention, fused))
        });
        match fused {
            Some((attention, fused)) => {
                let result = attention.run_fused(&self.device, scoring, heads, (fused, &transform), at, device_batch);
                self.remember(result);
            }
            None => unfused::rope_and_attention(self, scoring, heads, transform, cache, place, device_batch),
        }
    }

    fn activate(&mut self, out: &mut Tensor, activated: Activated<Tensor>) {
        let result = self.kernels.activate.run(&self.device, out, activated);
        self.remember(result);
    }

    fn activate_mul(&mut self, out: &mut Tensor, gate_up: &Tensor, activation: Activation) {
        let result = self.kernels.activate_mul.run(&self.device, out, gate_up, activation);
        self.remember(result);
    }

    fn gated_linear(
        &mut self,
        out: &mut Tensor,
        gate_up: &mut Tensor,
        layer: LayerInput<Tensor, Matrix, Vector>,
        activation: Activation,
    ) {
        match gated_linear::run(&self.device, &mut self.kernels.linear, out, layer, activation) {
            Ok(false) => unfused::gated_linear(self, out, gate_up, layer, activation),
            result => self.remember(result.map(drop)),
        }
    }

    fn copy_states(&mut self, states: &mut States, device_batch: &DeviceBatch) {
        let result = self.kernels.recurrent().copy_states.run(&self.device, states, device_batch);
        self.remember(result);
    }

    fn causal_conv(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        weight: &Vector,
        conv: ShortConv,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        let kernels = &self.kernels.recurrent().causal_conv;
        let result = kernels.run(&self.device, out, x, weight, conv, states, device_batch);
        self.remember(result);
    }

    fn gated_delta(
        &mut self,
        out: &mut Tensor,
        inputs: DeltaInputs<Tensor, Vector>,
        heads: DeltaHeads,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        let kernels = &self.kernels.recurrent().gated_delta;
        let result = kernels.run(&self.device, out, inputs, heads, states, device_batch);
        self.remember(result);
    }

    fn delta_layer(
        &mut self,
        out: &mut Tensor,
        mixed: &mut Tensor,
        layer: DeltaLayer<Tensor, Vector>,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        let kernels = &self.kernels.recurrent().gated_delta;
        match kernels.run_layer(&self.device, out, layer, (states, at), device_batch) {
            Ok(false) => unfused::delta_layer(self, out, mixed, layer, (states, at), device_batch),
            result => self.remember(result.map(drop)),
        }
    }

    fn selective_scan(
        &mut self,
        out: &mut Tensor,
        inputs: ScanInputs<Tensor, Vector>,
        heads: ScanHeads,
        states: (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        let kernels = &self.kernels.recurrent().selective_scan;
        let result = kernels.run(&self.device, out, inputs, heads, states, device_batch);
        self.remember(result);
    }

    fn scan_layer(
        &mut self,
        out: &mut Tensor,
        rows: ScanRows<Tensor>,
        layer: ScanLayer<Tensor, Vector>,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) {
        let kernels = &self.kernels.recurrent().selective_scan;
        match (kernels.run_layer(&self.device, out, layer, (states, at), device_batch), layer.gate) {
            (Ok(Launched::Nothing), _) => unfused::scan_layer(self, out, rows, layer, (states, at), device_batch),
            (Ok(Launched::AllButNorm), ScanGate::Norm(gate)) => self.gated_norm(out, gate),
            (result, _) => self.remember(result.map(drop)),
        }
    }

    fn gated_norm(&mut self, x: &mut Tensor, gate: HeadGate<Tensor, Vector>) {
        let result = self.kernels.recurrent().gated_norm.run(&self.device, x, gate);
        self.remember(result);
    }

    fn route(&mut self, routes: &mut Routes, logits: &mut Tensor, vectors: RouterVectors<Vector>, router: &Router) {
        let result = self.kernels.experts().route.run(&self.device, routes, logits, vectors, router);
        self.remember(result);
    }

    const STORES_GATES: bool = false;

    fn gated_expert_linear(
        &mut self,
        out: &mut Tensor,
        _gate_up: Option<&mut Tensor>,
        layer: LayerInput<Tensor, Experts, Vector>,
        activation: Activation,
        routes: &Routes,
    ) {
        let (kernels, chosen) = (&self.kernels.experts().expert_linear, routes.shape().chosen);
        let result = kernels.run(&self.device, out, layer, chosen, gemm::Results::Gated(activation), routes);
        self.remember(result);
    }

    fn expert_linear(
        &mut self,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        rows: ExpertRows,
        routes: &Routes,
    ) {
        let slots_of_row = match rows {
            ExpertRows::Slots => 1,
            ExpertRows::Tokens => routes.shape().chosen,
        };
        let kernels = &self.kernels.experts().expert_linear;
        let result = kernels.run(&self.device, out, layer, slots_of_row, gemm::Results::Sums, routes);
        self.remember(result);
    }

    fn count_experts(&mut self, counts: &ExpertCounts, routes: &Routes, device_batch: &DeviceBatch) {
        let result = self.kernels.experts().count.run(&self.device, counts, routes, device_batch);
        self.remember(result);
    }

    fn combine(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        experts: Range<usize>,
    ) {
        let result = self.kernels.experts().combine.run(&self.device, out, x, shared, routes, experts);
        self.remember(result);
    }

    fn host_experts(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        experts: &HostExperts,
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        device_batch: &DeviceBatch,
    ) {
        let combine = &self.kernels.experts().combine;
        let result = experts.run(combine, (out, x), shared, routes, device_batch);
        self.remember(result);
    }

    fn sigmoid_mul(&mut self, x: &mut Tensor, gate: &Tensor) {
        let result = self.kernels.sigmoid_mul.run(&self.device, x, gate);
        self.remember(result);
    }

    fn head_linear(&mut self, out: (&mut Tensor, HeadColumns), x: (&Tensor, HeadColumns), weight: &Heads) {
        let result = self.kernels.head_linear.run(&self.device, out, x, weight);
        self.remember(result);
    }

    fn place_heads(&mut self, out: &mut Tensor, heads: usize, parts: &[HeadPart<Tensor>]) {
        let result = self.kernels.place_heads.run(&self.device, out, heads, parts);
        self.remember(result);
    }

    fn gather(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        let result = self.kernels.gather.run(&self.device, out, x, device_batch);
        self.remember(result);
    }

    fn pool_states(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        let result = self.kernels.pool_states.run(&self.device, out, x, device_batch);
        self.remember(result);
    }

    fn keep_hidden_states(&mut self, device_batch: &mut DeviceBatch, gathered: &Tensor) {
        let result = match device_batch.has_room_for_hidden_states() {
            true => keep_hidden_states::run(&self.device, device_batch, gathered),
            false => self.together(|cuda| keep_hidden_states::run(&cuda.device, device_batch, gathered)),
        };
        self.remember(result);
    }

    fn scale_logits(&mut self, logits: &mut Tensor, scale: f32, softcap: Option<f32>) {
        let result = self.kernels.scale_logits.run(&self.device, logits, scale, softcap);
        self.remember(result);
    }

    fn process_logits(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        let result = self.kernels.process_logits.run(&self.device, device_batch, logits);
        self.remember(result);
    }

    fn sample(&mut self, device_batch: &mut DeviceBatch, logits: &Tensor) {
        let result = self.kernels.sample.run(&self.device, device_batch, logits);
        self.remember(result);
    }

    fn logprobs(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        let result = self.kernels.logprobs.run(&self.device, device_batch, logits);
        self.remember(result);
    }
}

impl Collectives for Cuda {
    const DIVIDES_SUMS: bool = true;

    fn abandon(&self) {
        self.exchanges.iter().for_each(|exchanges| exchanges.member().peers().break_up());
    }

    fn join_columns(&mut self, out: &mut Tensor, part: Option<Part<Tensor>>, shares: &[Range<usize>]) {
        let exchanges = self.exchanges.as_mut().expect("one of several ranks");
        let result = self.kernels.join_columns.run(&self.device, exchanges, out, part, shares);
        self.remember(result);
    }

    fn join_slots(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        columns: &[Range<usize>],
        experts: &[Range<usize>],
        routes: &Routes,
    ) {
        let exchanges = self.exchanges.as_mut().expect("one of several ranks");
        let join = &self.kernels.experts.get().expect("a model with routes has loaded them").join_slots;
        let result = join.run(&self.device, exchanges, (out, x), columns, experts, routes);
        self.remember(result);
    }

    fn reduce_add_norm(
        &mut self,
        residual: &mut Tensor,
        share: &Tensor,
        add: AddNorm<Vector>,
        next: Option<NextNorm<Tensor, Vector>>,
    ) {
        let exchanges = self.exchanges.as_mut().expect("one of several ranks");
        let result = self.kernels.reduce_add_norm.run(&self.device, exchanges, residual, share, add, next);
        self.remember(result);
    }
}
