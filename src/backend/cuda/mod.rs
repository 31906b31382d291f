//! NVIDIA GPUs, through the driver alone: our own kernels, and cuBLASLt for large products where it is installed.
//!
//! Everything of an engine runs on one stream, in the order of the calls. An op launches and returns; the host waits in
//! [`Backend::poll`] only. Launches take sizes from the host and addresses that are fixed when the engine opens; what changes
//! from pass to pass is read from [`DeviceBatch`], so that a pass of fixed sizes can be captured as a [`Graph`].
//!
//! This file is the backend: each op is one call of the op's file. [`Cuda`] itself is in device.rs, which the op files import.
#![allow(unsafe_code)]

mod add_rms_norm;
mod attention;
mod blas;
mod bytes;
mod copy_blocks;
mod device;
mod device_batch;
mod driver;
mod embedding;
mod gather;
mod graph;
mod keep_hidden_states;
mod kernels;
mod kv_cache;
mod linear;
mod logprobs;
mod matrix;
mod params;
mod plan;
mod process_logits;
mod rms_norm;
mod rope_and_cache;
mod sample;
mod sampling_extras;
mod silu_mul;
mod storage;

pub use device::Cuda;
pub use device_batch::DeviceBatch;
pub use driver::{ContextGuard, Event, EventKind, check_ordinal, device_count};
pub use graph::{Graph, PassGraph};
pub use kernels::Chaining;
pub use kv_cache::KvCache;
pub use linear::Route;
pub use matrix::{Matrix, Vector};
pub use storage::{Storage, Tensor};

use super::{AttentionSpec, Backend, DType, Defaults, DeviceMemory, HostMatrix, HostVector, KvShape, QkNormRope};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled};
use crate::error::{Error, Result};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

impl Backend for Cuda {
    type Storage = Storage;
    type Matrix = Matrix;
    type Vector = Vector;
    type KvCache = KvCache;
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
        let (free, total) = self.memory()?;
        Ok(Some(DeviceMemory { free, total }))
    }

    fn enter(&self) -> Result<ContextGuard> {
        ContextGuard::push()
    }

    fn tensor(&self, capacity: usize, cols: usize) -> Result<Tensor> {
        Ok(Tensor::new(Storage::new(&self.context, capacity, cols, self.dtype)?, capacity, cols))
    }

    fn matrix(&self, parts: &[HostMatrix]) -> Result<Matrix> {
        let mut staging = self.staging.lock();
        if staging.is_none() {
            *staging = Some(matrix::Staging::new(&self.context)?);
        }
        let staging = staging.as_mut().expect("made above");
        self.context.make_current()?;
        Matrix::new(&self.context, staging, parts, self.dtype)
    }

    fn vector(&self, parts: &[HostVector]) -> Result<Vector> {
        Vector::new(&self.context, parts, self.dtype)
    }

    fn table(&self, values: &[f32]) -> Result<Vector> {
        Vector::table(&self.context, values)
    }

    fn kv_cache(&self, shape: &KvShape, blocks: usize) -> Result<KvCache> {
        // The weights are there: their way of loading is not needed any more.
        *self.staging.lock() = None;
        self.geometry.set(attention::geometry(&self.context, shape)?);
        KvCache::new(&self.context, shape, blocks, self.dtype)
    }

    fn device_batches(&self, limits: &BatchLimits) -> Result<Vec<DeviceBatch>> {
        let first = self.device_batch(limits)?;
        let second = first.twin(&self.context)?;
        Ok(vec![first, second])
    }

    fn matrix_shape(matrix: &Matrix) -> (usize, usize) {
        (matrix.rows(), matrix.cols())
    }

    fn vector_len(vector: &Vector) -> usize {
        vector.numbers()
    }

    fn kv_shape(cache: &KvCache) -> KvShape {
        cache.shape()
    }

    fn batch(device_batch: &DeviceBatch) -> &Batch {
        device_batch.batch()
    }

    fn upload(&mut self, device_batch: &mut DeviceBatch, batch: &Batch) -> Result<()> {
        self.stage(device_batch, batch, device_batch::Padding::None)
    }

    fn finish(&mut self, device_batch: &mut DeviceBatch) -> Result<()> {
        self.failed()?;
        self.context.make_current()?;
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
        self.context.make_current()?;
        device_batch.arrive()?;
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
    ) -> Result<Option<PassGraph>> {
        self.stage(device_batch, batch, device_batch::Padding::To { rows })?;
        // Matrix products of new sizes are timed, which cannot be recorded.
        launches(self, device_batch);
        self.synchronize()?;
        let graph = self.capture(|cuda| launches(cuda, device_batch))?;
        Ok(Some(PassGraph { rows, graph }))
    }

    fn upload_padded(&mut self, graph: &PassGraph, device_batch: &mut DeviceBatch, batch: &Batch) -> Result<()> {
        self.stage(device_batch, batch, device_batch::Padding::To { rows: graph.rows })
    }

    fn launch_graph(&mut self, graph: &PassGraph) -> Result<()> {
        graph.graph.launch()
    }

    fn read_blocks(&mut self, cache: &KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.failed()?;
        cache.read_blocks(&self.context, blocks, to)
    }

    fn write_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        self.failed()?;
        cache.write_blocks(&self.context, blocks, from)
    }

    fn copy_blocks(&mut self, cache: &mut KvCache, device_batch: &DeviceBatch) {
        let result = copy_blocks::run(self, cache, device_batch);
        self.remember(result);
    }

    fn embedding(&mut self, out: &mut Tensor, table: &Matrix, device_batch: &DeviceBatch) {
        let result = embedding::run(self, out, table, device_batch);
        self.remember(result);
    }

    fn rms_norm(&mut self, out: &mut Tensor, x: &Tensor, weight: &Vector, eps: f32) {
        let result = rms_norm::run(self, out, x, weight, eps);
        self.remember(result);
    }

    fn add_rms_norm(&mut self, out: &mut Tensor, residual: &mut Tensor, x: &Tensor, weight: &Vector, eps: f32) {
        let result = add_rms_norm::run(self, out, residual, x, weight, eps);
        self.remember(result);
    }

    fn linear(&mut self, out: &mut Tensor, x: &Tensor, weight: &Matrix, bias: Option<&Vector>, columns: Range<usize>) {
        let result = linear::run(self, out, x, weight, bias, columns);
        self.remember(result);
    }

    fn rope_and_cache(
        &mut self,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Vector>,
        cache: &mut KvCache,
        layer: usize,
        device_batch: &DeviceBatch,
    ) {
        let result = rope_and_cache::run(self, spec, qkv, transform, cache, layer, device_batch);
        self.remember(result);
    }

    fn attention(
        &mut self,
        spec: &AttentionSpec,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: &KvCache,
        layer: usize,
        device_batch: &DeviceBatch,
    ) {
        let result = attention::run(self, spec, out, qkv, cache, layer, device_batch);
        self.remember(result);
    }

    fn silu_mul(&mut self, out: &mut Tensor, gate_up: &Tensor) {
        let result = silu_mul::run(self, out, gate_up);
        self.remember(result);
    }

    fn gather(&mut self, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
        let result = gather::run(self, out, x, device_batch);
        self.remember(result);
    }

    fn keep_hidden_states(&mut self, device_batch: &mut DeviceBatch, gathered: &Tensor) {
        let result = keep_hidden_states::run(self, device_batch, gathered);
        self.remember(result);
    }

    fn process_logits(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        let result = process_logits::run(self, device_batch, logits);
        self.remember(result);
    }

    fn sample(&mut self, device_batch: &mut DeviceBatch, logits: &Tensor) {
        let result = sample::run(self, device_batch, logits);
        self.remember(result);
    }

    fn logprobs(&mut self, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
        let result = logprobs::run(self, device_batch, logits);
        self.remember(result);
    }
}
