//! How does a process compute what another one schedules?
//!
//! Its host calls [`serve`](Follower::serve), again and again, and each call computes what the leader has sent meanwhile: no thread of
//! the library does a host's work. Invariant: orders are carried out in the order in which the leader gave them, and what they say is
//! checked before anything is computed.

use super::Runner;
use super::frame::{Kind, write_frame};
use super::parallel::SENT_BYTES;
use super::peers::{Next, Order, Peers};
use super::wire::{BatchBounds, BatchDecoder};
use base::error::{Error, Result, filled};
use compute::batch::{Batch, BlockId, StateSlot};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a follower waits for a further pass before it looks at the one in flight again, on a device that computes beside the host.
const BETWEEN: Duration = Duration::from_micros(100);

/// The ranks of a process that follows.
pub struct Follower {
    runner: Box<dyn Runner>,
    peers: Arc<Peers>,
    decoder: BatchDecoder,
    batch: Batch,
    /// Blocks of the KV cache, and bytes of one, over all ranks of this process.
    num_blocks: usize,
    block_bytes: usize,
    /// Slots of recurrent states.
    num_states: usize,
    /// The state that the leader reads or writes part by part, over all ranks of this process.
    state: Vec<u8>,
    /// Passes that have begun and not ended.
    in_flight: usize,
}

/// What a call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Passes that ended.
    pub passes: u32,
    /// Whether the leader has closed its engine: there will be no more.
    pub is_closed: bool,
}

impl Follower {
    /// Serves with `runner`, which computes all ranks of this process, where a block takes `block_bytes` and a recurrent state `state_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn new(
        runner: Box<dyn Runner>,
        peers: Arc<Peers>,
        bounds: BatchBounds,
        [block_bytes, state_bytes]: [usize; 2],
    ) -> Result<Follower> {
        let (decoder, batch) = (BatchDecoder::new(bounds), Batch::within(&bounds.limits)?);
        let BatchBounds { num_blocks, num_states, .. } = bounds;
        let state = filled(0, state_bytes, "a recurrent state", "num_processes")?;
        Ok(Follower { runner, peers, decoder, batch, num_blocks, block_bytes, num_states, state, in_flight: 0 })
    }

    /// The leader, and whether it asks for something.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Computes what the leader asks for until `deadline`; without one, until the next pass has ended or the leader has closed its engine.
    /// A pass may be left in the middle, and the next call continues it.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`], and the error of a rank of this process. The follower cannot be used any more.
    pub fn serve(&mut self, deadline: Option<Instant>) -> Result<Served> {
        self.peers.serve();
        let mut served = Served::default();
        let ended = self.serve_until(deadline, &mut served);
        self.peers.leave(self.in_flight > 0);
        match ended {
            // A leader that closes its engine in the middle of a pass ends it.
            Err(_) if self.peers.is_closed() => Ok(Served { is_closed: true, ..served }),
            ended => ended.map(|()| served),
        }
    }

    fn serve_until(&mut self, deadline: Option<Instant>, served: &mut Served) -> Result<()> {
        loop {
            let deadline_of_order = match self.in_flight {
                0 => deadline,
                _ => Some(Instant::now() + BETWEEN),
            };
            if self.in_flight < self.runner.depth() {
                match self.peers.next_order(deadline_of_order)? {
                    Next::Order(order) => {
                        self.carry_out(order)?;
                        continue;
                    }
                    Next::DeadlineFirst if self.in_flight == 0 => return Ok(()),
                    Next::DeadlineFirst => {}
                    Next::Closed => {
                        served.is_closed = true;
                        return Ok(());
                    }
                }
            }
            // While a further pass may come, the one in flight is only looked at.
            let until = if self.in_flight < self.runner.depth() { Some(Instant::now()) } else { deadline };
            let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.runner.collect(until)?.is_some() {
                self.in_flight -= 1;
                served.passes += 1;
                if deadline.is_none() || is_late() {
                    return Ok(());
                }
            } else if is_late() {
                return Ok(());
            }
        }
    }

    fn carry_out(&mut self, Order { head, payload }: Order) -> Result<()> {
        let carried_out = match head.kind {
            Kind::Batch => self.submit(&payload),
            Kind::Read => self.read(&payload),
            Kind::ReadState => self.read_state(&payload, head.number),
            Kind::WriteState => self.write_state(&payload, head.number),
            _ => self.write(&payload, head.number),
        };
        self.peers.recycle(payload);
        carried_out
    }

    fn submit(&mut self, payload: &[u8]) -> Result<()> {
        if let Err(reason) = self.decoder.decode(payload, &mut self.batch) {
            return Err(self.refuse(format!("sent a batch that cannot be computed: {reason}")));
        }
        self.runner.submit(&self.batch)?;
        self.in_flight += 1;
        Ok(())
    }

    fn read(&mut self, payload: &[u8]) -> Result<()> {
        let blocks = self.blocks(payload)?;
        let mut bytes = filled(0, blocks.len() * self.block_bytes, "keys and values", "the length of the prefix")?;
        self.runner.read_blocks(&blocks, &mut bytes)?;
        self.answer(Kind::Blocks, &bytes)
    }

    fn write(&mut self, payload: &[u8], count: u64) -> Result<()> {
        let is_whole = |count: usize| payload.len() / (4 + self.block_bytes) == count;
        let count = usize::try_from(count).ok().filter(|count| is_whole(*count));
        let Some((blocks, from)) = count.and_then(|count| payload.split_at_checked(4 * count)) else {
            return Err(self.refuse("sent other keys and values than those of its blocks".to_owned()));
        };
        let blocks = self.blocks(blocks)?;
        if from.len() != blocks.len() * self.block_bytes {
            return Err(self.refuse("sent other keys and values than those of its blocks".to_owned()));
        }
        self.runner.write_blocks(&blocks, from)?;
        self.answer(Kind::Written, &[])
    }

    /// The state is copied when its first part is asked for: no pass changes it before the leader has all parts.
    fn read_state(&mut self, payload: &[u8], slot: u64) -> Result<()> {
        let (slot, part, _) = self.part_of_state(payload, slot)?;
        if part.start == 0 {
            self.runner.read_state(slot, &mut self.state)?;
        }
        self.answer(Kind::State, &self.state[part])
    }

    fn write_state(&mut self, payload: &[u8], slot: u64) -> Result<()> {
        let (slot, part, from) = self.part_of_state(payload, slot)?;
        if from.len() != part.len() {
            return Err(self.refuse("sent a part of a recurrent state that has other bytes".to_owned()));
        }
        self.state[part.clone()].copy_from_slice(from);
        if part.end == self.state.len() {
            self.runner.write_state(slot, &self.state)?;
        }
        self.answer(Kind::Written, &[])
    }

    /// The slot, the bytes of the part that `payload` names, and what follows its name.
    fn part_of_state<'a>(&self, payload: &'a [u8], slot: u64) -> Result<(StateSlot, Range<usize>, &'a [u8])> {
        let slot = StateSlot::try_from(slot).ok().filter(|slot| (*slot as usize) < self.num_states);
        let part = payload.split_first_chunk().map(|(part, rest)| (u32::from_le_bytes(*part) as usize, rest));
        let parts = self.state.len().div_ceil(SENT_BYTES);
        match (slot, part.filter(|(part, _)| *part < parts)) {
            (Some(slot), Some((part, rest))) => {
                let first = part * SENT_BYTES;
                Ok((slot, first..self.state.len().min(first + SENT_BYTES), rest))
            }
            _ => Err(self.refuse("named a recurrent state that does not exist".to_owned())),
        }
    }

    fn blocks(&self, payload: &[u8]) -> Result<Vec<BlockId>> {
        let (blocks, rest) = payload.as_chunks();
        let blocks: Vec<BlockId> = blocks.iter().map(|block| BlockId::from_le_bytes(*block)).collect();
        let is_valid = rest.is_empty() && blocks.iter().all(|block| (*block as usize) < self.num_blocks);
        if is_valid { Ok(blocks) } else { Err(self.refuse("named blocks that do not exist".to_owned())) }
    }

    fn answer(&self, kind: Kind, bytes: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        write_frame(&mut frame, kind, 0, |to| to.extend(bytes));
        self.peers.send(0, &frame)
    }

    fn refuse(&self, reason: String) -> Error {
        self.peers.fail(0, &reason);
        Error::Peer { process: 0, reason }
    }
}
