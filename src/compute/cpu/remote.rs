//! How do the ranks of one process get what those of other processes computed?
//!
//! Over a stream between the first process and each other one: the others send what their ranks show, the first one sends each of them
//! what all but its own ranks show. Numbers move as they are, so that joined numbers have the bits that their rank computed.
//! Invariant: a stream that failed once is never used again, because nobody knows where in it the next exchange would begin.

use super::team::Extent;
use base::error::{Error, Result};
use os::socket::Stream;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The streams of a process.
pub enum Links {
    /// Of the first process: to each other one, in their order, and its ranks.
    Followers(Vec<(Range<usize>, Arc<Stream>)>),
    /// Of another one: to the first.
    Leader(Arc<Stream>),
}

/// The ranks of other processes.
pub struct Remote {
    ranks: usize,
    own: Range<usize>,
    links: Links,
    /// What all ranks show in this exchange. `[rank][rows][width]`
    numbers: RwLock<Vec<f32>>,
    is_lost: AtomicBool,
}

impl Remote {
    pub fn new(ranks: usize, own: Range<usize>, links: Links) -> Remote {
        Remote { ranks, own, links, numbers: RwLock::default(), is_lost: AtomicBool::new(false) }
    }

    /// Makes room for exchanges of `numbers` numbers. Only what is used takes memory.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn reserve(&self, numbers: usize) -> Result<()> {
        let mut held = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        let more = numbers.saturating_sub(held.len());
        held.try_reserve_exact(more).map_err(|_| Error::OutOfMemory {
            what: "the activations of other processes",
            bytes: 4 * numbers as u64,
            knob: "max_batched_tokens or max_num_seqs",
        })
    }

    /// Exchanges what the ranks here show, of which `part(rank, row, len)` gives rows, for what other ranks show. `false` if a process
    /// is lost.
    pub fn deliver<'a>(&self, extent: Extent, part: impl Fn(usize, usize, usize) -> &'a [f32]) -> bool {
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        // Until all is there, so that the ranks here are not misled if this panics.
        self.is_lost.store(true, Ordering::Release);
        let len = extent.start(self.ranks);
        if numbers.len() < len {
            numbers.resize(len, 0.0);
        }
        let numbers = &mut numbers[..len];
        for rank in self.own.clone() {
            let (start, width) = (extent.start(rank), (extent.width)(rank));
            let own = &mut numbers[start..start + extent.rows * width];
            for (row, to) in own.chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(part(rank, row, width));
            }
        }
        let of = |ranks: &Range<usize>| extent.start(ranks.start)..extent.start(ranks.end);
        let is_whole = match &self.links {
            Links::Leader(stream) => self.ask(stream, numbers, of(&self.own)),
            Links::Followers(followers) => {
                let received = followers.iter().all(|(ranks, stream)| receive(stream, &mut numbers[of(ranks)]));
                received
                    && followers.iter().all(|(ranks, stream)| {
                        let theirs = of(ranks);
                        send(stream, &numbers[..theirs.start]) && send(stream, &numbers[theirs.end..])
                    })
            }
        };
        self.is_lost.store(!is_whole, Ordering::Release);
        is_whole
    }

    fn ask(&self, stream: &Stream, numbers: &mut [f32], own: Range<usize>) -> bool {
        send(stream, &numbers[own.clone()])
            && receive(stream, &mut numbers[..own.start])
            && receive(stream, &mut numbers[own.end..])
    }

    /// What all ranks show. `None` if a process is lost.
    pub fn delivered(&self) -> Option<RwLockReadGuard<'_, Vec<f32>>> {
        let is_lost = self.is_lost.load(Ordering::Acquire);
        (!is_lost).then(|| self.numbers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends all exchanges, those of other processes too.
    pub fn shut_down(&self) {
        match &self.links {
            Links::Leader(stream) => stream.shutdown(),
            Links::Followers(followers) => followers.iter().for_each(|(_, stream)| stream.shutdown()),
        }
    }
}

fn send(stream: &Stream, numbers: &[f32]) -> bool {
    stream.send_all(bytemuck::cast_slice(numbers)).is_ok()
}

fn receive(stream: &Stream, numbers: &mut [f32]) -> bool {
    stream.receive_all(bytemuck::cast_slice_mut(numbers)).is_ok()
}
