//! A GPU as a device: its memory, and the life of a pass.

use super::device_batch::Padding;
use super::kv_cache::KvBlocks;
use super::management::FreeBefore;
use super::matrix::Readers;
use super::{
    ContextGuard, Cuda, DeviceBatch, ExpertCounts, Experts, Heads, HostExperts, KvCache, Matrix, PassGraph, Routes,
    States, Storage, Tensor, Vector, attention, experts, host_experts, recurrent,
};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use crate::{
    Defaults, Device, DeviceMemory, ExpertsShape, HostExpertWeights, HostMatrix, HostVector, KvLayout, Recording,
    Router, RoutesShape, StateShape,
};
use base::error::{Error, Result};
use formats::{DType, WeightFormat};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

impl Device for Cuda {
    type Storage = Storage;
    type Matrix = Matrix;
    type Experts = Experts;
    type Heads = Heads;
    type HostExperts = HostExperts;
    type Routes = Routes;
    type ExpertCounts = ExpertCounts;
    type Vector = Vector;
    type KvCache = KvCache;
    type States = States;
    type DeviceBatch = DeviceBatch;
    type Graph = PassGraph;
    type ContextGuard = ContextGuard;

    const DEPTH: usize = 2;
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

    fn held_bytes(coding: WeightFormat, shape: [usize; 2], dtype: DType) -> u64 {
        Matrix::held_bytes(coding, shape, dtype)
    }

    fn experts(&self, first: usize, experts: &[Vec<HostMatrix>]) -> Result<Experts> {
        self.device.context.make_current()?;
        Experts::new(&self.device.context, &mut self.loader.lock(), (first, experts), self.device.dtype)
    }

    fn heads(&self, heads: &[HostMatrix]) -> Result<Heads> {
        self.device.context.make_current()?;
        Heads::new(&self.device.context, &mut self.loader.lock(), heads, self.device.dtype)
    }

    fn experts_on_host(&self, weights: HostExpertWeights) -> Result<HostExperts> {
        let context = &self.device.context;
        let host = match self.host.get() {
            Some(host) => host,
            None => {
                let Some(threads) = self.host_threads else {
                    let what = "experts in host memory: the library computes nothing on this processor, set host_expert_layers to -1";
                    return Err(Error::Unsupported { what: what.to_owned() });
                };
                let (_, hidden) = weights.gate_up[0][0].shape();
                let rows = (hidden, self.device.dtype);
                let host = host_experts::Host::new(context, threads, rows, self.host_is_idle.clone())?;
                self.host.get_or_init(|| Arc::new(host))
            }
        };
        HostExperts::new(context, host, weights)
    }

    fn routes(&self, router: &Router, tokens: usize) -> Result<Routes> {
        if self.kernels.experts.get().is_none() {
            let kernels = Box::new(experts::Kernels::new(&self.device)?);
            let _ = self.kernels.experts.set(kernels);
        }
        Routes::new(&self.device.context, router, tokens)
    }

    fn expert_counts(&self, experts: usize) -> Result<ExpertCounts> {
        ExpertCounts::new(&self.device.context, experts)
    }

    fn read_expert_counts(&self, counts: &ExpertCounts) -> Result<Vec<u64>> {
        self.failed()?;
        counts.read()
    }

    fn vector(&self, parts: &[HostVector]) -> Result<Vector> {
        Vector::new(&self.device.context, parts, self.device.dtype)
    }

    fn table(&self, values: &[f32]) -> Result<Vector> {
        Vector::table(&self.device.context, values)
    }

    fn bind_norm(norm: &mut Vector, product: &Matrix) {
        norm.product = Some(Readers { weights: product.weights(), k: product.cols() });
    }

    fn kv_cache(&self, layout: &KvLayout, blocks: usize) -> Result<KvCache> {
        // The weights are there: their way of loading is not needed any more.
        self.loader.lock().finish();
        let kinds = layout.kinds();
        // The parts that rows share are made for query heads of one number over KV heads of one shape.
        let shares = kinds.len() == 1;
        let geometry = |shape| attention::geometry(&self.device, shape, self.query_heads, shares);
        let geometries = kinds.iter().map(geometry);
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

    fn heads_shape(heads: &Heads) -> [usize; 3] {
        heads.shape()
    }

    fn host_experts_shape(experts: &HostExperts) -> ExpertsShape {
        experts.shape()
    }

    fn routes_shape(routes: &Routes) -> RoutesShape {
        routes.shape()
    }

    fn counted_experts(counts: &ExpertCounts) -> usize {
        counts.experts()
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
}
