//! How does the process that leads tell the others what to compute?
//!
//! It sends each batch when it is submitted, so that the others begin when it does, and asks them for the keys and values and the recurrent
//! states of their heads. It waits for no answer to a batch: what followers compute reaches it as numbers of the pass.

use super::frame::{Kind, write_frame};
use super::parallel::SENT_BYTES;
use super::peers::Peers;
use super::wire;
use base::error::{Error, Result, room};
use compute::batch::{Batch, BatchLimits, BlockId, StateSlot};
use std::sync::Arc;

/// The followers, in the order of their processes.
pub struct Leader {
    peers: Arc<Peers>,
    /// Memory of the frame that is sent.
    frame: Vec<u8>,
    batches: u64,
}

impl Leader {
    /// Leads `peers`, with batches of at most `limits`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn new(peers: Arc<Peers>, limits: &BatchLimits) -> Result<Leader> {
        let bytes = wire::bytes_of_plain(limits);
        Ok(Leader {
            peers,
            frame: room(bytes, "a batch for other processes", "max_num_seqs or max_model_len")?,
            batches: 0,
        })
    }

    /// Tells all to compute a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`], as for all that follows.
    pub fn submit(&mut self, batch: &Batch) -> Result<()> {
        write_frame(&mut self.frame, Kind::Batch, self.batches, |to| wire::encode(batch, to));
        self.batches += 1;
        self.peers.broadcast(&self.frame)
    }

    /// Asks all for the keys and values of blocks: [`blocks`](Self::blocks) returns them.
    pub fn read(&mut self, blocks: &[BlockId]) -> Result<()> {
        write_frame(&mut self.frame, Kind::Read, blocks.len() as u64, |to| put_blocks(to, blocks));
        self.peers.broadcast(&self.frame)
    }

    /// What follower `at` answers to [`read`](Self::read): `bytes` bytes.
    pub fn blocks(&mut self, at: usize, bytes: usize) -> Result<Vec<u8>> {
        self.answer(at, "keys and values", bytes)
    }

    fn answer(&mut self, at: usize, what: &str, bytes: usize) -> Result<Vec<u8>> {
        let found = self.peers.answer(at)?;
        if found.len() == bytes {
            return Ok(found);
        }
        let process = self.peers.connections()[at].process;
        let reason = format!("sent {} bytes of {what}, but was asked for {bytes}", found.len());
        self.peers.fail(process, &reason);
        Err(Error::Peer { process, reason })
    }

    /// Gives follower `at` the keys and values of its heads, which `put` appends, and waits until they are written.
    pub fn write(&mut self, at: usize, blocks: &[BlockId], put: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        write_frame(&mut self.frame, Kind::Write, blocks.len() as u64, |to| {
            put_blocks(to, blocks);
            put(to);
        });
        self.peers.send(at, &self.frame)?;
        self.peers.answer(at).map(drop)
    }

    /// Reads what follower `at` has of a recurrent state, part by part: as many bytes as `to` has.
    pub fn read_state(&mut self, at: usize, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        for (part, to) in (0_u32..).zip(to.chunks_mut(SENT_BYTES)) {
            let put = |frame: &mut Vec<u8>| frame.extend(part.to_le_bytes());
            write_frame(&mut self.frame, Kind::ReadState, slot.into(), put);
            self.peers.send(at, &self.frame)?;
            to.copy_from_slice(&self.answer(at, "a recurrent state", to.len())?);
        }
        Ok(())
    }

    /// Gives follower `at` what its ranks have of a recurrent state, part by part, and waits until it is written.
    pub fn write_state(&mut self, at: usize, slot: StateSlot, from: &[u8]) -> Result<()> {
        for (part, from) in (0_u32..).zip(from.chunks(SENT_BYTES)) {
            write_frame(&mut self.frame, Kind::WriteState, slot.into(), |to| {
                to.extend(part.to_le_bytes());
                to.extend(from);
            });
            self.peers.send(at, &self.frame)?;
            self.peers.answer(at)?;
        }
        Ok(())
    }
}

fn put_blocks(to: &mut Vec<u8>, blocks: &[BlockId]) {
    to.extend(blocks.iter().flat_map(|block| block.to_le_bytes()));
}
