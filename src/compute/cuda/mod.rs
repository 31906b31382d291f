//! NVIDIA GPUs, through the driver alone: our own kernels, and cuBLASLt for large products where it is installed.
//!
//! Everything of an engine runs on one stream, in the order of the calls. An op launches and returns; the host waits in
//! [`Backend::poll`] only. Launches take sizes from the host and addresses that are fixed when the engine opens; what changes
//! from pass to pass is read from [`DeviceBatch`], so that a pass of fixed sizes can be captured as a [`Graph`].
//! This file is the backend: it owns the kernels of all ops, and each op is one call of the op's file. No op file imports it: they import
//! device.rs, which knows no op. A launch that fails is remembered here, and reported by the next call that can answer with an error.
#![allow(unsafe_code)]

mod access;
mod activate;
mod activate_mul;
mod add_norm;
mod attention;
mod attention_few_units;
mod attention_hopper;
mod attention_shared;
mod attention_units;
mod blas;
mod blas_handle;
mod bytes;
mod causal_conv;
mod coded;
mod coded_hopper;
mod coded_linear;
mod combine;
mod copy_blocks;
mod copy_states;
mod device;
mod device_batch;
mod driver;
mod embedding;
mod exchange;
mod expert_linear;
mod experts;
mod gated_delta;
mod gated_hopper;
mod gated_linear;
mod gated_norm;
mod gather;
mod graph;
mod hopper;
mod join_columns;
mod keep_hidden_states;
mod kernels;
mod kv_cache;
mod late_blas;
mod launch_log;
mod library;
mod linear;
mod linear_add_norm;
mod linear_few;
mod linear_stream;
mod logprobs;
mod management;
mod matrix;
mod nccl;
mod norm;
mod params;
mod pass;
mod peers;
mod pieces;
mod plan;
mod process_logits;
mod product;
mod ranks;
mod recurrent;
mod reduce_add_norm;
mod rope_and_attention;
mod rope_and_cache;
mod route;
mod sample;
mod sampling_extras;
mod scale_logits;
mod scaled_linear;
mod selective_scan;
mod settings;
mod shared_plan;
mod sigmoid_mul;
mod states;
mod storage;
mod team;
mod tensor_map;
mod upload;

pub use device_batch::DeviceBatch;

pub use driver::{ContextGuard, Event, EventKind, check_ordinal, device_count};
pub use experts::{Experts, Routes};
pub use graph::{Graph, PassGraph};
pub use kernels::Chaining;
pub use kv_cache::KvCache;
pub use linear::Route;
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
    Activated, Activation, AddNorm, AttentionSpec, Backend, Defaults, DeltaHeads, DeltaInputs, DeviceMemory,
    ExpertRows, ExpertsShape, HeadGate, HeadRows, HostMatrix, HostVector, KvLayout, KvPlace, LayerInput, NextNorm,
    NormWeights, Part, QkNormRope, Recording, Router, RouterVectors, RoutesShape, ScanHeads, ScanInputs, Scoring,
    SharedExpert, SharedPrefixes, ShortConv, StateShape,
};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use base::error::{Error, Result};
use cudarc::driver::sys;
use device::Device;
use device_batch::Padding;
use driver::Context;
use exchange::Exchanges;
use formats::DType;
use kernels::KernelLoading;
use kv_cache::KvBlocks;
use parking_lot::Mutex;
use plan::{Geometry, LayerWindow};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

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
    norm: norm::Kernels,
    add_norm: add_norm::Kernels,
    linear: linear::Kernels,
    rope_and_cache: rope_and_cache::Kernels,
    activate: activate::Kernels,
    activate_mul: activate_mul::Kernels,
    gather: gather::Kernels,
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
            norm: norm::Kernels::new(device)?,
            add_norm: add_norm::Kernels::new(device)?,
            linear: linear::Kernels::new(device)?,
            rope_and_cache: rope_and_cache::Kernels::new(device)?,
            activate: activate::Kernels::new(device)?,
            activate_mul: activate_mul::Kernels::new(device)?,
            gather: gather::Kernels::new(device)?,
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
            device,
        })
    }

    fn failed(&self) -> Result<()> {
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

impl Backend for Cuda {
    type Storage = Storage;
    type Matrix = Matrix;
    type Experts = Experts;
    type Routes = Routes;
    type Vector = Vector;
    type KvCache = KvCache;
    type States = States;
    type DeviceBatch = DeviceBatch;
    type Graph = PassGraph;
    type ContextGuard = ContextGuard;

    const DEPTH: usize = 2;
    const DIVIDES_SUMS: bool = true;
    const DEFAULTS: Defaults = Defaults {
        // The attention kernels read a tile of 64 tokens at a time.
        block_size: 64,
        // Small models go on gaining from larger batches; large ones run out of KV blocks first.
        max_num_seqs: 256,
        max_batched_tokens: 8192,
        memory_share: 0.9,
    };

    /// What is stored in f32 becomes bf16, which has its range.
    fn weight_dtype(stored: DType, asked: Option<DType>) -> Result<DType> {
        match (asked, stored) {
            (Some(DType::F32), _) => {
                Err(Error::Unsupported { what: "dtype F32 on CUDA: choose BF16 or F16, or device CPU".to_owned() })
            }
            (None, DType::F32) => Ok(DType::Bf16),
            (asked, stored) => Ok(asked.unwrap_or(stored)),
        }
    }

    fn device_memory(&self) -> Result<Option<DeviceMemory>> {
        let memory = self.device.context.memory()?;
        let measured = self.free_before.as_ref().and_then(FreeBefore::taken);
        Ok(Some(DeviceMemory { own: measured.unwrap_or(memory.own), ..memory }))
    }

    fn enter(&self) -> Result<ContextGuard> {
        ContextGuard::push()
    }

    fn tensor(&self, capacity: usize, cols: usize) -> Result<Tensor> {
        Ok(Tensor::new(Storage::new(&self.device.context, capacity, cols, self.device.dtype)?, capacity, cols))
    }

    fn reshape(tensor: &mut Tensor, cols: usize) {
        tensor.storage.reshape(tensor.cols(), cols);
        tensor.divide(cols);
    }

    fn matrix(&self, parts: &[HostMatrix]) -> Result<Matrix> {
        self.device.context.make_current()?;
        Matrix::new(&self.device.context, &mut self.loader.lock(), parts, self.device.dtype)
    }

    fn experts(&self, experts: &[Vec<HostMatrix>]) -> Result<Experts> {
        self.device.context.make_current()?;
        Experts::new(&self.device.context, &mut self.loader.lock(), experts, self.device.dtype)
    }

    fn routes(&self, router: &Router, tokens: usize) -> Result<Routes> {
        if self.kernels.experts.get().is_none() {
            let kernels = Box::new(experts::Kernels::new(&self.device)?);
            let _ = self.kernels.experts.set(kernels);
        }
        Routes::new(&self.device.context, router, tokens)
    }

    fn vector(&self, parts: &[HostVector]) -> Result<Vector> {
        Vector::new(&self.device.context, parts, self.device.dtype)
    }

    fn table(&self, values: &[f32]) -> Result<Vector> {
        Vector::table(&self.device.context, values)
    }

    fn kv_cache(&self, layout: &KvLayout, blocks: usize) -> Result<KvCache> {
        // The weights are there: their way of loading is not needed any more.
        self.loader.lock().finish();
        let kinds = layout.kinds();
        // The parts that rows share are made for query heads of one number over KV heads of one shape.
        let heads = self.query_heads.filter(|_| kinds.len() == 1);
        let geometries = kinds.iter().map(|shape| attention::geometry(&self.device, shape, heads));
        let geometries: Vec<_> = geometries.collect::<Result<_>>()?;
        let blocks = KvBlocks::new(&self.device.context, layout, blocks, self.device.dtype)?;
        let attention = kinds.iter().zip(&geometries);
        let attention = attention.map(|(shape, geometry)| attention::Kernels::new(&self.device, shape, geometry));
        let attention = attention.collect::<Result<_>>()?;
        self.geometries.replace(geometries);
        Ok(KvCache { blocks, attention })
    }

    fn states(&mut self, shape: &StateShape) -> Result<States> {
        if shape.slots > 0 && self.kernels.recurrent.is_none() {
            self.kernels.recurrent = Some(Box::new(recurrent::Kernels::new(&self.device)?));
        }
        States::new(&self.device.context, shape)
    }

    fn device_batches(&self, limits: &BatchLimits) -> Result<Vec<DeviceBatch>> {
        // What passes need is complete then, and weights have been loaded meanwhile.
        self.kernels.linear.blas.wait()?;
        let first = self.device_batch(limits)?;
        let second = first.twin(&self.device.context)?;
        Ok(vec![first, second])
    }

    fn matrix_shape(matrix: &Matrix) -> (usize, usize) {
        (matrix.rows(), matrix.cols())
    }

    fn experts_shape(experts: &Experts) -> ExpertsShape {
        experts.shape()
    }

    fn routes_shape(routes: &Routes) -> RoutesShape {
        routes.shape()
    }

    fn vector_len(vector: &Vector) -> usize {
        vector.numbers()
    }

    fn kv_layout(cache: &KvCache) -> &KvLayout {
        cache.blocks.layout()
    }

    fn state_shape(states: &States) -> StateShape {
        states.shape()
    }

    fn batch(device_batch: &DeviceBatch) -> &Batch {
        device_batch.batch()
    }

    fn abandon(&self) {
        self.exchanges.iter().for_each(|exchanges| exchanges.member().peers().break_up());
    }

    fn upload(&mut self, device_batch: &mut DeviceBatch, batch: &Batch) -> Result<()> {
        self.stage(device_batch, batch, Padding::None).map(drop)
    }

    fn finish(&mut self, device_batch: &mut DeviceBatch) -> Result<()> {
        self.failed()?;
        self.device.context.make_current()?;
        device_batch.finish()
    }

    fn poll(&mut self, device_batch: &mut DeviceBatch, deadline: Option<Instant>) -> Result<bool> {
        if let Some(deadline) = deadline {
            while !device_batch.is_finished()? {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                thread::yield_now();
            }
        }
        self.device.context.make_current()?;
        device_batch.arrive()?;
        // A kernel that gave up left results that are not defined.
        self.failed()?;
        Ok(true)
    }

    fn results<'a>(&self, device_batch: &'a DeviceBatch) -> Sampled<'a> {
        device_batch.sampled()
    }

    fn device_time(&self, device_batch: &DeviceBatch) -> Result<Option<Duration>> {
        device_batch.device_time().map(Some)
    }

    fn capture_pass(
        &mut self,
        device_batch: &mut DeviceBatch,
        batch: &Batch,
        rows: usize,
        launches: &mut dyn FnMut(&mut Cuda, &mut DeviceBatch),
    ) -> Result<Recording<PassGraph>> {
        if !self.stage(device_batch, batch, Padding::To { rows })? {
            return Ok(Recording::Nothing);
        }
        // Matrix products of new sizes are timed, which cannot be recorded.
        launches(self, device_batch);
        let recorded = self.record_pass(rows, |cuda| launches(cuda, device_batch));
        Ok(recorded.map_or_else(Recording::Refused, Recording::Graph))
    }

    fn records_at_opening(&self, rows: usize) -> bool {
        // One shape is the head's: of layers, the algorithms are to be timed. And while a stream records, no other thread can wait for its context.
        self.device.context.was_there() || self.kernels.linear.blas.get().is_some_and(|blas| blas.shapes_of(rows) > 1)
    }

    fn upload_padded(&mut self, graph: &PassGraph, device_batch: &mut DeviceBatch, batch: &Batch) -> Result<bool> {
        self.stage(device_batch, batch, Padding::To { rows: graph.rows })
    }

    fn launch_graph(&mut self, graph: &PassGraph) -> Result<()> {
        let takes_part = match &mut self.exchanges {
            Some(exchanges) => exchanges.next_recorded(graph.exchanges)?,
            None => true,
        };
        if takes_part { graph.graph.launch() } else { Ok(()) }
    }

    fn read_blocks(&mut self, cache: &KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.failed()?;
        self.together(|cuda| cache.blocks.read_blocks(&cuda.device.context, blocks, to))
    }

    fn write_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        self.failed()?;
        self.together(|cuda| cache.blocks.write_blocks(&cuda.device.context, blocks, from))
    }

    fn read_state(&mut self, states: &States, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        self.failed()?;
        self.together(|_| states.read(slot, to))
    }

    fn write_state(&mut self, states: &mut States, slot: StateSlot, from: &[u8]) -> Result<()> {
        self.failed()?;
        self.together(|_| states.write(slot, from))
    }

    /// They have memory since the cache was made.
    fn commit_blocks(&mut self, _cache: &mut KvCache, _batch: &Batch) -> Result<()> {
        Ok(())
    }

    fn release_blocks(&mut self, cache: &mut KvCache, unused: &[bool]) -> Result<u64> {
        self.failed()?;
        cache.blocks.release(unused)
    }

    fn restore_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId]) -> Result<()> {
        self.failed()?;
        cache.blocks.restore(blocks)
    }

    fn kv_bytes_mapped(cache: &KvCache) -> u64 {
        cache.blocks.mapped_bytes()
    }

    fn copy_blocks(&mut self, cache: &mut KvCache, device_batch: &DeviceBatch) {
        let result = self.kernels.copy_blocks.run(&self.device, &mut cache.blocks, device_batch);
        self.remember(result);
    }

    fn embedding(&mut self, out: &mut Tensor, table: &Matrix, scale: f32, device_batch: &DeviceBatch) {
        let result = self.kernels.embedding.run(&self.device, out, table, scale, device_batch);
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

    fn linear(&mut self, out: &mut Tensor, x: &Tensor, weight: &Matrix, bias: Option<&Vector>, columns: Range<usize>) {
        let result = self.kernels.linear.run(&self.device, out, x, weight, bias, columns);
        self.remember(result);
    }

    fn linear_add_norm(
        &mut self,
        residual: &mut Tensor,
        delta: &mut Tensor,
        layer: LayerInput<Tensor, Matrix, Vector>,
        add: AddNorm<Vector>,
        mut next: NextNorm<Tensor, Vector>,
        reader: &Matrix,
    ) {
        match linear_add_norm::run(&self.device, &self.kernels.linear, residual, layer, add, &mut next, reader) {
            Ok(false) => {
                self.linear(delta, layer.x, layer.weight, layer.bias, 0..layer.weight.rows());
                self.add_norm(residual, delta, add, Some(next));
            }
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
        let (heads, at) = (attention::Heads { out, qkv, raw: None }, cache.blocks.layer(place));
        let result = cache.attention[at.kind].run(&self.device, scoring, heads, at, device_batch);
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
        let attention = &cache.attention[at.kind];
        // Kernels that prepare heads themselves store keys and values.
        let has_keys = heads.qkv.cols() > heads.out.cols();
        match &attention.few {
            Some(few) if has_keys && few.serves(&self.device, scoring.spec, &transform, &at, device_batch) => {
                let result = few.run(&self.device, scoring, heads, &transform, at, device_batch);
                self.remember(result);
            }
            _ if has_keys && attention.prepares(&self.device, scoring.spec, &transform, &at, device_batch) => {
                let heads = attention::Heads { out: heads.out, qkv: heads.qkv, raw: Some(&transform) };
                let result = attention.run(&self.device, scoring, heads, at, device_batch);
                self.remember(result);
            }
            _ => {
                self.rope_and_cache(scoring.spec, heads.qkv, transform, cache, place, device_batch);
                self.attention(scoring, heads.out, heads.qkv, cache, place, device_batch);
            }
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
        x: &Tensor,
        weight: &Matrix,
        bias: Option<&Vector>,
        activation: Activation,
    ) {
        match gated_linear::run(&self.device, &self.kernels.linear, out, x, weight, bias, activation) {
            Ok(false) => {
                self.linear(gate_up, x, weight, bias, 0..weight.rows());
                self.activate_mul(out, gate_up, activation);
            }
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

    fn gated_norm(&mut self, x: &mut Tensor, gate: HeadGate<Tensor, Vector>) {
        let result = self.kernels.recurrent().gated_norm.run(&self.device, x, gate);
        self.remember(result);
    }

    fn route(&mut self, routes: &mut Routes, logits: &mut Tensor, vectors: RouterVectors<Vector>, router: &Router) {
        let result = self.kernels.experts().route.run(&self.device, routes, logits, vectors, router);
        self.remember(result);
    }

    fn gated_expert_linear(
        &mut self,
        out: &mut Tensor,
        gate_up: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        activation: Activation,
        routes: &Routes,
    ) {
        let kernels = &self.kernels.experts().expert_linear;
        match kernels.run_gated(&self.device, out, layer, activation, routes) {
            Ok(false) => {
                let result = kernels.run(&self.device, gate_up, layer, routes.shape().chosen, routes);
                self.remember(result);
                self.activate_mul(out, gate_up, activation);
            }
            result => self.remember(result.map(drop)),
        }
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
        let result = self.kernels.experts().expert_linear.run(&self.device, out, layer, slots_of_row, routes);
        self.remember(result);
    }

    fn combine(&mut self, out: &mut Tensor, x: &Tensor, shared: Option<SharedExpert<Tensor>>, routes: &Routes) {
        let result = self.kernels.experts().combine.run(&self.device, out, x, shared, routes);
        self.remember(result);
    }

    fn sigmoid_mul(&mut self, x: &mut Tensor, gate: &Tensor) {
        let result = self.kernels.sigmoid_mul.run(&self.device, x, gate);
        self.remember(result);
    }

    fn join_columns(&mut self, out: &mut Tensor, part: Option<Part<Tensor>>, shares: &[Range<usize>]) {
        let exchanges = self.exchanges.as_mut().expect("one of several ranks");
        let result = self.kernels.join_columns.run(&self.device, exchanges, out, part, shares);
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

    fn gather(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        let result = self.kernels.gather.run(&self.device, out, x, device_batch);
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
