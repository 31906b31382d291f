//! How does a batch become tokens on one device?
//!
//! A pass is uploaded when it is submitted. A backend whose ops compute in the call runs it stage by stage while the caller
//! collects, so that it can be left at a deadline and continued later. A backend whose ops only launch gets all of it at once,
//! decode as a graph where there is one, and its device works between the calls.
//!
//! Invariant: passes `collected..submitted` are in flight, and pass `n` has slot `n % B::DEPTH` of `passes`.

use super::checkpoint::Checkpoint;
use super::graphs::{self, Capture, Graphs};
use super::options::{EngineOptions, ExpertCounting, PrefixCache};
use super::rank_barrier::Rank;
use super::{Device, KvBudget, Launching, ModelInfo, Runner, StateInfo, Switches, blocks_of, host_experts, memory};
use base::error::Result;
use base::log::{Level, log};
use compute::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use compute::{Backend, KvGroups, KvLayout, Rounding, StateShape, Tensor};
use model::decoder::{self, Decoder, SequenceMemory, Stage, StateRun};
use model::shard::{Sharding, Sums};
use model::spec::DecoderSpec;
use model::weight_summary::WeightPart;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A decoder on one device.
pub struct PassRunner<B: Backend> {
    /// Dropped first: they hold addresses of all that follows.
    pub(super) graphs: Graphs<B>,
    pub(super) backend: B,
    decoder: Decoder<B>,
    memory: SequenceMemory<B>,
    passes: Vec<Pass<B>>,
    /// The batch with the block numbers of layers that lie in parts of others, where the model has such layers.
    scaled: Option<Batch>,
    /// Which numbers of a recurrent state each rank has. `[ranks]`; empty without a state, and for a rank alone.
    state_runs: Vec<Vec<StateRun>>,
    counts_experts: bool,
    submitted: usize,
    collected: usize,
    pass_time: Duration,
    /// Set when the runner is dropped. The fields above change the state of the calling thread, and this one restores it after
    /// them.
    context: Option<B::ContextGuard>,
}

/// A forward pass, and the memory of its batch.
struct Pass<B: Backend> {
    batch: B::DeviceBatch,
    next: Next,
    costs: StageCosts,
    spent: Duration,
}

/// What comes next in a pass.
#[derive(Clone, Copy)]
enum Next {
    Stage(Stage),
    Finish,
    Poll,
}

/// How long the last stage of each kind took in this pass; earlier passes had other batches.
#[derive(Clone, Copy, Default)]
struct StageCosts {
    layer: Duration,
    head: Option<Duration>,
}

impl<B: Backend> PassRunner<B> {
    /// Loads what the rank of `rank` computes of a model. `progress` is called with a fraction from 0 to 1; `Break` cancels.
    ///
    /// `open_backend` opens `device`, once it is known which part of the model it must compute and over which KV cache. All ranks of a
    /// barrier call this at the same time, with equal checkpoints and configurations.
    pub fn open(
        switches: &Switches,
        checkpoint: Checkpoint,
        config: &EngineOptions,
        device: Device,
        rank: &Rank,
        open_backend: impl FnOnce(&DecoderSpec, &Sharding, &KvLayout, &KvGroups) -> Result<B>,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
    ) -> Result<(PassRunner<B>, ModelInfo)> {
        let Checkpoint { model, limits, free, kv_format, mut weights } = checkpoint;
        let spec = &model.spec;
        let sums = match config.rounding {
            Rounding::Fastest if B::DIVIDES_SUMS => Sums::Reduced,
            _ => Sums::Gathered,
        };
        let sums = switches.sums.unwrap_or(sums);
        let mut sharding =
            Sharding::new(spec, rank.index, rank.ranks, sums)?.with_experts(spec, config.expert_division)?;
        let whole_layout = spec.kv_layout(&limits, kv_format);
        let kv_layout = sharding.kv_layout(rank.index, &whole_layout);
        let block_bytes = memory::BlockBytes::new(&sharding, rank.own(), &whole_layout);
        let state_bytes = memory::BlockBytes::of_states(spec, &sharding, rank.own());
        let interval = (config.prefix_cache == PrefixCache::On).then(|| config.state_interval());
        let groups = spec.kv_groups(&limits);
        let longest = blocks_of(limits.model_len, limits.block_size, groups.windowed);
        let needs = memory::Needs { block: block_bytes, state: state_bytes, interval, longest };
        let state = StateShape { numbers: decoder::state_numbers(spec, &sharding), slots: 0 };
        let whole_state =
            StateShape { numbers: decoder::state_numbers(spec, &Sharding::new(spec, 0, 1, sums)?), slots: 0 };
        let runs_of = |rank| decoder::state_runs(spec, &Sharding { rank, ..sharding.clone() });
        let is_divided = whole_state.numbers > 0 && !sharding.is_alone();
        let state_runs = if is_divided { (0..sharding.ranks).map(runs_of).collect() } else { Vec::new() };
        let mut backend = open_backend(spec, &sharding, &kv_layout, &groups)?;
        let host = memory::HostMemory { free, weights: weights.total_bytes(), table_cols: spec.numbers_per_position() };

        let host_experts = host_experts::choose(&backend, config, spec, &mut sharding, &weights, &limits, &needs)?;
        sharding.host_experts_from = switches.host_experts_from.unwrap_or(sharding.host_experts_from);
        let device_weights = host.weights.saturating_sub(host_experts.bytes);
        let limits = match config.max_num_seqs {
            Some(_) => limits,
            // What is left for a share is known only roughly before the weights are there.
            None => {
                let bytes = match (config.kv_budget(), backend.device_memory()?) {
                    (KvBudget::Bytes(bytes), _) => bytes * state_bytes.of_rank / state_bytes.of_all.max(1),
                    (KvBudget::MemoryShare(share), Some(memory)) => {
                        memory::roughly(memory, share, device_weights, rank.ranks)
                    }
                    (KvBudget::Default, Some(memory)) => {
                        memory::roughly(memory, B::DEFAULTS.memory_share, device_weights, rank.ranks)
                    }
                    (KvBudget::MemoryShare(share), None) => {
                        memory::host_bytes(Some(share), &limits, block_bytes, &host, &B::DEFAULTS)
                    }
                    (KvBudget::Default, None) => memory::host_bytes(None, &limits, block_bytes, &host, &B::DEFAULTS),
                };
                let rows = memory::rows_by_default(limits.rows, bytes, state_bytes.of_rank);
                BatchLimits {
                    rows: rank.all_gather(rows as u64)?.into_iter().min().map_or(rows, |rows| rows as usize),
                    ..limits
                }
            }
        };

        // Cheap refusals come before the long part: a cache or a table that does not fit is known before any weight is read.
        let of_passes = limits
            .whole_rows
            .then(|| memory::Room { blocks: memory::blocks_of_passes(&limits, B::DEPTH), checkpoints: 0 });
        let host_room = match backend.device_memory()? {
            None if of_passes.is_some() => of_passes,
            None => Some(memory::host_room(config.kv_budget(), &limits, &needs, &host, &B::DEFAULTS)?),
            Some(_) => {
                memory::check_weights(config.gpu_memory_bytes, device_weights / rank.ranks as u64)?;
                None
            }
        };
        let budgeted = host_room.filter(|_| of_passes.is_none());
        let positions = budgeted.map_or(limits.model_len, |room| limits.model_len.min(room.blocks * limits.block_size));
        memory::check_table(positions, &host)?;

        // Weights that are copied to a device are read by the copy, and each rank brings a share of them into memory. Weights that stay
        // where they are, which the first pass reads, are brought by one rank for all.
        let begun = Instant::now();
        if host_room.is_none() {
            let own = rank.own();
            weights.warm(rank.index - own.start, own.len(), progress)?;
        }
        let warm = Instant::now();
        let mut decoder = Decoder::load(&backend, spec, sharding, &mut weights, &limits, positions)?;
        let mut batches = backend.device_batches(&limits)?;
        let sizes = match config.launching {
            Launching::Graphs if !limits.whole_rows => graphs::sizes(limits.rows),
            _ => Vec::new(),
        };
        let loaded = Instant::now();
        // From here on ranks wait for each other on their devices: none may be missing.
        let weight_bytes = rank.all_gather(weights.bytes())?.into_iter().sum();
        let mut part_bytes = [0u64; 4];
        for part in WeightPart::ALL {
            part_bytes[part as usize] = rank.all_gather(weights.summary().bytes(part))?.into_iter().sum();
        }
        if rank.is_first() {
            log(Level::Info, format_args!("weights: {}", weights.summary().describe()));
        }
        let met = Instant::now();
        let mut graph_bytes = 0;
        let memory::Room { blocks, checkpoints } = match host_room {
            Some(room) => room,
            None => {
                let states = backend.states(&StateShape { slots: state.numbers.min(1), ..state })?;
                let mut provisional = SequenceMemory { cache: backend.kv_cache(&kv_layout, 1)?, states };
                graph_bytes = warm_up(&sizes, &mut backend, &mut decoder, &mut provisional, &mut batches[0], &limits)?;
                drop(provisional);
                let reserved = memory::SPARE_BYTES + sizes.len() as u64 * graph_bytes;
                let memory = backend.device_memory()?.unwrap_or_default();
                let budget = memory::DeviceBudget { kv: config.kv_budget(), bytes: config.gpu_memory_bytes, reserved };
                match of_passes {
                    Some(room) => room,
                    None => memory::device_room(&budget, &limits, &needs, &memory, &B::DEFAULTS)?,
                }
            }
        };
        let blocks =
            rank.all_gather(blocks as u64)?.into_iter().min().unwrap_or(0).min(whole_layout.addressable_blocks())
                as usize;
        let checkpoints = rank.all_gather(checkpoints as u64)?.into_iter().min().map_or(0, |states| states as usize);
        let slots = if state.numbers > 0 { limits.rows + checkpoints } else { 0 };
        let states = backend.states(&StateShape { slots, ..state })?;
        let mut memory = SequenceMemory { cache: backend.kv_cache(&kv_layout, blocks)?, states };
        rank.all_gather(0)?;
        let warmed_up = Instant::now();
        // Behind the largest pass, whose tokens are nobody's, and before graphs, which record the counting. All ranks choose alike.
        let counts_experts = config.expert_counting == ExpertCounting::On && rank.is_first();
        if counts_experts {
            decoder.count_experts(&backend)?;
        }
        // Ranks wait for each other to capture, which a pass does not.
        let at_opening = rank.ranks > 1 || sizes.last().is_some_and(|&largest| backend.records_at_opening(largest));
        let when = if at_opening { Capture::Now } else { Capture::OnDemand };
        let graphs = Graphs::new(&sizes, when, &mut backend, &mut decoder, &mut memory, &mut batches[0], &limits)?;
        if host_room.is_some() && rank.is_first() {
            weights.warm(0, 1, progress)?;
        }
        let own_bytes = backend.device_memory()?.map_or(0, |memory| memory.own) + graphs.awaited() as u64 * graph_bytes;
        let gpu_bytes = rank.all_gather(own_bytes)?.into_iter().max().unwrap_or(own_bytes);
        let ms = |from: Instant, to: Instant| (to - from).as_millis();
        log(
            Level::Debug,
            format_args!(
                "rank {} opened: {} ms reading weights, {} ms loading them, {} ms waiting for other ranks, {} ms in the largest pass, \
                 {} ms capturing graphs",
                rank.index,
                ms(begun, warm),
                ms(warm, loaded),
                ms(loaded, met),
                ms(met, warmed_up),
                ms(warmed_up, Instant::now())
            ),
        );

        let info = ModelInfo::new(&model, &weights, &whole_layout, blocks, limits, device);
        let mut parts = info.parts;
        parts.iter_mut().zip(part_bytes).for_each(|((_, bytes), of_all)| *bytes = of_all);
        let info = ModelInfo {
            parts,
            weight_bytes,
            kv_cache_bytes: blocks as u64 * block_bytes.of_all + slots as u64 * needs.state.of_all,
            states: StateInfo { slots, bytes: whole_state.slot_bytes(), interval: config.state_interval() },
            gpu_bytes,
            host_experts,
            num_ranks: rank.ranks,
            process: rank.process(),
            ..info
        };
        let passes = batches.into_iter().map(Pass::new).collect();
        let scaled = whole_layout.split.map(|_| Batch::within(&limits)).transpose()?;
        let runner = PassRunner {
            graphs,
            backend,
            decoder,
            memory,
            passes,
            scaled,
            state_runs,
            counts_experts,
            submitted: 0,
            collected: 0,
            pass_time: Duration::ZERO,
            context: None,
        };
        Ok((runner, info))
    }

    /// Which part of the model this rank computes.
    pub fn sharding(&self) -> &Sharding {
        self.decoder.sharding()
    }

    /// The KV cache of this rank.
    pub fn kv_layout(&self) -> &KvLayout {
        B::kv_layout(&self.memory.cache)
    }

    /// Which numbers of a recurrent state each rank has. `[ranks]`; empty without a state, and for a rank alone.
    pub fn state_runs(&self) -> &[Vec<StateRun>] {
        &self.state_runs
    }

    /// The recurrent states of this rank.
    pub fn state_shape(&self) -> StateShape {
        B::state_shape(&self.memory.states)
    }

    /// As [`Collectives::abandon`](compute::Collectives::abandon).
    pub fn abandon(&self) {
        self.backend.abandon();
    }

    /// Runs the passes in flight to their ends. [`collect`](Runner::collect) then returns their results without further work.
    ///
    /// # Errors
    ///
    /// As [`collect`](Runner::collect).
    pub fn finish(&mut self) -> Result<()> {
        let _context = self.backend.enter()?;
        let PassRunner { backend, decoder, memory, passes, .. } = self;
        (self.collected..self.submitted)
            .try_for_each(|pass| passes[pass % B::DEPTH].run(backend, decoder, memory, None).map(drop))
    }

    /// The logits of the last pass that sampled, once it was collected. `[samples, vocab]`, where the samples of a pass that was a
    /// graph include its padding.
    pub fn logits(&self) -> &Tensor<B::Storage> {
        self.decoder.logits()
    }
}

/// Runs the largest pass there can be, so that the driver and its libraries load what they need. Returns the bytes of device memory that the graph of
/// the largest of `sizes` takes.
fn warm_up<B: Backend>(
    sizes: &[usize],
    backend: &mut B,
    decoder: &mut Decoder<B>,
    memory: &mut SequenceMemory<B>,
    batch: &mut B::DeviceBatch,
    limits: &BatchLimits,
) -> Result<u64> {
    backend.upload(batch, &graphs::with_states::<B>(graphs::largest_batch(limits)?, memory))?;
    decoder.begin(backend, memory, batch);
    let mut next = Some(decoder.first());
    while let Some(stage) = next {
        decoder.run(backend, memory, batch, stage);
        next = decoder.after(stage, batch);
    }
    backend.finish(batch)?;
    backend.poll(batch, None)?;
    let Some(&largest) = sizes.last() else { return Ok(0) };
    let free_bytes = |backend: &B| backend.device_memory().map(|memory| memory.unwrap_or_default().free);
    let before = free_bytes(backend)?;
    let one = Graphs::new(&[largest], Capture::Now, backend, decoder, memory, batch, limits)?;
    let after = free_bytes(backend)?;
    drop(one);
    Ok(before.saturating_sub(after))
}

impl<B: Backend> Drop for PassRunner<B> {
    fn drop(&mut self) {
        self.context = self.backend.enter().ok();
    }
}

impl<B: Backend> Runner for PassRunner<B> {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        let _context = self.backend.enter()?;
        assert!(self.submitted - self.collected < B::DEPTH, "{} passes are in flight", B::DEPTH);
        let begun = Instant::now();
        let PassRunner { graphs, backend, decoder, memory, passes, scaled, .. } = self;
        let pass = &mut passes[self.submitted % B::DEPTH];
        backend.commit_blocks(&mut memory.cache, batch)?;
        let batch = match scaled {
            Some(scaled) => {
                scaled.clone_from(batch);
                B::kv_layout(&memory.cache).scale_blocks(scaled);
                &*scaled
            }
            None => batch,
        };
        let has_logits = match graphs.serving(batch) {
            Some(size) => size.launch(backend, decoder, memory, &mut pass.batch, batch)?,
            None => {
                backend.upload(&mut pass.batch, batch)?;
                decoder.begin(backend, memory, &pass.batch);
                false
            }
        };
        let next = match has_logits {
            true => Next::Stage(Stage::Sample),
            false if batch.tokens() > 0 => Next::Stage(decoder.first()),
            false => Next::Finish,
        };
        (pass.next, pass.costs, pass.spent) = (next, StageCosts::default(), begun.elapsed());
        if B::DEPTH > 1 {
            pass.run(backend, decoder, memory, None)?;
        }
        self.submitted += 1;
        Ok(())
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        let _context = self.backend.enter()?;
        assert!(self.collected < self.submitted, "a pass is in flight");
        let PassRunner { backend, decoder, memory, passes, .. } = self;
        let pass = &mut passes[self.collected % B::DEPTH];
        if !pass.run(backend, decoder, memory, deadline)? || !backend.poll(&mut pass.batch, deadline)? {
            return Ok(None);
        }
        self.pass_time = backend.device_time(&pass.batch)?.unwrap_or(pass.spent);
        self.collected += 1;
        Ok(Some(backend.results(&pass.batch)))
    }

    fn depth(&self) -> usize {
        B::DEPTH
    }

    fn stages(&self) -> usize {
        // A pass that is launched whole cannot be left between two stages.
        if B::DEPTH > 1 { 1 } else { self.decoder.stages() }
    }

    fn pass_time(&self) -> Duration {
        self.pass_time
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        let _context = self.backend.enter()?;
        self.backend.read_blocks(&self.memory.cache, blocks, to)
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        let _context = self.backend.enter()?;
        self.backend.write_blocks(&mut self.memory.cache, blocks, from)
    }

    fn read_state(&mut self, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        let _context = self.backend.enter()?;
        self.backend.read_state(&self.memory.states, slot, to)
    }

    fn write_state(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        let _context = self.backend.enter()?;
        self.backend.write_state(&mut self.memory.states, slot, from)
    }

    fn expert_counts(&self, layer: usize) -> Result<Option<Vec<u64>>> {
        let _context = self.backend.enter()?;
        self.counts_experts.then(|| self.decoder.expert_counts(&self.backend, layer)).transpose()
    }

    fn release_blocks(&mut self, unused: &[bool]) -> Result<u64> {
        let _context = self.backend.enter()?;
        self.backend.release_blocks(&mut self.memory.cache, unused)
    }

    fn restore_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        let _context = self.backend.enter()?;
        self.backend.restore_blocks(&mut self.memory.cache, blocks)
    }

    fn kv_bytes_mapped(&self) -> u64 {
        B::kv_bytes_mapped(&self.memory.cache)
    }
}

impl<B: Backend> Pass<B> {
    fn new(batch: B::DeviceBatch) -> Pass<B> {
        Pass { batch, next: Next::Finish, costs: StageCosts::default(), spent: Duration::ZERO }
    }

    /// Runs at least one stage, and then those that will probably end before `deadline`. Finishes the pass after the last one;
    /// `false` while stages are left.
    fn run(
        &mut self,
        backend: &mut B,
        decoder: &mut Decoder<B>,
        memory: &mut SequenceMemory<B>,
        deadline: Option<Instant>,
    ) -> Result<bool> {
        let mut begun = Instant::now();
        let mut is_first = true;
        while let Next::Stage(stage) = self.next {
            let overruns = deadline.is_some_and(|deadline| begun + self.costs.of(stage) > deadline);
            if overruns && !is_first {
                return Ok(false);
            }
            decoder.run(backend, memory, &mut self.batch, stage);
            let ended = Instant::now();
            self.costs.note(stage, ended - begun);
            self.spent += ended - begun;
            self.next = decoder.after(stage, &self.batch).map_or(Next::Finish, Next::Stage);
            (begun, is_first) = (ended, false);
        }
        if let Next::Finish = self.next {
            backend.finish(&mut self.batch)?;
            self.next = Next::Poll;
        }
        Ok(true)
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
