//! A batch where the device can read it.
//!
//! All arrays of a batch, and the plan of its attention, lie in one stretch of pinned memory and in one of device memory, so
//! that one copy takes a batch over. Where each array begins depends on the numbers of tokens, rows and samples alone: a graph captured
//! for so many rows with one of each finds every later batch of as many at the same addresses. Block tables come last, so that the copy can stop
//! where they end. What only some samples wish for lies elsewhere: see [`Wishes`].
//!
//! Two steps may share the device memory: while the device computes one, the host stages the other, whose copy waits on the
//! stream for its turn.

use super::Tensor;
use super::driver::{Address, Context, Event, EventKind, Memory, Pinned};
use super::plan::{DecodeCta, DecodeLayout, DecodePlan, DecodeRow, Geometry, Plan, PrefillTile};
use super::storage;
use super::wishes::Wishes;
use crate::backend::DType;
use crate::batch::{Adjustment, Batch, BatchLimits, BlockCopy, RANKED_MAX, Sampled, Sampling, TokenId};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const KNOB: &str = "max_num_seqs or max_batched_tokens";

/// A batch on the device, and the tokens sampled for it.
pub struct Step {
    batch: Batch,
    plan: Plan,
    /// Of the batch staged last.
    layout: Layout,
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
    host_tokens: Pinned,
    hidden: Hidden,
    /// As `Answers` says.
    host_logprobs: Pinned,
    /// `[rows]` ranks of the likeliest and noisiest tokens, tokens, arrival counts.
    scratch: Arc<Memory>,
    wishes: Wishes,
}

/// Final hidden states on their way to the host, for those who ask: most never do, and have no memory for it.
#[derive(Default)]
struct Hidden {
    /// As the device has them. `[hiddens, stride]`
    raw: Option<Pinned>,
    dtype: Option<DType>,
    stride: usize,
    cols: usize,
    /// Of the step that came to its end. `[hiddens, cols]`
    values: Vec<f32>,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    token_ids: usize,
    positions: usize,
    slots: usize,
    row_starts: usize,
    gathered_tokens: usize,
    sampling: usize,
    /// The plans of decode, one after the other.
    decode: usize,
    decode_plan: DecodeLayout,
    prefill_tiles: usize,
    block_tables: usize,
    end: usize,
}

/// Rows that are added to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// None.
    None,
    /// Greedy rows without a context, until there are so many in all: attention passes them over, and their tokens are dropped.
    To {
        /// Rows of the padded batch.
        rows: usize,
    },
}

impl Layout {
    /// For so many tokens, rows, tokens of which something is asked, plans of decode and prefill tiles, and block tables with so many
    /// entries.
    fn new(
        tokens: usize,
        rows: usize,
        asked: usize,
        (plans, decode_plan): (usize, DecodeLayout),
        tiles: usize,
        table_entries: usize,
    ) -> Layout {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let at = end;
            end = (at + bytes).next_multiple_of(64);
            at
        };
        Layout {
            token_ids: place(4 * tokens),
            positions: place(4 * tokens),
            slots: place(4 * tokens),
            row_starts: place(4 * (rows + 1)),
            gathered_tokens: place(4 * asked),
            sampling: place(size_of::<Sampling>() * asked),
            decode: place(plans * decode_plan.end),
            decode_plan,
            prefill_tiles: place(size_of::<PrefillTile>() * tiles),
            block_tables: place(4 * table_entries),
            end: place(0),
        }
    }

    /// For the largest batch.
    fn largest(limits: &BatchLimits, plans: usize, ctas: usize) -> Layout {
        let BatchLimits { tokens, rows, .. } = *limits;
        let (asked, tiles) = (rows + limits.hiddens(), Plan::tiles_max(tokens, rows));
        let plans = (plans, DecodeLayout::new(rows, ctas));
        Layout::new(tokens, rows, asked, plans, tiles, rows * limits.table_width())
    }
}

/// Where the device finds what an op reads of a step.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // named as in `Batch` and `Plan`
pub struct Addresses {
    pub token_ids: Address,
    pub positions: Address,
    pub slots: Address,
    pub row_starts: Address,
    pub gathered_tokens: Address,
    pub sampling: Address,
    pub prefill_tiles: Address,
    pub block_tables: Address,
    pub tokens: Address,
    pub likeliest: Address,
    pub noisiest: Address,
    pub arrived: Address,
}

/// A plan of decode, and where the device finds its arrays.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // named as in `DecodeLayout`
pub struct PlacedDecodePlan<'a> {
    pub plan: &'a DecodePlan,
    pub counts: Address,
    pub rows: Address,
    pub ctas: Address,
}

/// Types without padding or pointers, whose bytes are the numbers a kernel reads.
///
/// # Safety
///
/// Every byte of a value is initialized.
pub(super) unsafe trait Bytes: Copy {}
// SAFETY: one number.
unsafe impl Bytes for u32 {}
// SAFETY: numbers of four bytes, without padding.
unsafe impl Bytes for DecodeRow {}
// SAFETY: as above.
unsafe impl Bytes for DecodeCta {}
// SAFETY: as above.
unsafe impl Bytes for PrefillTile {}
// SAFETY: numbers of four and eight bytes, whose sizes add up to that of the whole.
unsafe impl Bytes for Sampling {}
const _: () = assert!(size_of::<Sampling>() == 4 * 14 + 8 * 2);
// SAFETY: three numbers of four bytes.
unsafe impl Bytes for Adjustment {}
const _: () = assert!(size_of::<Adjustment>() == 12);
// SAFETY: two numbers of four bytes.
unsafe impl Bytes for BlockCopy {}
const _: () = assert!(size_of::<BlockCopy>() == 8);

/// Writes `values` at byte `at` and returns where they end.
pub(super) fn put<T: Bytes>(to: &mut [u8], at: usize, values: &[T]) -> usize {
    let bytes = size_of_val(values);
    // SAFETY: `values` are so many initialized bytes by `Bytes`.
    let from = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) };
    to[at..at + bytes].copy_from_slice(from);
    at + bytes
}

/// Bytes as the numbers of four bytes that they are.
fn numbers<T: Number>(bytes: &[u8]) -> &[T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && size_of::<T>() == 4);
    // SAFETY: aligned by the line above, and any four bytes are such a number.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 4) }
}

/// A number of four bytes, which may be any.
trait Number {}
impl Number for TokenId {}
impl Number for f32 {}

/// How log-probabilities lie in memory: of the chosen tokens, then the likeliest tokens, then theirs.
pub(super) struct Answers;

impl Answers {
    /// Of one sample.
    pub(super) const BYTES: usize = 4 + 8 * RANKED_MAX;

    /// Ranges of the three arrays for so many samples, in bytes.
    pub(super) fn of(samples: usize) -> [Range<usize>; 3] {
        let (one, ranked) = (4 * samples, 4 * samples * RANKED_MAX);
        [0..one, one..one + ranked, one + ranked..one + 2 * ranked]
    }
}

impl Step {
    /// Memory for a batch of at most `limits`, planned for layers with these windows and at most `ctas` CTAs.
    pub fn new(context: &Arc<Context>, limits: &BatchLimits, windows: &[Option<usize>], ctas: usize) -> Result<Step> {
        let bytes = Layout::largest(limits, windows.len(), ctas).end;
        let device = Memory::new(context, bytes, "a batch on the device", KNOB)?;
        let scratch = Memory::zeroed(context, 32 * limits.rows, "sampling scratch", KNOB)?;
        Step::sharing(
            context,
            limits,
            Step::plan_for(limits, windows, ctas)?,
            ctas,
            Arc::new(device),
            Arc::new(scratch),
        )
    }

    /// A second step over the device memory of this one.
    pub fn twin(&self, context: &Arc<Context>) -> Result<Step> {
        let plan = Step::plan_for(&self.limits, &self.plan.windows(), self.ctas)?;
        Step::sharing(context, &self.limits, plan, self.ctas, self.device.clone(), self.scratch.clone())
    }

    fn plan_for(limits: &BatchLimits, windows: &[Option<usize>], ctas: usize) -> Result<Plan> {
        Plan::new(windows, limits.rows, ctas, Plan::tiles_max(limits.tokens, limits.rows))
    }

    fn sharing(
        context: &Arc<Context>,
        limits: &BatchLimits,
        plan: Plan,
        ctas: usize,
        device: Arc<Memory>,
        scratch: Arc<Memory>,
    ) -> Result<Step> {
        let layout = Layout::largest(limits, plan.decode.len(), ctas);
        Ok(Step {
            batch: Batch::within(limits)?,
            plan,
            layout,
            limits: *limits,
            ctas,
            samples: 0,
            host: Pinned::zeroed(context, layout.end, "a batch in pinned memory", KNOB)?,
            device,
            begun: Event::new(context, EventKind::Timing)?,
            uploaded: Event::new(context, EventKind::Order)?,
            finished: Event::new(context, EventKind::Timing)?,
            host_tokens: Pinned::zeroed(context, 4 * limits.rows, "sampled tokens in pinned memory", KNOB)?,
            hidden: Hidden::default(),
            host_logprobs: Pinned::zeroed(
                context,
                Answers::BYTES * limits.rows,
                "log-probabilities in pinned memory",
                KNOB,
            )?,
            scratch,
            wishes: Wishes::new(context, limits.rows)?,
        })
    }

    /// The batch as the host sees it.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Queries of rows that bring several tokens.
    pub fn prefill_tiles(&self) -> &[PrefillTile] {
        &self.plan.tiles
    }

    /// The plan of decode for layers with this window.
    ///
    /// # Panics
    ///
    /// If the step was made for other windows.
    pub fn decode_plan(&self, window: Option<usize>) -> PlacedDecodePlan<'_> {
        let found = self.plan.decode.iter().enumerate().find(|(_, plan)| plan.window == window);
        let Some((index, plan)) = found else {
            let windows = self.plan.windows();
            panic!("a layer has a window of {window:?}, but Cuda::set_windows was told of {windows:?}");
        };
        let within = &self.layout.decode_plan;
        let begin = self.device.address() + (self.layout.decode + index * within.end) as u64;
        let place = |offset: usize| begin + offset as u64;
        PlacedDecodePlan { plan, counts: place(within.counts), rows: place(within.rows), ctas: place(within.ctas) }
    }

    /// Copies and plans a batch, and begins its upload.
    pub fn stage(&mut self, batch: &Batch, padding: Padding, geometry: &Geometry) -> Result<()> {
        self.uploaded.wait()?;
        self.batch.clone_from(batch);
        self.samples = batch.samples();
        if let Padding::To { rows } = padding {
            self.pad(rows);
        }
        let batch = &self.batch;
        self.plan.make(batch, geometry);
        let tiles = self.plan.tiles.len();
        let asked = batch.samples() + batch.hiddens();
        let table_entries = batch.block_tables.len();
        let plans = (self.plan.decode.len(), DecodeLayout::new(batch.rows(), self.ctas));
        self.layout = Layout::new(batch.tokens(), batch.rows(), asked, plans, tiles, table_entries);
        let (to, at) = (self.host.bytes_mut(), &self.layout);
        put(to, at.token_ids, &batch.token_ids);
        put(to, at.positions, &batch.positions);
        put(to, at.slots, &batch.slots);
        put(to, at.row_starts, &batch.row_starts);
        let hidden_tokens = put(to, at.gathered_tokens, &batch.sampled_tokens);
        put(to, hidden_tokens, &batch.hidden_tokens);
        put(to, at.sampling, &batch.sampling);
        for (index, plan) in self.plan.decode.iter().enumerate() {
            let (begin, within) = (at.decode + index * at.decode_plan.end, &at.decode_plan);
            let counts = [plan.ctas.len(), plan.rows.len() - 1, batch.table_width];
            put(to, begin + within.counts, &counts.map(|count| count as u32));
            put(to, begin + within.rows, &plan.rows);
            put(to, begin + within.ctas, &plan.ctas);
        }
        put(to, at.prefill_tiles, &self.plan.tiles);
        put(to, at.block_tables, &batch.block_tables);
        self.begun.record()?;
        self.host.upload(0..at.end, &self.device, 0)?;
        self.wishes.stage(batch)?;
        self.uploaded.record()
    }

    fn pad(&mut self, rows: usize) {
        let batch = &mut self.batch;
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
    }

    /// Samples of the batch that are its own; rows that only pad it have none.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Adjustments, masks, and what is kept for log-probabilities.
    pub fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// Marks the end of the step.
    pub fn finish(&mut self) -> Result<()> {
        self.finished.record()
    }

    /// Brings the tokens to the host, and marks the end of the step.
    pub fn bring_tokens(&mut self) -> Result<()> {
        let offset = (self.addresses().tokens - self.scratch.address()) as usize;
        self.host_tokens.download(&self.scratch, offset, 4 * self.samples)?;
        self.finish()
    }

    /// Brings the log-probabilities to the host, and marks the end of the step anew.
    pub fn bring_logprobs(&mut self) -> Result<()> {
        let bytes = Answers::BYTES * self.samples;
        self.host_logprobs.download(self.wishes.answers(), 0, bytes)?;
        self.finish()
    }

    /// Begins to bring the final hidden states to the host that the batch asks for: the rows of `gathered` after its samples.
    pub fn keep_hidden(&mut self, context: &Arc<Context>, gathered: &Tensor, dtype: DType) -> Result<()> {
        let (stride, hidden) = (gathered.storage.stride(), &mut self.hidden);
        let raw = match hidden.raw.take() {
            Some(raw) => raw,
            None => {
                let bytes = self.limits.hiddens() * stride * dtype.bytes();
                Pinned::zeroed(context, bytes, "hidden states in pinned memory", KNOB)?
            }
        };
        (hidden.dtype, hidden.stride, hidden.cols) = (Some(dtype), stride, gathered.cols());
        gathered.storage.download(self.batch.samples()..gathered.rows(), dtype, hidden.raw.insert(raw))
    }

    /// Waits for the end of the step, and makes its hidden states readable.
    pub fn arrive(&mut self) -> Result<()> {
        self.finished.wait()?;
        let Hidden { raw, dtype, stride, cols, values } = &mut self.hidden;
        values.clear();
        if let (Some(raw), Some(dtype)) = (raw, dtype)
            && self.batch.hiddens() > 0
        {
            let bytes = self.batch.hiddens() * *stride * dtype.bytes();
            storage::widen(&raw.bytes()[..bytes], *stride, *cols, *dtype, values);
        }
        Ok(())
    }

    /// Whether the step has come to its end.
    pub fn is_finished(&self) -> Result<bool> {
        self.finished.is_reached()
    }

    /// What was asked for, once the step has come to its end; hidden states once it has [arrived](Self::arrive).
    pub fn sampled(&self) -> Result<Sampled<'_>> {
        self.finished.wait()?;
        let ranked = if self.batch.wants_logprobs() { self.samples } else { 0 };
        let [logprobs, top_tokens, top_logprobs] = Answers::of(ranked).map(|at| &self.host_logprobs.bytes()[at]);
        Ok(Sampled {
            tokens: numbers(&self.host_tokens.bytes()[..4 * self.samples]),
            logprobs: numbers(logprobs),
            top_tokens: numbers(top_tokens),
            top_logprobs: numbers(top_logprobs),
            hidden: &self.hidden.values,
        })
    }

    /// How long the device worked on the step, which has come to its end.
    pub fn device_time(&self) -> Result<Duration> {
        let milliseconds = self.begun.milliseconds_to(&self.finished)?;
        Ok(Duration::from_secs_f32(milliseconds.max(0.0) / 1e3))
    }

    /// Where the device finds the arrays.
    pub fn addresses(&self) -> Addresses {
        let (device, layout) = (self.device.address(), &self.layout);
        let place = |offset: usize| device + offset as u64;
        let (scratch, rows) = (self.scratch.address(), self.limits.rows as u64);
        Addresses {
            token_ids: place(layout.token_ids),
            positions: place(layout.positions),
            slots: place(layout.slots),
            row_starts: place(layout.row_starts),
            gathered_tokens: place(layout.gathered_tokens),
            sampling: place(layout.sampling),
            prefill_tiles: place(layout.prefill_tiles),
            block_tables: place(layout.block_tables),
            likeliest: scratch,
            noisiest: scratch + 8 * rows,
            tokens: scratch + 16 * rows,
            arrived: scratch + 20 * rows,
        }
    }
}
