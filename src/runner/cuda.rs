//! One GPU. Two passes may be in flight: while the device computes one, the host schedules and stages the next.

use super::graphs::{self, Graphs};
use super::{Device, Launching, ModelInfo, Runner, RunnerConfig, memory};
use crate::backend::cuda::{CallersContext, Cuda, KvCache, Step};
use crate::backend::{Backend, DType};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled};
use crate::error::{Error, Result};
use crate::log::{Level, log};
use crate::model::decoder::Decoder;
use crate::model::description::Description;
use crate::model::names::Names;
use crate::model::source::Source;
use crate::model::weights::Weights;
use crate::ops;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

/// Device memory that is left alone besides what was measured: the driver takes some for each kernel when it first runs.
const SPARE_BYTES: u64 = 128 << 20;

/// A decoder on one GPU.
pub struct CudaRunner {
    /// Hold addresses of all that follows.
    graphs: Graphs,
    backend: Cuda,
    decoder: Decoder<Cuda>,
    cache: KvCache,
    /// Passes take them in turn.
    steps: [Step; 2],
    submitted: usize,
    collected: usize,
    pass_time: Duration,
    /// Dropped last.
    callers: Option<CallersContext>,
}

impl CudaRunner {
    /// Loads the model of `source` onto device `index`. `progress` hears a fraction from 0 to 1; `Break` cancels.
    pub fn open(
        source: &Source,
        config: &RunnerConfig,
        index: usize,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
    ) -> Result<(CudaRunner, ModelInfo)> {
        super::check_cuda(index)?;
        let _callers = CallersContext::note()?;
        let model = Description::read(source)?;
        let spec = &model.spec;
        let limits = memory::batch_limits(config, spec.max_positions, &memory::CUDA)?;
        let free = memory::free_host_bytes();
        let mut weights = open_weights(source, model.names, config, free.unwrap_or(u64::MAX))?;
        let memory = memory::HostMemory { free, weights: 0 };
        memory::check_table(limits.model_len, spec.attention().head_dim, &memory)?;
        let kv_shape = spec.kv_shape(limits.block_size, weights.dtype());
        let mut backend = Cuda::open(index, weights.dtype())?;
        backend.check(&kv_shape, spec.attention().scores.heads)?;
        backend.set_rounding(config.rounding);
        backend.set_windows(spec.windows());

        weights.warm(progress)?;
        let mut decoder = Decoder::load(&backend, spec, &mut weights, &limits, limits.model_len)?;
        let mut step = backend.step(&limits)?;
        let twin = backend.twin(&step)?;
        let sizes = match config.launching {
            Launching::Graphs => graphs::sizes(limits.rows),
            Launching::Eager => Vec::new(),
        };
        let mut provisional = backend.kv_cache(&kv_shape, 1)?;
        let reserved = warm_up(&sizes, &mut backend, &mut decoder, &mut provisional, &mut step, &limits)?;
        drop(provisional);
        let (free, total) = backend.memory()?;
        let memory = memory::DeviceMemory { free, total, reserved };
        let blocks = memory::device_kv_blocks(config.kv_budget, &limits, &kv_shape, &memory)?;
        let mut cache = backend.kv_cache(&kv_shape, blocks)?;
        let graphs = Graphs::capture(&sizes, &mut backend, &mut decoder, &mut cache, &mut step, &limits)?;
        backend.settle();

        let info = ModelInfo::new(&model, &weights, &kv_shape, blocks, limits, Device::Cuda { index });
        let steps = [step, twin];
        let (submitted, collected, pass_time, callers) = (0, 0, Duration::ZERO, None);
        let runner = CudaRunner { graphs, backend, decoder, cache, steps, submitted, collected, pass_time, callers };
        Ok((runner, info))
    }

    /// Columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.decoder.logits().cols()
    }

    /// The logits of the last pass that sampled, once it was collected, padding included. `[samples, vocab]`
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.backend.read(self.decoder.logits())
    }
}

/// The weights, in the type asked for or the file's own. What is stored in f32 becomes bf16, which has its range.
fn open_weights(source: &Source, names: &'static Names, config: &RunnerConfig, free_bytes: u64) -> Result<Weights> {
    let weights = Weights::open(source, names, config.dtype, config.loading, free_bytes)?;
    match (config.dtype, weights.dtype()) {
        (None, DType::F32) => {
            log(Level::Info, format_args!("the model is stored in F32 and computed in BF16 on CUDA"));
            Ok(weights.converted(DType::Bf16))
        }
        (Some(DType::F32), _) => {
            Err(Error::Unsupported { what: "dtype F32 on CUDA: choose BF16 or F16, or device CPU".to_owned() })
        }
        _ => Ok(weights),
    }
}

/// Runs the largest pass there can be, so that what the driver and cuBLASLt load is loaded, and answers the bytes that graphs of
/// these sizes will take.
fn warm_up(
    sizes: &[usize],
    backend: &mut Cuda,
    decoder: &mut Decoder<Cuda>,
    cache: &mut KvCache,
    step: &mut Step,
    limits: &BatchLimits,
) -> Result<u64> {
    backend.stage(step, &graphs::largest_batch(limits))?;
    decoder.run_to_logits(backend, cache, step);
    decoder.sample(backend, step);
    backend.synchronize()?;
    let Some(&largest) = sizes.last() else { return Ok(SPARE_BYTES) };
    let (before, _) = backend.memory()?;
    let one = Graphs::capture(&[largest], backend, decoder, cache, step, limits)?;
    let (after, _) = backend.memory()?;
    drop(one);
    Ok(SPARE_BYTES + sizes.len() as u64 * before.saturating_sub(after))
}

impl Drop for CudaRunner {
    fn drop(&mut self) {
        // The fields are dropped after this, each of them with the device's context, and this note of the caller's last.
        self.callers = CallersContext::note().ok();
    }
}

impl Runner for CudaRunner {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        let _callers = CallersContext::note()?;
        assert!(self.submitted - self.collected < self.depth(), "two passes are in flight");
        let step = &mut self.steps[self.submitted % 2];
        match self.graphs.serving(batch) {
            Some((rows, graph)) => {
                self.backend.stage_padded(step, batch, *rows)?;
                self.decoder.fit(step);
                ops::copy_blocks(&mut self.backend, &mut self.cache, step);
                graph.launch()?;
            }
            None => {
                self.backend.stage(step, batch)?;
                self.decoder.run_to_logits(&mut self.backend, &mut self.cache, step);
            }
        }
        match batch.samples() {
            0 => self.backend.finish(step)?,
            _ => self.decoder.sample(&mut self.backend, step),
        }
        self.submitted += 1;
        Ok(())
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        let _callers = CallersContext::note()?;
        assert!(self.collected < self.submitted, "a pass is in flight");
        let step = &mut self.steps[self.collected % 2];
        if let Some(deadline) = deadline {
            while !step.is_finished()? {
                if Instant::now() >= deadline {
                    return Ok(None);
                }
                thread::yield_now();
            }
        }
        step.arrive()?;
        let sampled = self.backend.sampled(step)?;
        self.pass_time = step.device_time()?;
        self.collected += 1;
        Ok(Some(sampled))
    }

    fn depth(&self) -> usize {
        self.steps.len()
    }

    fn stages(&self) -> usize {
        // The device works on between calls; there is nothing to be cut.
        1
    }

    fn pass_time(&self) -> Duration {
        self.pass_time
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        let _callers = CallersContext::note()?;
        self.backend.read_blocks(&self.cache, blocks, to)
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        let _callers = CallersContext::note()?;
        self.backend.write_blocks(&mut self.cache, blocks, from)
    }
}
