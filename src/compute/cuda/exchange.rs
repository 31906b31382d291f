//! The exchanges of one rank: which number each has, and what a kernel needs to take part.
//!
//! Exchanges are numbered from 0 on, the same on all ranks. A kernel adds the number of those before the pass, which is uploaded with
//! the batch, and its own place in the pass, which is constant: a graph that is replayed takes part under later numbers, and nothing on
//! the device counts. Invariant: ranks launch the same exchanges in the same order.

use super::driver::{Address, Memory};
use super::nccl::Nccl;
use super::params::params;
use super::peers::{Fault, Member};
use base::error::{Error, Result};
use cudarc::driver::sys;

params! {
    Exchange in "common/exchange.cuh" {
        regions: Address,
        before: Address,
        broken: Address,
        patience: u64,
        sender_bytes: u64,
        index: i32,
        rank: i32,
        ranks: i32,
    }
}

/// What a rank knows of its exchanges.
pub struct Exchanges {
    /// Where they go by NCCL.
    nccl: Option<Nccl>,
    member: Member,
    /// A word that is 0: exchanges before a pass that was not uploaded.
    _none: Memory,
    /// Where the device finds the exchanges before this pass.
    before: Address,
    /// The number of its first exchange, as the word at `before` says.
    first: u32,
    /// The number of the next exchange that is launched. It wraps, which keeps its parity.
    next: u32,
}

impl Exchanges {
    /// Those of `member`: none so far.
    pub fn new(member: Member) -> Result<Exchanges> {
        let none = Memory::zeroed(member.context(), 4, "a counter on the device", "memory_utilization")?;
        let before = none.address();
        Ok(Exchanges { nccl: None, member, _none: none, before, first: 0, next: 0 })
    }

    /// Exchanges by NCCL from now on.
    pub fn set_nccl(&mut self, nccl: Nccl) {
        self.nccl = Some(nccl);
    }

    /// Where they go by NCCL.
    pub fn nccl(&self) -> Option<&Nccl> {
        self.nccl.as_ref()
    }

    /// Whose they are.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Exchanges that were launched.
    pub fn launched(&self) -> u32 {
        self.next
    }

    /// Begins a pass, whose batch has the number of those [launched](Self::launched) before at `before`.
    pub fn begin_pass(&mut self, before: Address) {
        (self.before, self.first) = (before, self.next);
    }

    /// Begins to number launches that are recorded, as those of a pass. They do not run. Returns what
    /// [`end_recording`](Self::end_recording) takes.
    pub fn begin_recording(&mut self) -> u32 {
        self.first = self.next;
        self.next
    }

    /// How many exchanges were recorded.
    pub fn end_recording(&mut self, begun: u32) -> u32 {
        let recorded = self.next.wrapping_sub(begun);
        self.next = begun;
        recorded
    }

    /// Takes part in the next `recorded` exchanges by one launch. `false` where a test silences this rank.
    pub fn next_recorded(&mut self, recorded: u32) -> Result<bool> {
        for _ in 0..recorded {
            if self.is_silent()? {
                return Ok(false);
            }
        }
        self.next = self.next.wrapping_add(recorded);
        self.nccl.iter().for_each(|nccl| nccl.add_launched(recorded));
        Ok(true)
    }

    fn is_silent(&self) -> Result<bool> {
        match self.member.fault() {
            None => Ok(false),
            Some(Fault::Silence) => Ok(true),
            Some(Fault::Error) => {
                Err(Error::Device { call: "cuLaunchKernelEx", code: sys::CUresult::CUDA_ERROR_LAUNCH_FAILED as i32 })
            }
            Some(Fault::Panic) => panic!("an injected fault"),
        }
    }

    /// Takes part in the next exchange by NCCL. `false` where a test silences this rank.
    pub fn next_by_nccl(&mut self) -> Result<bool> {
        let takes_part = !self.is_silent()?;
        self.next = self.next.wrapping_add(u32::from(takes_part));
        Ok(takes_part)
    }

    /// Takes part in the next exchange: what its kernel needs. `None` where a test silences this rank.
    pub fn next(&mut self) -> Result<Option<Exchange>> {
        if self.is_silent()? {
            return Ok(None);
        }
        let exchange = Exchange {
            regions: self.member.regions(),
            before: self.before,
            broken: self.member.broken(),
            patience: self.member.patience().as_nanos() as u64,
            sender_bytes: self.member.sender_bytes() as u64,
            index: self.next.wrapping_sub(self.first) as i32,
            rank: self.member.rank() as i32,
            ranks: self.member.ranks() as i32,
        };
        self.next = self.next.wrapping_add(1);
        Ok(Some(exchange))
    }
}
