//! What have other threads asked of the stepping thread? Arrivals, cancels and releases, and which requests are alive.
//!
//! One lock guards all of it. Under that lock nothing is created or copied whose size a caller chooses: requests arrive
//! complete, and leave by moving. A step takes out a bounded number of each kind, so a burst costs each step the same.
//!
//! Invariant: a request is alive from [`Inbox::add`] until the last of its completions or beams has ended. From then on it holds
//! no block, and all its outputs have been counted.

use crate::api::request::{Arrival, Request};
use crate::api::sampling_params::Pinning;
use crate::results::output::Stats;
use crate::schedule::pins::PinBudget;
use crate::schedule::sequence::SequenceKey;
use base::error::{Error, Result};
use base::limits;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Entries of each kind that one pass handles, which takes some hundred microseconds: arrivals, cancels, releases, expiries, and
/// completions that end without having run.
const INTAKE: usize = 128;

/// A request counts as one entry, and as one more per this number of bytes.
const ENTRY_BYTES: usize = 8 << 10;

/// How much of what was asked for is taken out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// A bounded part, between two passes.
    OnePass,
    /// All of it, for calls that have no time budget.
    All,
}

impl Intake {
    /// Entries that may be taken out, per kind.
    pub fn entries(self) -> usize {
        match self {
            Intake::OnePass => INTAKE,
            Intake::All => usize::MAX,
        }
    }
}

/// What waits for the next step, and what other threads may know of the last one.
pub(crate) struct Inbox {
    last_id: u64,
    /// In the order in which they are to run.
    arrivals: BTreeMap<SequenceKey, Arrival>,
    /// Sequences of all arrivals, cancelled ones included.
    arriving: usize,
    cancels: VecDeque<Cancel>,
    /// Requests whose prompts may be evicted again.
    unpins: VecDeque<SequenceKey>,
    pins: PinBudget,
    /// Every request that has not ended.
    alive: BTreeMap<u64, Alive>,
    /// Completions, or beams, of all requests in `alive`.
    sequences: usize,
    /// As of the last pass. `waiting` does not count arrivals.
    stats: Stats,
    /// Outputs that wait to be polled.
    outputs: usize,
    /// Passes that have begun and were not finished, as of the last call that stepped.
    in_flight: usize,
    /// Those who wait for work.
    pub waits: Waits,
}

/// Threads that wait for work, and what ends their waits besides.
#[derive(Default)]
pub(crate) struct Waits {
    /// How many wait.
    pub waiting: usize,
    /// How often they were woken.
    pub wakes: u64,
    /// Whether the next wait ends when it begins: it may have been meant.
    pub is_woken: bool,
    /// Whether none may wait any more.
    pub are_over: bool,
}

/// A request that is to end.
pub(crate) struct Cancel {
    /// The key of its first completion.
    pub key: SequenceKey,
    /// The request itself, if no step has taken it in.
    pub arrival: Option<Arrival>,
}

/// A request that has not ended.
struct Alive {
    /// The key of its first completion.
    key: SequenceKey,
    /// Completions, or beams.
    sequences: u32,
    /// Completions or beams that have not ended.
    left: u32,
    /// What it counts as when a pass handles it, see [`INTAKE`].
    entries: usize,
    cancel: CancelState,
}

/// Whether a request was asked to end.
#[derive(PartialEq, Eq)]
enum CancelState {
    No,
    Requested,
}

impl Inbox {
    /// An empty inbox.
    pub fn new(pins: PinBudget, kv_blocks: usize) -> Inbox {
        Inbox {
            last_id: 0,
            arrivals: BTreeMap::new(),
            arriving: 0,
            cancels: VecDeque::new(),
            unpins: VecDeque::new(),
            pins,
            alive: BTreeMap::new(),
            sequences: 0,
            stats: Stats { kv_blocks_total: kv_blocks as u32, ..Stats::default() },
            outputs: 0,
            in_flight: 0,
            waits: Waits::default(),
        }
    }

    /// Refuses a request of `sequences` sequences that cannot be queued.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`]; [`Error::Limit`] where it can never be queued.
    pub fn check_room(&self, sequences: u32, max_queue: Option<usize>) -> Result<()> {
        let sequences = sequences as usize;
        if let Some(limit) = max_queue.filter(|&limit| sequences > limit) {
            return Err(Error::Limit { field: "n", found: sequences, limit, name: "max_queue" });
        }
        if let Some(limit) = max_queue
            && self.waiting() + sequences > limit
        {
            return Err(Error::QueueFull { limit, waiting: self.waiting(), wanted: sequences });
        }
        if self.sequences + sequences > limits::QUEUED_COMPLETIONS {
            let limit = limits::QUEUED_COMPLETIONS;
            return Err(Error::QueueFull { limit, waiting: self.sequences, wanted: sequences });
        }
        Ok(())
    }

    /// Queues a request and returns its id.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`], [`Error::PinsFull`].
    pub fn add(&mut self, request: Arc<Request>, max_queue: Option<usize>) -> Result<u64> {
        let params = &request.options.params;
        let (sequences, pinning) = (request.sequences(), params.pinning);
        let entries = 1 + request.bytes() / ENTRY_BYTES;
        self.check_room(sequences, max_queue)?;
        if pinning == Pinning::Pinned {
            self.pins.check(request.prompt.len())?;
        }
        self.last_id += 1;
        let id = self.last_id;
        let key = SequenceKey::new(params.priority, id);
        if pinning == Pinning::Pinned {
            self.pins.promise(key, request.prompt.len());
        }
        self.alive.insert(id, Alive { key, sequences, left: sequences, entries, cancel: CancelState::No });
        self.sequences += sequences as usize;
        self.arriving += sequences as usize;
        self.arrivals.insert(key, Arrival { key, request, pinning });
        Ok(id)
    }

    /// Asks for a request to end.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] when it has ended, was cancelled before, or never was.
    pub fn cancel(&mut self, id: u64) -> Result<()> {
        let alive = self.alive.get_mut(&id).filter(|alive| alive.cancel == CancelState::No);
        let alive = alive.ok_or(Error::UnknownRequest { id })?;
        alive.cancel = CancelState::Requested;
        let key = alive.key;
        // It stays counted as one that waits until a step has ended it.
        let arrival = self.arrivals.remove(&key);
        self.cancels.push_back(Cancel { key, arrival });
        Ok(())
    }

    /// The key of a request that has not ended and was not cancelled.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`].
    pub fn key(&self, id: u64) -> Result<SequenceKey> {
        let alive = self.alive.get(&id).filter(|alive| alive.cancel == CancelState::No);
        alive.map(|alive| alive.key).ok_or(Error::UnknownRequest { id })
    }

    /// Lets the prompt of a pinned request be evicted.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPin`].
    pub fn release(&mut self, id: u64) -> Result<()> {
        let key = self.pins.release(id).ok_or(Error::UnknownPin { id })?;
        match self.arrivals.get_mut(&key) {
            Some(arrival) => arrival.pinning = Pinning::Evictable,
            None => self.unpins.push_back(key),
        }
        Ok(())
    }

    /// Releases the blocks promised to a pinned request that ended before its prompt was computed.
    pub fn forget_pin(&mut self, id: u64) {
        self.pins.release(id);
    }

    /// Whether nothing waits, runs, or is queued for polling.
    pub fn is_finished(&self) -> bool {
        self.alive.is_empty() && self.outputs == 0
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.alive.is_empty()
    }

    /// Whether a step finds something to do, or an output can be polled. More than what [`is_finished`](Self::is_finished) looks at: the
    /// last request may end while a further pass is in flight, and prompts may be released while no request is alive.
    pub fn has_work(&self) -> bool {
        !self.is_finished() || self.in_flight > 0 || !self.unpins.is_empty()
    }

    /// Sequences that wait, including those that no step has taken in.
    pub fn waiting(&self) -> usize {
        self.stats.waiting as usize + self.arriving
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats { waiting: self.waiting() as u32, kv_blocks_pinned: self.pins.promised() as u32, ..self.stats }
    }

    /// Moves what a pass takes in to the lists of the engine, which are empty.
    pub fn drain(
        &mut self,
        intake: Intake,
        arrivals: &mut Vec<Arrival>,
        cancels: &mut Vec<Cancel>,
        unpins: &mut Vec<SequenceKey>,
    ) {
        let mut room = intake.entries();
        while room > 0
            && let Some((key, arrival)) = self.arrivals.pop_first()
        {
            // They count as waiting without a gap, or `max_queue` could be exceeded.
            self.count_as_taken(arrival.request.sequences());
            room = room.saturating_sub(self.entries(key));
            arrivals.push(arrival);
        }
        let mut room = intake.entries();
        while room > 0
            && let Some(cancel) = self.cancels.pop_front()
        {
            if let Some(arrival) = &cancel.arrival {
                self.count_as_taken(arrival.request.sequences());
            }
            room = room.saturating_sub(self.entries(cancel.key));
            cancels.push(cancel);
        }
        let released = self.unpins.len().min(intake.entries());
        unpins.extend(self.unpins.drain(..released));
    }

    fn entries(&self, key: SequenceKey) -> usize {
        self.alive.get(&key.id()).map_or(1, |alive| alive.entries)
    }

    fn count_as_taken(&mut self, sequences: u32) {
        self.arriving -= sequences as usize;
        self.stats.waiting += sequences;
    }

    /// Records the state of the engine. `ended` has the request of each completion or beam that ended, and is emptied.
    pub fn publish(&mut self, stats: &Stats, outputs: usize, in_flight: usize, ended: &mut Vec<u64>) {
        self.stats = *stats;
        (self.outputs, self.in_flight) = (outputs, in_flight);
        for id in ended.drain(..) {
            let request = self.alive.get_mut(&id).expect("a request is alive until its last sequence has ended");
            request.left -= 1;
            if request.left == 0 {
                self.sequences -= request.sequences as usize;
                self.alive.remove(&id);
            }
        }
    }

    /// Records how many outputs wait.
    pub fn publish_outputs(&mut self, outputs: usize) {
        self.outputs = outputs;
    }
}
