//! NVIDIA GPUs, through the driver alone: our own kernels, and cuBLASLt for large products where it is installed.
//!
//! Everything of an engine runs on one stream, in the order of the calls. An op launches and returns; the host waits in
//! [`Backend::sampled`] only. Launches take sizes from the host and addresses that are fixed when the engine opens; what changes
//! from step to step is read from [`Step`], so that a step of fixed sizes can be captured as a [`Graph`].
//!
//! A launch that fails is remembered and reported by the next call that can answer with an error.
#![allow(unsafe_code)]

mod add_rms_norm;
mod adjust;
mod attention;
mod blas;
mod copy_blocks;
mod driver;
mod embedding;
mod gather;
mod graph;
mod keep_hidden;
mod kernels;
mod kv_cache;
mod linear;
mod logprobs;
mod matrix;
mod params;
mod plan;
mod rms_norm;
mod rope_and_cache;
mod sample;
mod silu_mul;
mod step;
mod storage;
mod wishes;

pub use driver::{CallersContext, Event, EventKind, check_ordinal, device_count};
pub use graph::Graph;
pub use kernels::Chaining;
pub use kv_cache::KvCache;
pub use linear::Route;
pub use matrix::{Matrix, Vector};
pub use step::Step;
pub use storage::Storage;

use super::{AttentionSpec, Backend, DType, HostMatrix, HostVector, KvShape, QkNormRope, Rounding};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled};
use crate::error::{Error, Result};
use cudarc::driver::sys;
use driver::Context;
use kernels::{File, Kernel};
use parking_lot::Mutex;
use plan::Geometry;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// A GPU as a backend.
pub struct Cuda {
    /// Dropped last, after all that needs it.
    kernels: Kernels,
    blas: Option<blas::Blas>,
    staging: Mutex<Option<matrix::Staging>>,
    dtype: DType,
    chaining: Chaining,
    route: Route,
    rounding: Rounding,
    /// How attention is cut, known once a KV cache was made.
    geometry: Cell<Geometry>,
    /// The distinct sliding windows of the layers, each of which has a plan of its own.
    windows: Vec<Option<usize>>,
    /// The first launch that failed: call and code.
    failure: Option<(&'static str, i32)>,
    context: Arc<Context>,
}

/// Activations on the device.
pub type Tensor = super::Tensor<Storage>;

/// Kernels that serve every model of one number type.
struct Kernels {
    embedding: Kernel,
    rms_norm: Kernel,
    add_rms_norm: Kernel,
    /// For few tokens, and for many.
    rope_and_cache: [Kernel; 2],
    silu_mul: Kernel,
    gather: Kernel,
    copy_blocks: Kernel,
    adjust: Kernel,
    logprobs: Kernel,
    sample: sample::Kernels,
    linear: linear::Kernels,
}

impl Kernels {
    fn new(context: &Arc<Context>, dtype: DType) -> Result<Kernels> {
        let load = |file, name| Kernel::load(context, file, name, dtype);
        let rope_and_cache = kernels::Module::load(context, File::RopeAndCache)?;
        let rope = |name: &str| Kernel::new(&rope_and_cache, &format!("{name}_{}", kernels::suffix(dtype)));
        Ok(Kernels {
            embedding: load(File::Embedding, "embedding")?,
            rms_norm: load(File::RmsNorm, "rms_norm")?,
            add_rms_norm: load(File::AddRmsNorm, "add_rms_norm")?,
            rope_and_cache: [rope("rope_and_cache_h1")?, rope("rope_and_cache_h4")?],
            silu_mul: load(File::SiluMul, "silu_mul")?,
            gather: load(File::Gather, "gather")?,
            copy_blocks: Kernel::new(&kernels::Module::load(context, File::CopyBlocks)?, "copy_blocks")?,
            adjust: load(File::Adjust, "adjust")?,
            logprobs: load(File::Logprobs, "logprobs")?,
            sample: sample::Kernels::new(context, dtype)?,
            linear: linear::Kernels::new(context, dtype)?,
        })
    }
}

impl Cuda {
    /// Opens device `ordinal` for weights, activations and caches in `dtype`.
    pub fn open(ordinal: usize, dtype: DType) -> Result<Cuda> {
        if dtype == DType::F32 {
            return Err(Error::Unsupported { what: "F32 on CUDA: choose BF16 or F16, or device CPU".to_owned() });
        }
        let context = Context::open(ordinal)?;
        Ok(Cuda {
            kernels: Kernels::new(&context, dtype)?,
            blas: blas::Blas::open(&context, dtype)?,
            staging: Mutex::new(None),
            dtype,
            chaining: if context.facts().capability >= 90 { Chaining::DependentLaunch } else { Chaining::Strict },
            route: Route::Auto,
            rounding: Rounding::Fastest,
            geometry: Cell::new(Geometry { kv_heads: 1, tile_tokens: 64, tile_queries: 128, ctas: 1 }),
            windows: vec![None],
            failure: None,
            context,
        })
    }

    /// Whether the kernels know a KV cache of this shape, and `heads` query heads over it.
    pub fn check(&self, shape: &KvShape, heads: usize) -> Result<()> {
        KvCache::check(shape, self.dtype)?;
        attention::check(shape, heads)
    }

    /// Names the sliding windows of all layers, `None` for layers without one; before the first call there are none. A step serves
    /// the windows that were named when it was made.
    pub fn set_windows(&mut self, windows: impl IntoIterator<Item = Option<usize>>) {
        self.windows.clear();
        for window in windows {
            if !self.windows.contains(&window) {
                self.windows.push(window);
            }
        }
    }

    /// Chooses how kernels follow each other.
    pub fn set_chaining(&mut self, chaining: Chaining) {
        self.chaining = chaining;
    }

    /// Chooses which code computes linear layers.
    pub fn set_route(&mut self, route: Route) {
        self.route = route;
    }

    /// Ends the timing of matrix products: later sizes take the library's first suggestion, so that no step waits for a choice.
    pub fn settle(&mut self) {
        if let Some(blas) = &mut self.blas {
            blas.settle();
        }
    }

    /// Chooses what the results of a row may depend on.
    ///
    /// `BatchInvariant` takes one chain of sums for each result, in an order that knows neither the batch nor how a prompt was
    /// cut: linear layers by `linear_tiled.cu` whatever the route, attention by `attention_prefill.cu`, norms as for a single row.
    pub fn set_rounding(&mut self, rounding: Rounding) {
        self.rounding = rounding;
    }

    /// As many rows as a kernel's geometry may depend on.
    fn rows_of_geometry(&self, rows: usize) -> usize {
        if self.rounding == Rounding::BatchInvariant { 1 } else { rows }
    }

    /// Whether cuBLASLt was found.
    pub fn has_blas(&self) -> bool {
        self.blas.is_some()
    }

    /// Free and total bytes of the device.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.context.memory()
    }

    /// Waits for everything that was launched.
    pub fn synchronize(&self) -> Result<()> {
        self.context.synchronize()?;
        self.failed()
    }

    /// An event on this device's stream.
    pub fn event(&self, kind: EventKind) -> Result<Event> {
        Event::new(&self.context, kind)
    }

    /// Records the ops that `launches` calls instead of running them.
    ///
    /// Their tensors, step, weights and cache must outlive the graph. Linear layers should have run once before with the same
    /// sizes, so that their algorithms were timed.
    pub fn capture(&mut self, launches: impl FnOnce(&mut Cuda)) -> Result<Graph> {
        let context = self.context.clone();
        Graph::capture(&context, || {
            launches(self);
            self.failed()
        })
    }

    /// A second step over the device memory of `step`: one is staged while the other is computed.
    pub fn twin(&self, step: &Step) -> Result<Step> {
        step.twin(&self.context)
    }

    /// Takes a batch over to the device, padded up to `rows` rows: for a graph that was captured with so many.
    pub fn stage_padded(&mut self, step: &mut Step, batch: &Batch, rows: usize) -> Result<()> {
        self.failed()?;
        self.context.make_current()?;
        step.stage(batch, step::Padding::To { rows }, &self.geometry.get())
    }

    /// Marks the end of a step that samples nothing.
    pub fn finish(&mut self, step: &mut Step) -> Result<()> {
        step.finish()
    }

    /// The rows in use of a tensor, once they are computed. `[rows, cols]`
    pub fn read(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        self.failed()?;
        tensor.storage.read(tensor.rows(), tensor.cols(), self.dtype)
    }

    /// Sets the rows in use of a tensor. `[rows, cols]`
    ///
    /// # Panics
    ///
    /// If `values` has another length.
    pub fn write(&self, tensor: &mut Tensor, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), tensor.rows() * tensor.cols());
        tensor.storage.write(tensor.cols(), self.dtype, values)
    }

    fn failed(&self) -> Result<()> {
        self.failure.map_or(Ok(()), |(call, code)| Err(Error::Device { call, code }))
    }

    fn remember(&mut self, result: Result<()>) {
        if let Err(error) = result
            && self.failure.is_none()
        {
            self.failure = Some(match error {
                Error::Device { call, code } => (call, code),
                // No op allocates.
                _ => ("launch", -1),
            });
        }
    }
}

impl Backend for Cuda {
    type Storage = Storage;
    type Matrix = Matrix;
    type Vector = Vector;
    type KvCache = KvCache;
    type Step = Step;

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

    fn step(&self, limits: &BatchLimits) -> Result<Step> {
        Step::new(&self.context, limits, &self.windows, attention::ctas(&self.context))
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

    fn batch(step: &Step) -> &Batch {
        step.batch()
    }

    fn stage(&mut self, step: &mut Step, batch: &Batch) -> Result<()> {
        self.failed()?;
        self.context.make_current()?;
        step.stage(batch, step::Padding::None, &self.geometry.get())
    }

    fn sampled<'a>(&mut self, step: &'a Step) -> Result<Sampled<'a>> {
        self.failed()?;
        self.context.make_current()?;
        step.sampled()
    }

    fn read_blocks(&mut self, cache: &KvCache, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.failed()?;
        cache.read_blocks(&self.context, blocks, to)
    }

    fn write_blocks(&mut self, cache: &mut KvCache, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        self.failed()?;
        cache.write_blocks(&self.context, blocks, from)
    }

    fn copy_blocks(&mut self, cache: &mut KvCache, step: &Step) {
        let result = copy_blocks::run(self, cache, step);
        self.remember(result);
    }

    fn embedding(&mut self, out: &mut Tensor, table: &Matrix, step: &Step) {
        let result = embedding::run(self, out, table, step);
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
        step: &Step,
    ) {
        let result = rope_and_cache::run(self, spec, qkv, transform, cache, layer, step);
        self.remember(result);
    }

    fn attention(
        &mut self,
        spec: &AttentionSpec,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: &KvCache,
        layer: usize,
        step: &Step,
    ) {
        let result = attention::run(self, spec, out, qkv, cache, layer, step);
        self.remember(result);
    }

    fn silu_mul(&mut self, out: &mut Tensor, gate_up: &Tensor) {
        let result = silu_mul::run(self, out, gate_up);
        self.remember(result);
    }

    fn gather(&mut self, out: &mut Tensor, x: &Tensor, step: &Step) {
        let result = gather::run(self, out, x, step);
        self.remember(result);
    }

    fn keep_hidden(&mut self, step: &mut Step, gathered: &Tensor) {
        let result = keep_hidden::run(self, step, gathered);
        self.remember(result);
    }

    fn adjust(&mut self, step: &mut Step, logits: &mut Tensor) {
        let result = adjust::run(self, step, logits);
        self.remember(result);
    }

    fn sample(&mut self, step: &mut Step, logits: &Tensor) {
        let result = sample::run(self, step, logits);
        self.remember(result);
    }

    fn logprobs(&mut self, step: &mut Step, logits: &mut Tensor) {
        let result = logprobs::run(self, step, logits);
        self.remember(result);
    }
}
