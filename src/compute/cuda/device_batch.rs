//! A batch where the device can read it.
//!
//! All arrays of a batch, and the plan of its attention, lie in one stretch of pinned memory and in one of device memory, so
//! that one copy takes a batch over. Where each array begins depends on the numbers of tokens, rows and samples alone: a graph captured
//! for a number of rows with one of each finds every later batch of that size at the same addresses. Block tables come last, so that the copy can stop
//! where they end, but for the plans of shared keys, which no graph reads. What only some samples ask for lies elsewhere: see [`SamplingExtras`].
//!
//! Two batches may share the device memory: while the device computes one, the host stages the other, whose copy waits on the
//! stream for its turn.

use super::attention::partition::{DecodeLayout, DecodePlan, Geometry, LayerWindow, Plan, PrefillTile};
use super::attention::shared_partition::SharedLayout;
use super::bytes::{numbers, put};
use super::driver::{Address, Context, Event, EventKind, Memory, Pinned};
use super::sampling_extras::{LogprobLayout, SamplingExtras};
use super::storage::{self, Tensor};
use super::upload::{self, Behind};
use crate::batch::{Batch, BatchLimits, NO_STATE, Sampled, Sampling};
use base::error::Result;
use formats::DType;
use std::sync::Arc;
use std::time::Duration;

const KNOB: &str = "max_num_seqs or max_batched_tokens";

/// A batch on the device, and the tokens sampled for it.
pub struct DeviceBatch {
    batch: Batch,
    plan: Plan,
    /// Of the batch staged last.
    layout: Layout,
    window_tables: WindowTables,
    limits: BatchLimits,
    ctas: usize,
    /// Samples of the batch that are its own; those after them only pad it.
    samples: usize,
    host: Pinned,
    device: Arc<Memory>,
    /// Recorded before each upload.
    begun: Event,
    /// Recorded after each upload: the pinned memory may be written again.
    uploaded: Event,
    /// Recorded when the tokens are on the host.
    finished: Event,
    /// Written by the sampler.
    host_tokens: Pinned,
    hidden_states: HiddenStates,
    /// As `LogprobLayout` says.
    host_logprobs: Pinned,
    /// `[rows]` ranks of the argmax and of the argmax with noise, tokens, arrival counts.
    scratch: Arc<Memory>,
    extras: SamplingExtras,
}

/// Final hidden states on their way to the host. Allocated when a batch first asks for them, which most never do.
#[derive(Default)]
struct HiddenStates {
    /// As the device has them. `[pooled_rows, stride]`
    raw: Option<Pinned>,
    dtype: Option<DType>,
    stride: usize,
    cols: usize,
    /// Of the pass that ended last. `[pooled_rows, cols]`
    values: Vec<f32>,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    exchanges: usize,
    own_tokens: usize,
    token_ids: usize,
    positions: usize,
    token_types: usize,
    slots: usize,
    row_starts: usize,
    gathered_tokens: usize,
    sampling: usize,
    /// The plans of decode, one after the other.
    decode: usize,
    decode_plan: DecodeLayout,
    /// The recurrent states of rows and tokens, where the model keeps any.
    state_sources: usize,
    state_slots: usize,
    state_saves: usize,
    /// Those of each kind of layers, one after the other.
    prefill_tiles: usize,
    block_tables: usize,
    /// The plans of shared keys, one after the other, where rows share any.
    shared: usize,
    end: usize,
    /// Bytes from the slots of a block table to those of the next one.
    slots_stride: usize,
}

/// Block tables after the first lie behind the largest batch, each at a place of its own, so that no width of another one moves it.
#[derive(Clone, Copy, Debug)]
struct WindowTables {
    begin: usize,
    /// Bytes from one to the next.
    stride: usize,
    count: usize,
}

impl WindowTables {
    fn new(limits: &BatchLimits, largest: &Layout) -> WindowTables {
        let stride = (4 * limits.rows * limits.table_width()).next_multiple_of(64);
        WindowTables { begin: largest.end, stride, count: limits.window_tables }
    }

    fn end(&self) -> usize {
        self.begin + self.count * self.stride
    }

    /// Where block table `table` begins, one of those after the first.
    fn at(&self, table: usize) -> usize {
        self.begin + (table - 1) * self.stride
    }
}

/// Rows that are added to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// None.
    None,
    /// Greedy rows without a context, up to `rows` in all: attention skips them, and their tokens are dropped.
    To {
        /// Rows of the padded batch.
        rows: usize,
    },
}

impl Layout {
    /// For these numbers of tokens, of rows, of tokens that are sampled or pooled, of plans of decode and prefill tiles, of block tables, of entries
    /// in the first one, and of bytes of plans of shared keys.
    fn new(
        tokens: usize,
        rows: usize,
        asked: usize,
        (plans, decode_plan): (usize, DecodeLayout),
        tiles: usize,
        (tables, table_entries, shared): (usize, usize, usize),
        (has_states, has_types): (bool, bool),
    ) -> Layout {
        let slots_stride = (4 * tokens).next_multiple_of(64);
        let states = |count: usize| if has_states { 4 * count } else { 0 };
        let mut end = 0;
        let mut place = |bytes: usize| {
            let at = end;
            end = (at + bytes).next_multiple_of(64);
            at
        };
        // Two words: exchanges, and the tokens that do not pad.
        let words = place(8);
        Layout {
            exchanges: words,
            own_tokens: words + 4,
            token_ids: place(4 * tokens),
            positions: place(4 * tokens),
            token_types: place(if has_types { 4 * tokens } else { 0 }),
            slots: place(tables * slots_stride),
            row_starts: place(4 * (rows + 1)),
            gathered_tokens: place(4 * asked),
            sampling: place(size_of::<Sampling>() * asked),
            decode: place(plans * decode_plan.end),
            decode_plan,
            state_sources: place(states(rows)),
            state_slots: place(states(rows)),
            state_saves: place(states(tokens)),
            prefill_tiles: place(size_of::<PrefillTile>() * tiles),
            block_tables: place(4 * table_entries),
            shared: place(shared),
            end: place(0),
            slots_stride,
        }
    }

    /// For the largest batch.
    fn largest(limits: &BatchLimits, plan: &Plan, ctas: usize) -> Layout {
        let BatchLimits { tokens, rows, .. } = *limits;
        let (asked, tiles) =
            (limits.samples() + limits.pooled_rows(), plan.tiles.len() * Plan::tiles_max(tokens, rows));
        let plans = plan.decode.len();
        let shared = plans * SharedLayout::largest(rows).end;
        let plans = (plans, DecodeLayout::new(rows, ctas));
        let tables = (1 + limits.window_tables, rows * limits.table_width(), shared);
        Layout::new(tokens, rows, asked, plans, tiles, tables, (true, true))
    }
}

/// Where the device finds what an op reads of a batch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // named as in `Batch` and `Plan`
pub struct Addresses {
    pub exchanges: Address,
    pub token_ids: Address,
    pub positions: Address,
    pub token_types: Address,
    pub slots: Address,
    pub row_starts: Address,
    pub gathered_tokens: Address,
    pub sampling: Address,
    pub state_sources: Address,
    pub state_slots: Address,
    pub state_saves: Address,
    pub block_tables: Address,
    pub tokens: Address,
    pub host_tokens: Address,
    pub argmax: Address,
    pub gumbel_argmax: Address,
    pub arrived: Address,
}

/// The tiles of prefill for a kind of layers.
#[derive(Clone, Copy, Debug)]
pub struct PlacedTiles {
    /// `[len]` of [`PrefillTile`]
    pub at: Address,
    pub len: usize,
}

/// A plan of decode, and where the device finds its arrays.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // named as in `DecodeLayout`
pub struct PlacedDecodePlan<'a> {
    pub plan: &'a DecodePlan,
    pub counts: Address,
    pub rows: Address,
    pub ctas: Address,
    pub shared_parts: Address,
    pub shared_units: Address,
    pub shared_rows: Address,
}

impl DeviceBatch {
    /// Memory for a batch of at most `limits`, planned for such layers and at most `ctas` CTAs.
    pub fn new(
        context: &Arc<Context>,
        limits: &BatchLimits,
        layers: &[LayerWindow],
        ctas: usize,
    ) -> Result<DeviceBatch> {
        let plan = DeviceBatch::plan_for(limits, layers, ctas)?;
        let bytes = WindowTables::new(limits, &Layout::largest(limits, &plan, ctas)).end();
        let device = Memory::new(context, bytes, "a batch on the device", KNOB)?;
        let scratch = Memory::zeroed(context, 32 * limits.samples(), "sampling scratch", KNOB)?;
        DeviceBatch::sharing(context, limits, plan, ctas, Arc::new(device), Arc::new(scratch))
    }

    /// A second batch over the device memory of this one.
    pub fn twin(&self, context: &Arc<Context>) -> Result<DeviceBatch> {
        let plan = DeviceBatch::plan_for(&self.limits, &self.plan.layers(), self.ctas)?;
        DeviceBatch::sharing(context, &self.limits, plan, self.ctas, self.device.clone(), self.scratch.clone())
    }

    fn plan_for(limits: &BatchLimits, layers: &[LayerWindow], ctas: usize) -> Result<Plan> {
        Plan::new(layers, limits.rows, ctas, Plan::tiles_max(limits.tokens, limits.rows))
    }

    fn sharing(
        context: &Arc<Context>,
        limits: &BatchLimits,
        plan: Plan,
        ctas: usize,
        device: Arc<Memory>,
        scratch: Arc<Memory>,
    ) -> Result<DeviceBatch> {
        let layout = Layout::largest(limits, &plan, ctas);
        let window_tables = WindowTables::new(limits, &layout);
        Ok(DeviceBatch {
            batch: Batch::within(limits)?,
            plan,
            layout,
            window_tables,
            limits: *limits,
            ctas,
            samples: 0,
            host: Pinned::zeroed(context, window_tables.end(), "a batch in pinned memory", KNOB)?,
            device,
            begun: Event::new(context, EventKind::Timing)?,
            uploaded: Event::new(context, EventKind::Order)?,
            finished: Event::new(context, EventKind::Timing)?,
            host_tokens: Pinned::zeroed(context, 4 * limits.samples(), "sampled tokens in pinned memory", KNOB)?,
            hidden_states: HiddenStates::default(),
            host_logprobs: Pinned::zeroed(
                context,
                LogprobLayout::BYTES * limits.samples(),
                "log-probabilities in pinned memory",
                KNOB,
            )?,
            scratch,
            extras: SamplingExtras::new(context, limits.samples())?,
        })
    }

    /// The batch as the host sees it.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Queries of rows that bring several tokens, for a kind of layers.
    pub fn prefill_tiles(&self, kind: usize) -> PlacedTiles {
        let before: usize = self.plan.tiles[..kind].iter().map(Vec::len).sum();
        let offset = self.layout.prefill_tiles + before * size_of::<PrefillTile>();
        PlacedTiles { at: self.device.address() + offset as u64, len: self.plan.tiles[kind].len() }
    }

    /// The plan of decode for layers of a kind with this window.
    ///
    /// # Panics
    ///
    /// If the step was made for other windows.
    pub fn decode_plan(&self, kind: usize, window: Option<usize>) -> PlacedDecodePlan<'_> {
        let layers = LayerWindow { kind, window };
        let found = self.plan.decode.iter().enumerate().find(|(_, plan)| plan.layers == layers);
        let Some((index, plan)) = found else {
            let known = self.plan.layers();
            panic!("a layer has a {layers:?}, but Cuda::set_layer_windows was told of {known:?}");
        };
        let within = &self.layout.decode_plan;
        let begin = self.device.address() + (self.layout.decode + index * within.end) as u64;
        let place = |offset: usize| begin + offset as u64;
        let before: usize = self.plan.decode[..index].iter().map(|plan| plan.shared.layout().end).sum();
        let (shared, shared_within) =
            (self.device.address() + (self.layout.shared + before) as u64, plan.shared.layout());
        PlacedDecodePlan {
            plan,
            counts: place(within.counts),
            rows: place(within.rows),
            ctas: place(within.ctas),
            shared_parts: shared + shared_within.parts as u64,
            shared_units: shared + shared_within.units as u64,
            shared_rows: shared + shared_within.rows as u64,
        }
    }

    /// Whether [`stage`](Self::stage) will allocate memory for this batch.
    pub fn must_grow(&self, batch: &Batch) -> bool {
        self.extras.must_grow(batch)
    }

    /// Whether [`keep_hidden_states`](Self::keep_hidden_states) allocates no memory.
    pub fn has_room_for_hidden_states(&self) -> bool {
        self.batch.pooled_rows() == 0 || self.hidden_states.raw.is_some()
    }

    /// Copies and plans a batch, and begins its upload by `upload`. Ranks have made `exchanges` exchanges before it. Whether it was padded as
    /// asked: not where rows share keys, which no recorded pass knows.
    pub fn stage(
        &mut self,
        upload: &upload::Kernels,
        batch: &Batch,
        padding: Padding,
        geometry: impl Fn(usize) -> Geometry,
        exchanges: u32,
    ) -> Result<bool> {
        self.uploaded.wait()?;
        self.batch.clone_from(batch);
        self.samples = batch.samples();
        let own_tokens = batch.tokens() as u32;
        // Rows that pad take no part in it.
        self.plan.make(batch, geometry);
        let is_padded = !self.plan.shares_keys();
        if let (Padding::To { rows }, true) = (padding, is_padded) {
            self.pad(rows);
        }
        let batch = &self.batch;
        let tiles = self.plan.tiles.iter().map(Vec::len).sum();
        let asked = batch.samples() + batch.pooled_tokens.len() + 3 * batch.pooled_ranges.len();
        let table_entries = batch.block_tables.len();
        let plans = (self.plan.decode.len(), DecodeLayout::new(batch.rows(), self.ctas));
        let shared = self.plan.decode.iter().map(|plan| plan.shared.layout().end).sum();
        self.layout = Layout::new(
            batch.tokens(),
            batch.rows(),
            asked,
            plans,
            tiles,
            (1 + batch.window_tables.len(), table_entries, shared),
            (!batch.state_slots.is_empty(), !batch.token_types.is_empty()),
        );
        let (to, at) = (self.host.bytes_mut(), &self.layout);
        put(to, at.exchanges, &[exchanges]);
        put(to, at.own_tokens, &[own_tokens]);
        put(to, at.token_ids, &batch.token_ids);
        put(to, at.positions, &batch.positions);
        put(to, at.token_types, &batch.token_types);
        put(to, at.slots, &batch.slots);
        for (index, table) in batch.window_tables.iter().enumerate() {
            put(to, at.slots + (index + 1) * at.slots_stride, &table.slots);
            put(to, self.window_tables.at(index + 1), &table.block_tables);
        }
        put(to, at.row_starts, &batch.row_starts);
        let pooled_tokens = put(to, at.gathered_tokens, &batch.sampled_tokens);
        let pooled_ranges = put(to, pooled_tokens, &batch.pooled_tokens);
        put(to, pooled_ranges, &batch.pooled_ranges);
        put(to, at.sampling, &batch.sampling);
        for (index, plan) in self.plan.decode.iter().enumerate() {
            let (begin, within) = (at.decode + index * at.decode_plan.end, &at.decode_plan);
            let counts = [plan.ctas.len(), plan.rows.len() - 1, batch.table_width];
            put(to, begin + within.counts, &counts.map(|count| count as u32));
            put(to, begin + within.rows, &plan.rows);
            put(to, begin + within.ctas, &plan.ctas);
        }
        put(to, at.state_sources, &batch.state_sources);
        put(to, at.state_slots, &batch.state_slots);
        put(to, at.state_saves, &batch.state_saves);
        let mut tiles_at = at.prefill_tiles;
        for tiles in &self.plan.tiles {
            tiles_at = put(to, tiles_at, tiles);
        }
        put(to, at.block_tables, &batch.block_tables);
        let mut shared = at.shared;
        for plan in self.plan.decode.iter().map(|plan| &plan.shared) {
            let within = plan.layout();
            put(to, shared + within.parts, &plan.parts);
            put(to, shared + within.units, &plan.units);
            put(to, shared + within.rows, &plan.rows);
            shared += within.end;
        }
        self.begun.record()?;
        let behind = Behind {
            at: self.window_tables.begin,
            stride: self.window_tables.stride,
            bytes: (4 * table_entries).next_multiple_of(16),
            count: batch.window_tables.len(),
        };
        upload.run(&self.host, &self.device, at.end, &behind)?;
        self.extras.stage(batch)?;
        self.uploaded.record()?;
        Ok(is_padded)
    }

    fn pad(&mut self, rows: usize) {
        let batch = &mut self.batch;
        if !batch.state_slots.is_empty() {
            let tokens = batch.tokens() + rows.saturating_sub(batch.rows());
            batch.state_sources.resize(rows.max(batch.rows()), NO_STATE);
            batch.state_slots.resize(rows.max(batch.rows()), NO_STATE);
            batch.state_saves.resize(tokens, NO_STATE);
        }
        while batch.rows() < rows {
            batch.sampled_tokens.push(batch.tokens() as u32);
            batch.sampling.push(Sampling::GREEDY);
            batch.token_ids.push(0);
            batch.positions.push(0);
            batch.slots.push(u32::MAX);
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push(0);
            batch.block_tables.resize(batch.rows() * batch.table_width, 0);
        }
        let (tokens, entries) = (batch.tokens(), batch.block_tables.len());
        for table in &mut batch.window_tables {
            table.slots.resize(tokens, u32::MAX);
            table.block_tables.resize(entries, 0);
        }
    }

    /// Samples of the batch that are its own; rows that only pad it have none.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// LogitBiases, masks, and what is kept for log-probabilities.
    pub fn extras(&self) -> &SamplingExtras {
        &self.extras
    }

    /// Begins the download of what the batch asked for besides tokens, and marks the end of the pass.
    pub fn finish(&mut self) -> Result<()> {
        if self.batch.wants_logprobs() {
            let bytes = LogprobLayout::BYTES * self.samples;
            self.host_logprobs.download(self.extras.logprobs(), 0, bytes)?;
        }
        self.finished.record()
    }

    /// Begins a copy of the number of tokens that do not pad the batch to `at` of pinned memory, for a host function that is launched behind it.
    pub fn download_tokens(&self, to: &Pinned, at: usize) -> Result<()> {
        to.download_for_host(at, &self.device, self.layout.own_tokens, 4)
    }

    /// Begins to bring the final hidden states to the host that the batch asks for: the rows of `gathered` after its samples.
    pub fn keep_hidden_states(&mut self, context: &Arc<Context>, gathered: &Tensor, dtype: DType) -> Result<()> {
        let (stride, hidden) = (gathered.storage.stride(), &mut self.hidden_states);
        let raw = match hidden.raw.take() {
            Some(raw) => raw,
            None => {
                let bytes = self.limits.pooled_rows() * stride * dtype.bytes();
                Pinned::zeroed(context, bytes, "hidden states in pinned memory", KNOB)?
            }
        };
        (hidden.dtype, hidden.stride, hidden.cols) = (Some(dtype), stride, gathered.cols());
        gathered.storage.download(self.batch.samples()..gathered.rows(), dtype, hidden.raw.insert(raw))
    }

    /// Waits for the end of the pass, and makes its hidden states readable.
    pub fn arrive(&mut self) -> Result<()> {
        self.finished.wait()?;
        let HiddenStates { raw, dtype, stride, cols, values } = &mut self.hidden_states;
        values.clear();
        if let (Some(raw), Some(dtype)) = (raw, dtype)
            && self.batch.pooled_rows() > 0
        {
            let bytes = self.batch.pooled_rows() * *stride * dtype.bytes();
            storage::widen(&raw.bytes()[..bytes], *stride, *cols, *dtype, values);
        }
        Ok(())
    }

    /// Whether the pass has ended.
    pub fn is_finished(&self) -> Result<bool> {
        self.finished.is_reached()
    }

    /// What was asked for, once it has [arrived](Self::arrive).
    pub fn sampled(&self) -> Sampled<'_> {
        let asking = if self.batch.wants_logprobs() { self.samples } else { 0 };
        let [logprobs, top_tokens, top_logprobs] =
            LogprobLayout::ranges(asking).map(|at| &self.host_logprobs.bytes()[at]);
        Sampled {
            tokens: numbers(&self.host_tokens.bytes()[..4 * self.samples]),
            logprobs: numbers(logprobs),
            top_tokens: numbers(top_tokens),
            top_logprobs: numbers(top_logprobs),
            hidden_states: &self.hidden_states.values,
        }
    }

    /// How long the device worked on the pass, which has ended.
    pub fn device_time(&self) -> Result<Duration> {
        let milliseconds = self.begun.milliseconds_to(&self.finished)?;
        Ok(Duration::from_secs_f32(milliseconds.max(0.0) / 1e3))
    }

    /// Where the device finds the arrays, those of the first block table among them.
    pub fn addresses(&self) -> Addresses {
        self.addresses_in(0)
    }

    /// The same with the slots and the block table of layers of `table`.
    pub fn addresses_in(&self, table: usize) -> Addresses {
        let (device, layout) = (self.device.address(), &self.layout);
        let place = |offset: usize| device + offset as u64;
        let (scratch, samples) = (self.scratch.address(), self.limits.samples() as u64);
        Addresses {
            exchanges: place(layout.exchanges),
            token_ids: place(layout.token_ids),
            positions: place(layout.positions),
            token_types: place(layout.token_types),
            slots: place(layout.slots + table * layout.slots_stride),
            row_starts: place(layout.row_starts),
            gathered_tokens: place(layout.gathered_tokens),
            sampling: place(layout.sampling),
            state_sources: place(layout.state_sources),
            state_slots: place(layout.state_slots),
            state_saves: place(layout.state_saves),
            block_tables: place(if table == 0 { layout.block_tables } else { self.window_tables.at(table) }),
            argmax: scratch,
            gumbel_argmax: scratch + 8 * samples,
            tokens: scratch + 16 * samples,
            host_tokens: self.host_tokens.address(),
            arrived: scratch + 20 * samples,
        }
    }
}
