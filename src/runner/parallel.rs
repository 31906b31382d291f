//! How do several ranks compute one model?
//!
//! Each rank is a [`PassRunner`] for a device of its own, and computes the same batches in the same order. The caller's thread is rank 0;
//! the others have threads, named `nvllm-rank-N`, that take orders from a queue. Ranks meet on their devices, in the ops that exchange
//! numbers; no thread waits for another within a pass. Ranks of other processes get their orders from the [leader](super::leader): there,
//! a runner like this one computes them for a [follower](super::follower).
//!
//! Invariant: every rank gets the same orders in the same order. A rank that fails says so to the [barrier](super::barrier), releases the
//! others from their waits, and the engine ends with its error.

mod states;

use super::follower::Follower;
use super::leader::Leader;
use super::pass_runner::PassRunner;
use super::peers::{Group, Peers};
use super::rank_barrier::{Failure, Rank};
use super::wire::BatchBounds;
use super::{ModelInfo, Runner};
use base::error::{Error, Result, filled};
use compute::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
use compute::{Backend, KvLayout};
use model::shard::{Sharding, first_with_kv_head};
use os::lock::{Condvar, Mutex};
use os::thread::{STACK_BYTES, spawn};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, yield_now};
use std::time::{Duration, Instant};

/// Copies of a batch on their way to other ranks: one more than passes that may be in flight.
const BATCHES: usize = 3;

/// How long a rank spins for its next order before it sleeps: longer than a caller needs between two passes of a decoding engine.
const SPIN: Duration = Duration::from_micros(50);

/// How often the caller looks whether the rank that it waits for has failed.
const CHECK: Duration = Duration::from_millis(20);

/// Bytes of keys and values that are sent to another process at once, or one block.
pub const SENT_BYTES: usize = 8 << 20;

/// The ranks of this process, of which the caller's thread is the first, and those of other processes if it leads.
pub struct ParallelRunner<B: Backend + 'static> {
    first: PassRunner<B>,
    others: Vec<Other>,
    rank: Rank,
    sharding: Sharding,
    kv_layout: KvLayout,
    /// Bytes of one block of each rank. `[ranks]`
    block_bytes: Vec<usize>,
    /// Batches that the other ranks copy from. One that only this runner holds is free.
    batches: [Arc<Batch>; BATCHES],
    /// Tells other processes what to compute, where this one leads several.
    leader: Option<Leader>,
}

/// Another rank's thread.
struct Other {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// What a rank is told to do.
enum Order {
    Submit(Arc<Batch>),
    Read { blocks: Arc<[BlockId]>, answer: SyncSender<Vec<u8>> },
    Write { blocks: Arc<[BlockId]>, from: Vec<u8> },
    ReadState { slot: StateSlot, answer: SyncSender<Vec<u8>> },
    WriteState { slot: StateSlot, from: Vec<u8> },
    End,
}

/// A queue of orders for one rank.
#[derive(Default)]
struct Orders {
    queue: Mutex<VecDeque<Order>>,
    told: Condvar,
}

impl Orders {
    fn give(&self, order: Order) {
        self.queue.lock().push_back(order);
        self.told.notify_all();
    }

    fn take(&self) -> Order {
        let begun = Instant::now();
        while begun.elapsed() < SPIN {
            if let Some(order) = self.queue.try_lock().and_then(|mut queue| queue.pop_front()) {
                return order;
            }
            std::hint::spin_loop();
        }
        let mut queue = self.queue.lock();
        loop {
            if let Some(order) = queue.pop_front() {
                return order;
            }
            queue = self.told.wait(queue);
        }
    }
}

impl<B: Backend + 'static> ParallelRunner<B> {
    /// Opens each of `own`, the ranks of this process: the first on the calling thread, the others on threads of their own.
    /// `open` opens the runner of one rank. It meets the others at the same points as these.
    ///
    /// # Errors
    ///
    /// That of the first rank that failed.
    pub fn open(
        own: Vec<Rank>,
        open: impl Fn(&Rank, &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<(PassRunner<B>, ModelInfo)>
        + Send
        + Sync
        + 'static,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
    ) -> Result<(ParallelRunner<B>, ModelInfo)> {
        let open = Arc::new(open);
        let (rank, rest) = own.split_first().expect("an engine has a rank");
        let mut others: Vec<Other> = Vec::with_capacity(rest.len());
        for other in rest {
            match Other::start(other.clone(), open.clone()) {
                Ok(other) => others.push(other),
                Err(refusal) => {
                    rank.fail(Failure::Error(refusal));
                    break;
                }
            }
        }
        let opened = catch_unwind(AssertUnwindSafe(|| open(rank, progress)));
        let opened = match opened {
            Ok(Ok(opened)) => opened,
            failed => {
                rank.fail(match failed {
                    Ok(Err(error)) => Failure::Error(error),
                    Err(panic) => Failure::Panic(panic),
                    Ok(Ok(_)) => unreachable!("matched above"),
                });
                others.iter_mut().for_each(Other::end);
                return Err(first_failure(rank));
            }
        };
        let (first, info) = opened;
        let leads = rank.group().filter(|_| rank.process() == 0);
        let leader = leads.map(|group| Leader::new(group.peers().clone(), &info.limits)).transpose();
        let (batches, leader) = match (batches(&info.limits), leader) {
            (Ok(batches), Ok(leader)) => (batches, leader),
            (Err(error), _) | (_, Err(error)) => {
                first.abandon();
                others.iter_mut().for_each(Other::end);
                return Err(error);
            }
        };
        let (sharding, kv_layout) = (first.sharding().clone(), info.kv_layout.clone());
        let block_bytes = (0..sharding.ranks).map(|rank| sharding.kv_layout(rank, &kv_layout).block_bytes()).collect();
        Ok((
            ParallelRunner { first, others, rank: rank.clone(), sharding, kv_layout, block_bytes, batches, leader },
            info,
        ))
    }

    /// Bytes of one block over all ranks.
    fn ranks_block_bytes(&self) -> u64 {
        (0..self.sharding.ranks).map(|rank| self.block_bytes(rank) as u64).sum()
    }

    /// Bytes of one block over all ranks of this process.
    fn own_block_bytes(&self) -> usize {
        self.own().map(|rank| self.block_bytes(rank)).sum()
    }

    /// A follower that computes with this runner.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    ///
    /// If there are no other processes.
    pub fn into_follower(self, info: &ModelInfo) -> Result<Follower> {
        let peers = self.rank.group().expect("a follower has a leader").peers().clone();
        let ModelInfo { limits, num_kv_blocks: num_blocks, vocab_size, .. } = *info;
        let num_states = info.states.slots;
        let bounds = BatchBounds { limits, num_blocks, num_states, vocab_size, depth: B::DEPTH };
        let bytes = [self.own_block_bytes(), self.state_bytes(self.own())];
        Follower::new(Box::new(self), peers, bounds, bytes)
    }

    /// The ranks of this process.
    fn own(&self) -> Range<usize> {
        self.rank.index..self.rank.index + 1 + self.others.len()
    }

    /// The first rank, for tests.
    pub fn first(&self) -> &PassRunner<B> {
        &self.first
    }

    /// A copy of `batch` that all ranks may read.
    fn share(&mut self, batch: &Batch) -> Result<Arc<Batch>> {
        loop {
            for slot in &mut self.batches {
                if let Some(free) = Arc::get_mut(slot) {
                    free.clone_from(batch);
                    return Ok(slot.clone());
                }
            }
            // A rank is as many passes behind as there are copies.
            self.check()?;
            yield_now();
        }
    }

    fn check(&self) -> Result<()> {
        if self.rank.is_broken() { Err(first_failure(&self.rank)) } else { Ok(()) }
    }

    fn tell(&self, order: impl Fn() -> Order) {
        self.others.iter().for_each(|other| other.orders.give(order()));
    }

    /// Waits for what a rank reads.
    fn answer(&self, read: &Receiver<Vec<u8>>) -> Result<Vec<u8>> {
        loop {
            match read.recv_timeout(CHECK) {
                Ok(bytes) => return Ok(bytes),
                // The thread of a rank that failed answers nothing.
                Err(_) => self.check()?,
            }
        }
    }

    /// Calls `copy(place in the bytes of all ranks, place in those of rank `rank`, length)` for each head that `rank` has and that `heads`
    /// takes, of which it is told the KV heads of each rank and the head.
    fn for_heads(
        &self,
        rank: usize,
        blocks: usize,
        heads: impl Fn(&[Range<usize>], usize) -> bool,
        mut copy: impl FnMut(usize, usize, usize),
    ) {
        let layers = self.kv_layout.shapes().map(|shape| (shape, self.sharding.kv_heads(shape.kv_heads)));
        let layers: Vec<_> = layers.collect();
        let (mut all, mut at) = (0, 0);
        for (shape, shares) in (0..blocks).flat_map(|_| &layers) {
            let (own, len) = (&shares[rank], shape.head_bytes());
            for (index, head) in own.clone().enumerate().filter(|&(_, head)| heads(shares, head)) {
                copy(all + head * len, at + index * len, len);
            }
            all += shape.kv_heads * len;
            at += own.len() * len;
        }
    }

    fn block_bytes(&self, rank: usize) -> usize {
        self.block_bytes[rank]
    }
}

fn batches(limits: &BatchLimits) -> Result<[Arc<Batch>; BATCHES]> {
    let batch = || Batch::within(limits).map(Arc::new);
    Ok([batch()?, batch()?, batch()?])
}

/// The error of the first rank that failed. A panic goes on here.
fn first_failure(rank: &Rank) -> Error {
    match rank.take_failure() {
        Some(Failure::Error(error)) => error,
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        None => rank.lost(),
    }
}

/// What to tell the caller, whose own rank has failed with `error`: the first failure of all ranks, which other processes learn, too.
fn failure_of(rank: &Rank, error: Error) -> Error {
    rank.fail(Failure::Error(error));
    first_failure(rank)
}

impl<B: Backend + 'static> Runner for ParallelRunner<B> {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        let shared = self.share(batch)?;
        if let Some(leader) = &mut self.leader {
            // Whoever is farther away is told first.
            leader.submit(batch)?;
        }
        self.tell(|| Order::Submit(shared.clone()));
        drop(shared);
        self.first.submit(batch).map_err(|error| self.reason(error))
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        let rank = self.rank.clone();
        match self.first.collect(deadline) {
            Ok(_) if rank.is_broken() => Err(first_failure(&rank)),
            Err(error) => Err(failure_of(&rank, error)),
            sampled => sampled,
        }
    }

    fn depth(&self) -> usize {
        self.first.depth()
    }

    fn stages(&self) -> usize {
        self.first.stages()
    }

    fn pass_time(&self) -> Duration {
        self.first.pass_time()
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.finish()?;
        if self.rank.process() > 0 {
            return self.read_own(blocks, to);
        }
        let own = self.own();
        for (blocks, to) in self.sent(blocks).zip(to.chunks_mut(self.sent_bytes())) {
            if let Some(leader) = &mut self.leader {
                leader.read(blocks)?;
            }
            let mut bytes = buffer(blocks.len() * self.own_block_bytes())?;
            self.read_own(blocks, &mut bytes)?;
            self.place_heads(own.clone(), blocks.len(), &bytes, to);
            for (at, ranks) in self.others_ranks().enumerate() {
                let len = blocks.len() * ranks.clone().map(|rank| self.block_bytes(rank)).sum::<usize>();
                let leader = self.leader.as_mut().expect("there are ranks of other processes");
                let bytes = leader.blocks(at, len)?;
                self.place_heads(ranks, blocks.len(), &bytes, to);
            }
        }
        Ok(())
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        if self.rank.process() > 0 {
            return self.write_own(blocks, from);
        }
        if self.leader.is_some() {
            self.finish()?;
        }
        let own = self.own();
        for (blocks, from) in self.sent(blocks).zip(from.chunks(self.sent_bytes())) {
            for (at, ranks) in self.others_ranks().enumerate() {
                let bytes = self.heads(ranks, blocks.len(), from)?;
                let leader = self.leader.as_mut().expect("there are ranks of other processes");
                leader.write(at, blocks, |to| to.extend_from_slice(&bytes))?;
            }
            let bytes = self.heads(own.clone(), blocks.len(), from)?;
            self.write_own(blocks, &bytes)?;
        }
        Ok(())
    }

    fn expert_counts(&self, layer: usize) -> Result<Option<Vec<u64>>> {
        self.first.expert_counts(layer)
    }

    fn read_state(&mut self, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        self.finish()?;
        if self.rank.process() > 0 {
            return self.read_own_state(slot, to);
        }
        let own = self.own();
        let mut bytes = buffer(self.state_bytes(own.clone()))?;
        self.read_own_state(slot, &mut bytes)?;
        self.place_state(own, &bytes, to);
        for (at, ranks) in self.others_ranks().enumerate() {
            let mut bytes = buffer(self.state_bytes(ranks.clone()))?;
            let leader = self.leader.as_mut().expect("there are ranks of other processes");
            leader.read_state(at, slot, &mut bytes)?;
            self.place_state(ranks, &bytes, to);
        }
        Ok(())
    }

    fn write_state(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        if self.rank.process() > 0 {
            return self.write_own_state(slot, from);
        }
        if self.leader.is_some() {
            self.finish()?;
        }
        for (at, ranks) in self.others_ranks().enumerate() {
            let bytes = self.parts_of_state(ranks, from)?;
            let leader = self.leader.as_mut().expect("there are ranks of other processes");
            leader.write_state(at, slot, &bytes)?;
        }
        let bytes = self.parts_of_state(self.own(), from)?;
        self.write_own_state(slot, &bytes)
    }

    fn peers(&self) -> Option<&Arc<Peers>> {
        self.rank.group().map(Group::peers)
    }

    /// All ranks use the same blocks.
    fn kv_bytes_mapped(&self) -> u64 {
        let (own, all) = (self.first.kv_layout().block_bytes() as u64, self.ranks_block_bytes());
        // A model without attention has blocks of no bytes.
        self.first.kv_bytes_mapped().checked_div(own).map_or(0, |blocks| blocks * all)
    }
}

/// Keys and values of blocks, divided among ranks.
impl<B: Backend + 'static> ParallelRunner<B> {
    /// The ranks of each other process.
    fn others_ranks(&self) -> impl Iterator<Item = Range<usize>> + use<B> {
        let world = self.rank.group().map(|group| group.peers().world());
        world.into_iter().flat_map(|world| (1..world.processes).map(move |process| world.ranks_of(process)))
    }

    /// Blocks that are read or written at once: all, unless other processes are asked.
    fn blocks_at_once(&self) -> usize {
        match self.leader {
            Some(_) => (SENT_BYTES / self.kv_layout.block_bytes().max(1)).max(1),
            None => usize::MAX / self.kv_layout.block_bytes().max(1),
        }
    }

    /// Bytes of the blocks that are read or written at once.
    fn sent_bytes(&self) -> usize {
        (self.blocks_at_once() * self.kv_layout.block_bytes()).max(1)
    }

    fn sent<'a>(&self, blocks: &'a [BlockId]) -> impl Iterator<Item = &'a [BlockId]> + use<'a, B> {
        blocks.chunks(self.blocks_at_once())
    }

    /// Runs the passes in flight to their ends. The other ranks and processes take their next order only after their pass, which
    /// needs the first rank's part. Waiting for their answer while the pass is suspended would be a deadlock.
    fn finish(&mut self) -> Result<()> {
        match self.first.finish() {
            Ok(()) => self.check(),
            Err(error) => Err(failure_of(&self.rank, error)),
        }
    }

    /// Reads the heads of the ranks of this process, rank after rank.
    fn read_own(&mut self, blocks: &[BlockId], mut to: &mut [u8]) -> Result<()> {
        let shared: Arc<[BlockId]> = blocks.into();
        let read = |other: &Other| -> Receiver<Vec<u8>> {
            let (answer, read) = sync_channel(1);
            other.orders.give(Order::Read { blocks: shared.clone(), answer });
            read
        };
        let others: Vec<_> = self.others.iter().map(read).collect();
        let own = blocks.len() * self.block_bytes(self.rank.index);
        self.first.read_blocks(blocks, to.split_off_mut(..own).expect("room for each rank"))?;
        for read in &others {
            let bytes = self.answer(read)?;
            to.split_off_mut(..bytes.len()).expect("room for each rank").copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Writes the heads of the ranks of this process, rank after rank.
    fn write_own(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        let shared: Arc<[BlockId]> = blocks.into();
        let (own, mut rest) = from.split_at(blocks.len() * self.block_bytes(self.rank.index));
        for (rank, other) in (self.rank.index + 1..).zip(&self.others) {
            let (theirs, after) = rest.split_at(blocks.len() * self.block_bytes(rank));
            let mut bytes = buffer(theirs.len())?;
            bytes.copy_from_slice(theirs);
            other.orders.give(Order::Write { blocks: shared.clone(), from: bytes });
            rest = after;
        }
        self.first.write_blocks(blocks, own)
    }

    /// Copies what `ranks` read to its place among all heads. A head that several ranks have comes from the first.
    fn place_heads(&self, ranks: Range<usize>, blocks: usize, mut bytes: &[u8], to: &mut [u8]) {
        for rank in ranks {
            let (own, after) = bytes.split_at(blocks * self.block_bytes(rank));
            let is_first = |shares: &[Range<usize>], head| first_with_kv_head(shares, head) == rank;
            self.for_heads(rank, blocks, is_first, |all, at, len| {
                to[all..all + len].copy_from_slice(&own[at..at + len]);
            });
            bytes = after;
        }
    }

    /// The heads of `ranks`, rank after rank, out of all heads.
    fn heads(&self, ranks: Range<usize>, blocks: usize, from: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = buffer(blocks * ranks.clone().map(|rank| self.block_bytes(rank)).sum::<usize>())?;
        let mut rest = &mut bytes[..];
        for rank in ranks {
            let own = rest.split_off_mut(..blocks * self.block_bytes(rank)).expect("room for each rank");
            let copy = |all: usize, at: usize, len: usize| own[at..at + len].copy_from_slice(&from[all..all + len]);
            self.for_heads(rank, blocks, |_, _| true, copy);
        }
        Ok(bytes)
    }
}

impl<B: Backend + 'static> ParallelRunner<B> {
    /// The reason why the first rank failed, where it is another rank.
    fn reason(&self, error: Error) -> Error {
        self.first.abandon();
        failure_of(&self.rank, error)
    }
}

fn buffer(bytes: usize) -> Result<Vec<u8>> {
    filled(0, bytes, "the keys and values of a rank", "the length of the prefix")
}

impl<B: Backend + 'static> Drop for ParallelRunner<B> {
    fn drop(&mut self) {
        // Other processes learn that the engine is closed before they miss the rest of a pass.
        self.rank.group().into_iter().for_each(Group::close);
        // A pass that the first rank has not finished is waited for by the others.
        self.first.abandon();
        self.others.iter_mut().for_each(Other::end);
    }
}

impl Other {
    fn start<B: Backend + 'static>(
        rank: Rank,
        open: Arc<
            impl Fn(&Rank, &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<(PassRunner<B>, ModelInfo)>
            + Send
            + Sync
            + 'static,
        >,
    ) -> Result<Other> {
        let orders = Arc::new(Orders::default());
        // As many as can be in the queue at once: a pass per shared batch and one to be given.
        orders.queue.lock().reserve(2 * BATCHES);
        let taken = orders.clone();
        let index = rank.index;
        let live = move || {
            let lived = catch_unwind(AssertUnwindSafe(|| {
                let (mut runner, _) = open(&rank, &mut |_| ControlFlow::Continue(()))?;
                drop(open);
                let served = catch_unwind(AssertUnwindSafe(|| serve(&mut runner, &taken)));
                // Said before the others are released, so that they find the reason.
                let failure = match served {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(Failure::Error(error)),
                    Err(panic) => Some(Failure::Panic(panic)),
                };
                failure.into_iter().for_each(|failure| rank.fail(failure));
                runner.abandon();
                Ok(())
            }));
            match lived {
                Ok(Ok(())) => {}
                Ok(Err(error)) => rank.fail(Failure::Error(error)),
                Err(panic) => rank.fail(Failure::Panic(panic)),
            }
        };
        let thread = spawn(&format!("rank-{index}"), STACK_BYTES, live)?;
        Ok(Other { orders, thread: Some(thread) })
    }

    /// Ends the thread after the orders that it has.
    fn end(&mut self) {
        self.orders.give(Order::End);
        if let Some(thread) = self.thread.take() {
            // It catches its panics, so it ends in peace.
            let _ = thread.join();
        }
    }
}

/// A rank's life: it computes what it is told to, until it is told to end.
fn serve<B: Backend>(runner: &mut PassRunner<B>, orders: &Orders) -> Result<()> {
    let mut in_flight = 0;
    loop {
        match orders.take() {
            Order::Submit(batch) => {
                if in_flight == B::DEPTH {
                    runner.collect(None)?;
                    in_flight -= 1;
                }
                runner.submit(&batch)?;
                drop(batch);
                in_flight += 1;
                // A backend that computes in the call computes now, not when the next pass comes.
                if B::DEPTH == 1 {
                    runner.collect(None)?;
                    in_flight -= 1;
                }
            }
            Order::Read { blocks, answer } => {
                let mut bytes = buffer(blocks.len() * runner.kv_layout().block_bytes())?;
                runner.read_blocks(&blocks, &mut bytes)?;
                // The caller has given up if nobody takes it.
                let _ = answer.send(bytes);
            }
            Order::Write { blocks, from } => runner.write_blocks(&blocks, &from)?,
            Order::ReadState { slot, answer } => {
                let mut bytes = buffer(runner.state_shape().slot_bytes())?;
                runner.read_state(slot, &mut bytes)?;
                let _ = answer.send(bytes);
            }
            Order::WriteState { slot, from } => runner.write_state(slot, &from)?,
            Order::End => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
