//! One device, one pass at a time.

use crate::backend::{Backend, Tensor};
use crate::batch::{Batch, BlockId, Sampled};
use crate::error::Result;
use crate::model::decoder::{Decoder, Stage};
use crate::model::description::Description;
use crate::model::source::Source;
use crate::model::weights::Weights;
use crate::runner::{Device, ModelInfo, Runner, RunnerConfig, memory};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A decoder on one device.
pub struct SingleRunner<B: Backend> {
    backend: B,
    decoder: Decoder<B>,
    cache: B::KvCache,
    step: B::Step,
    pass: Option<Pass>,
    pass_time: Duration,
}

/// A forward pass that was begun.
struct Pass {
    /// What comes next; `None` when all stages are done.
    next: Option<Stage>,
    costs: StageCosts,
    spent: Duration,
}

/// How long the last stage of each kind took in this pass; earlier passes had other batches.
#[derive(Clone, Copy, Default)]
struct StageCosts {
    layer: Duration,
    head: Option<Duration>,
}

impl<B: Backend> SingleRunner<B> {
    /// Loads the model of `source`. `progress` hears a fraction from 0 to 1; `Break` cancels.
    pub fn open(
        source: &Source,
        config: &RunnerConfig,
        backend: B,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
    ) -> Result<(SingleRunner<B>, ModelInfo)> {
        let model = Description::read(source)?;
        let spec = &model.spec;
        let limits = memory::batch_limits(config, spec.max_positions, &memory::CPU)?;
        // What is free is asked before weights are copied, so that a share of it is the same however they come.
        let free = memory::free_host_bytes();
        let mut weights = Weights::open(source, model.names, config.dtype, config.loading, free.unwrap_or(u64::MAX))?;
        let kv_shape = spec.kv_shape(limits.block_size, weights.dtype());
        let memory = memory::HostMemory { free, weights: weights.total_bytes() };
        let blocks = memory::host_kv_blocks(config.kv_budget, &limits, &kv_shape, &memory)?;

        // Cheap refusals come before the long part: a tensor that does not fit is known before any is read.
        let positions = limits.model_len.min(blocks * limits.block_size);
        memory::check_table(positions, spec.attention().head_dim, &memory)?;
        let decoder = Decoder::load(&backend, spec, &mut weights, &limits, positions)?;
        let cache = backend.kv_cache(&kv_shape, blocks)?;
        let step = backend.step(&limits)?;
        weights.warm(progress)?;

        let info = ModelInfo::new(&model, &weights, &kv_shape, blocks, limits, Device::Cpu);
        Ok((SingleRunner { backend, decoder, cache, step, pass: None, pass_time: Duration::ZERO }, info))
    }

    /// The logits of the last pass that sampled, once it was collected. `[samples, vocab]`
    pub fn logits(&self) -> &Tensor<B::Storage> {
        self.decoder.logits()
    }
}

impl<B: Backend> Runner for SingleRunner<B> {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        assert!(self.pass.is_none(), "a pass is in flight");
        let begun = Instant::now();
        self.backend.stage(&mut self.step, batch)?;
        let next = (batch.tokens() > 0).then(|| self.decoder.first());
        self.pass = Some(Pass { next, costs: StageCosts::default(), spent: begun.elapsed() });
        Ok(())
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        let pass = self.pass.as_mut().expect("a pass is in flight");
        let mut begun = Instant::now();
        let mut is_first = true;
        while let Some(stage) = pass.next {
            let overruns = deadline.is_some_and(|deadline| begun + pass.costs.of(stage) > deadline);
            if overruns && !is_first {
                return Ok(None);
            }
            self.decoder.run(&mut self.backend, &mut self.cache, &mut self.step, stage);
            let ended = Instant::now();
            pass.costs.note(stage, ended - begun);
            pass.spent += ended - begun;
            pass.next = self.decoder.after(stage, &self.step);
            (begun, is_first) = (ended, false);
        }
        self.pass_time = pass.spent;
        self.pass = None;
        self.backend.sampled(&self.step).map(Some)
    }

    fn depth(&self) -> usize {
        1
    }

    fn stages(&self) -> usize {
        self.decoder.stages()
    }

    fn pass_time(&self) -> Duration {
        self.pass_time
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.backend.read_blocks(&self.cache, blocks, to)
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        self.backend.write_blocks(&mut self.cache, blocks, from)
    }
}

impl StageCosts {
    /// What `stage` will probably take. A slice of the head is made to weigh as much as a layer.
    fn of(&self, stage: Stage) -> Duration {
        match stage {
            Stage::Layer(_) => self.layer,
            Stage::Head(_) => self.head.unwrap_or(self.layer),
            Stage::Sample => Duration::ZERO,
        }
    }

    fn note(&mut self, stage: Stage, took: Duration) {
        match stage {
            Stage::Layer(_) => self.layer = took,
            Stage::Head(_) => self.head = Some(took),
            Stage::Sample => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_expected_to_take_what_the_last_of_its_kind_took() {
        let ms = Duration::from_millis;
        let mut costs = StageCosts::default();
        assert_eq!(costs.of(Stage::Layer(0)), ms(0), "nothing is known of a pass that has just begun");
        costs.note(Stage::Layer(0), ms(3));
        costs.note(Stage::Layer(1), ms(2));
        assert_eq!(costs.of(Stage::Layer(2)), ms(2));
        assert_eq!(costs.of(Stage::Head(0)), ms(2), "a slice of the head weighs as much as a layer");
        costs.note(Stage::Head(0), ms(1));
        assert_eq!((costs.of(Stage::Head(1)), costs.of(Stage::Layer(3))), (ms(1), ms(2)));
    }
}
