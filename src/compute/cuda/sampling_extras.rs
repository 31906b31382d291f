//! What some samples ask for beyond the numbers of [`Sampling`](crate::batch::Sampling): adjusted tokens, masks, log-probabilities.
//! Blocks to copy are as rare and lie with them.
//!
//! Their size is not known when an engine opens: a penalty may change as many tokens as a sequence has, and a mask is as long as the
//! vocabulary. The memory grows to twice of what is lacking, so that a steady state allocates nothing. Its addresses may change between
//! two passes; nothing that reads it is captured in a graph.

use super::bytes::put;
use super::driver::{Address, Context, Memory, Pinned};
use crate::batch::{Batch, LogitBias, MAX_LOGPROBS};
use base::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of adjustments and masks for which there is room when an engine opens.
const FIRST_BYTES: usize = 64 << 10;
const KNOB: &str = "memory_utilization";

/// How log-probabilities lie in memory: those of the chosen tokens, then the top tokens, then the log-probabilities of these.
pub struct LogprobLayout;

impl LogprobLayout {
    /// Bytes per sample.
    pub const BYTES: usize = 4 + 8 * MAX_LOGPROBS;

    /// Byte ranges of the three arrays for `samples` samples.
    pub fn ranges(samples: usize) -> [Range<usize>; 3] {
        let (one, top) = (4 * samples, 4 * samples * MAX_LOGPROBS);
        [0..one, one..one + top, one + top..one + 2 * top]
    }
}

/// The extras of one batch, on the host and on the device.
pub struct SamplingExtras {
    context: Arc<Context>,
    /// `[adjustments]`, then `[masks]`, then `[copies]`.
    host: Pinned,
    device: Memory,
    /// Where masks begin, in bytes.
    masks: usize,
    /// Where copies begin, in bytes.
    copies: usize,
    /// Of adjusted tokens. `[adjustments]`
    raw: Memory,
    /// Tokens that were adjusted without being listed `[rows]`, and what was there before `[rows]`.
    awaited: Memory,
    rows: usize,
    /// As [`LogprobLayout`] says.
    logprobs: Memory,
}

impl SamplingExtras {
    /// For batches of up to `rows` rows.
    pub fn new(context: &Arc<Context>, rows: usize) -> Result<SamplingExtras> {
        Ok(SamplingExtras {
            context: context.clone(),
            host: Pinned::zeroed(context, FIRST_BYTES, "adjustments and masks in pinned memory", KNOB)?,
            device: Memory::new(context, FIRST_BYTES, "adjustments and masks", KNOB)?,
            masks: 0,
            copies: 0,
            raw: Memory::new(context, raw_bytes(FIRST_BYTES), "adjusted logits", KNOB)?,
            awaited: Memory::new(context, 6 * rows, "adjusted logits", KNOB)?,
            rows,
            logprobs: Memory::new(context, LogprobLayout::BYTES * rows, "log-probabilities", KNOB)?,
        })
    }

    /// Whether [`stage`](Self::stage) will allocate memory for this batch.
    pub fn must_grow(&self, batch: &Batch) -> bool {
        places(batch).1.end > self.host.bytes().len()
    }

    /// Begins the upload. The one before has ended, and all that read it was launched.
    pub fn stage(&mut self, batch: &Batch) -> Result<()> {
        let (masks, copies) = places(batch);
        let bytes = copies.end;
        (self.masks, self.copies) = (masks, copies.start);
        if bytes > self.host.bytes().len() {
            let room = 2 * bytes;
            let host = Pinned::zeroed(&self.context, room, "adjustments and masks in pinned memory", KNOB)?;
            let device = Memory::new(&self.context, room, "adjustments and masks", KNOB)?;
            let raw = Memory::new(&self.context, raw_bytes(room), "adjusted logits", KNOB)?;
            // Freeing waits for the kernels that read what is freed.
            (self.host, self.device, self.raw) = (host, device, raw);
        }
        let to = self.host.bytes_mut();
        put(to, 0, &batch.adjustments);
        put(to, self.masks, &batch.masks);
        put(to, self.copies, &batch.copies);
        if bytes > 0 { self.host.upload(0..bytes, &self.device, 0) } else { Ok(()) }
    }

    /// `[adjustments]`
    pub fn adjustments(&self) -> Address {
        self.device.address()
    }

    /// Words of 32 tokens each.
    pub fn masks(&self) -> Address {
        self.device.address() + self.masks as u64
    }

    /// Blocks to copy, from and to. `[copies, 2]`
    pub fn copies(&self) -> Address {
        self.device.address() + self.copies as u64
    }

    /// Logits before they were adjusted. `[adjustments]`
    pub fn raw(&self) -> Address {
        self.raw.address()
    }

    /// Tokens that were adjusted without being listed. `[rows]`
    pub fn awaited(&self) -> Address {
        self.awaited.address()
    }

    /// Their logits before. `[rows]`
    pub fn awaited_raw(&self) -> Address {
        self.awaited.address() + 4 * self.rows as u64
    }

    /// Log-probabilities of all samples.
    pub fn logprobs(&self) -> &Memory {
        &self.logprobs
    }

    /// Addresses of the three arrays for `samples` samples.
    pub fn logprob_addresses(&self, samples: usize) -> [Address; 3] {
        LogprobLayout::ranges(samples).map(|range| self.logprobs.address() + range.start as u64)
    }
}

/// Where the masks of a batch begin, and where its copies lie, in bytes.
fn places(batch: &Batch) -> (usize, Range<usize>) {
    let masks = size_of_val(&batch.adjustments[..]).next_multiple_of(64);
    let copies = (masks + size_of_val(&batch.masks[..])).next_multiple_of(64);
    (masks, copies..copies + size_of_val(&batch.copies[..]))
}

/// Room for a number of two bytes for each adjustment.
fn raw_bytes(bytes: usize) -> usize {
    bytes / size_of::<LogitBias>() * 2
}
