//! The GPU that ops launch on: its context, its kernels, and what chooses between them.
//!
//! A launch that fails is remembered here, and reported by the next call that can answer with an error.

use super::device_batch::{DeviceBatch, Padding};
use super::driver::{Context, Event, EventKind};
use super::graph::Graph;
use super::kernels::{self, Chaining, File, Kernel};
use super::kv_cache::KvCache;
use super::linear::{self, Route};
use super::plan::Geometry;
use super::storage::Tensor;
use super::{attention, blas, matrix, sample};
use crate::backend::{DType, KvShape, Rounding};
use crate::batch::{Batch, BatchLimits};
use crate::error::{Error, Result};
use cudarc::driver::sys;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;

/// A GPU as a backend.
pub struct Cuda {
    /// Dropped last, after all that needs it.
    pub(super) kernels: Kernels,
    pub(super) blas: Option<blas::Blas>,
    pub(super) staging: Mutex<Option<matrix::Staging>>,
    pub(super) dtype: DType,
    pub(super) chaining: Chaining,
    pub(super) route: Route,
    pub(super) rounding: Rounding,
    /// How attention is cut, known once a KV cache was made.
    pub(super) geometry: Cell<Geometry>,
    /// The distinct sliding windows of the layers, each of which has a plan of its own.
    pub(super) windows: Vec<Option<usize>>,
    /// The first launch that failed: call and code.
    failure: Option<(&'static str, i32)>,
    pub(super) context: Arc<Context>,
}

/// Kernels that serve every model of one number type.
pub(super) struct Kernels {
    pub(super) embedding: Kernel,
    pub(super) rms_norm: Kernel,
    pub(super) add_rms_norm: Kernel,
    /// For few tokens, and for many.
    pub(super) rope_and_cache: [Kernel; 2],
    pub(super) silu_mul: Kernel,
    pub(super) gather: Kernel,
    pub(super) copy_blocks: Kernel,
    pub(super) process_logits: Kernel,
    pub(super) logprobs: Kernel,
    pub(super) sample: sample::Kernels,
    pub(super) linear: linear::Kernels,
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
            process_logits: load(File::ProcessLogits, "process_logits")?,
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

    /// Opens device `ordinal` for a model with a KV cache of this shape, and `heads` query heads over it. Weights and activations
    /// are in the type of the cache.
    ///
    /// # Errors
    ///
    /// Also for shapes that the kernels do not know.
    pub fn open_for(ordinal: usize, shape: &KvShape, heads: usize, rounding: Rounding) -> Result<Cuda> {
        let mut cuda = Cuda::open(ordinal, shape.dtype)?;
        KvCache::check(shape, cuda.dtype)?;
        attention::check(shape, heads)?;
        cuda.set_rounding(rounding);
        Ok(cuda)
    }

    /// Names the sliding windows of all layers, `None` for layers without one; before the first call there are none. A batch serves
    /// the windows that were named when its memory was made.
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

    /// Ends the timing of matrix products: later sizes take the library's first suggestion, so that no pass waits for a choice.
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
    pub(super) fn rows_of_geometry(&self, rows: usize) -> usize {
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
    /// Their tensors, batch, weights and cache must outlive the graph. Linear layers should have run once before with the same
    /// sizes, so that their algorithms were timed.
    pub fn capture(&mut self, launches: impl FnOnce(&mut Cuda)) -> Result<Graph> {
        let context = self.context.clone();
        Graph::capture(&context, || {
            launches(self);
            self.failed()
        })
    }

    /// Memory for a batch of at most `limits`.
    pub fn device_batch(&self, limits: &BatchLimits) -> Result<DeviceBatch> {
        DeviceBatch::new(&self.context, limits, &self.windows, attention::ctas(&self.context))
    }

    pub(super) fn stage(&mut self, device_batch: &mut DeviceBatch, batch: &Batch, padding: Padding) -> Result<()> {
        self.failed()?;
        self.context.make_current()?;
        device_batch.stage(batch, padding, &self.geometry.get())
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

    pub(super) fn failed(&self) -> Result<()> {
        self.failure.map_or(Ok(()), |(call, code)| Err(Error::Device { call, code }))
    }

    pub(super) fn remember(&mut self, result: Result<()>) {
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
