//! How do ranks on one host bring together what each computed?
//!
//! Each rank shows where its numbers lie, waits until all have, copies what the others show, and waits until all have copied. Between
//! the two waits nobody writes what is shown. Where other processes have ranks of the team, one member exchanges the numbers of all ranks
//! here for those of the others in between, and all wait for it. Invariant: a member that has passed the first wait of an exchange
//! reaches the last one, whatever happens, so that memory which is shown stays valid until nobody reads it.
#![allow(unsafe_code)]

use super::pool::spin_while;
use super::remote::{Links, Remote};
use base::error::Result;
use os::lock::{Condvar, Mutex};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The ranks of one process, and how those of others are reached.
pub struct Team {
    /// All ranks, also those of other processes.
    ranks: usize,
    /// Those of this process.
    own: Range<usize>,
    /// Where the ranks of this process show their numbers. `[own]`
    shown: Box<[Shown]>,
    /// All have shown. Passed by nobody once the team is broken.
    arrival: Barrier,
    /// The numbers of other processes are there, or lost.
    delivery: Barrier,
    /// All have copied.
    departure: Barrier,
    remote: Option<Remote>,
}

/// The place of one rank in its team. The team is broken when it is dropped.
pub struct Member {
    team: Arc<Team>,
    rank: usize,
    /// Exchanges that take place before one panics; `None` is no such end. For tests of what a panic leaves behind.
    #[doc(hidden)]
    pub sound_exchanges: Option<AtomicUsize>,
}

/// Where a rank's numbers lie: written before the arrival, read between arrival and departure.
#[derive(Default)]
struct Shown {
    start: AtomicPtr<f32>,
    stride: AtomicUsize,
}

/// Rows of another rank, or of this one.
#[derive(Clone, Copy)]
pub struct Rows {
    start: *const f32,
    stride: usize,
}

// SAFETY: the rows are read while nobody writes them: see `Member::exchange`.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Team {
    /// A team of `ranks` members, in the order of ranks.
    pub fn of(ranks: usize) -> Vec<Member> {
        Team::members(ranks, 0..ranks, None)
    }

    /// The members `own` of a team of `ranks`, of which other processes have the rest.
    pub fn spanning(ranks: usize, own: Range<usize>, links: Links) -> Vec<Member> {
        Team::members(ranks, own.clone(), Some(Remote::new(ranks, own, links)))
    }

    fn members(ranks: usize, own: Range<usize>, remote: Option<Remote>) -> Vec<Member> {
        let team = Arc::new(Team {
            ranks,
            shown: own.clone().map(|_| Shown::default()).collect(),
            arrival: Barrier::new(own.len()),
            delivery: Barrier::new(own.len()),
            departure: Barrier::new(own.len()),
            own: own.clone(),
            remote,
        });
        let member = |rank| Member { team: team.clone(), rank, sound_exchanges: None };
        own.map(member).collect()
    }

    /// What the rank `rank` of this process shows.
    fn shown(&self, rank: usize) -> Rows {
        let Shown { start, stride } = &self.shown[rank - self.own.start];
        Rows { start: start.load(Ordering::Relaxed), stride: stride.load(Ordering::Relaxed) }
    }
}

/// What ranks show each other in an exchange.
#[derive(Clone, Copy)]
pub struct Extent<'a> {
    /// Rows of each rank.
    pub rows: usize,
    /// Numbers in a row of a rank.
    pub width: &'a dyn Fn(usize) -> usize,
}

impl Member {
    /// This member's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the team.
    pub fn ranks(&self) -> usize {
        self.team.ranks
    }

    /// Whether ranks of other processes belong to the team.
    pub fn spans_processes(&self) -> bool {
        self.team.remote.is_some()
    }

    /// Makes room for exchanges of `numbers` numbers, of all ranks together.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    pub fn reserve(&self, numbers: usize) -> Result<()> {
        self.team.remote.as_ref().map_or(Ok(()), |remote| remote.reserve(numbers))
    }

    /// Shows `own`, and calls `copy` once every rank shows its own, with a function that gives those of a rank.
    ///
    /// `false`, without a call, if the team is broken: results are not defined from then on.
    ///
    /// # Safety
    ///
    /// What `copy` reads of a rank must be what that rank may let others read, and so must all that `extent` says: valid rows that it
    /// does not write meanwhile.
    #[must_use]
    pub unsafe fn exchange(&self, own: Rows, extent: Extent, copy: impl FnOnce(&dyn Fn(usize) -> Rows)) -> bool {
        if let Some(left) = &self.sound_exchanges {
            assert!(left.fetch_sub(1, Ordering::Relaxed) > 0, "an exchange that a test forbids");
        }
        let team = &*self.team;
        let shown = &team.shown[self.rank - team.own.start];
        shown.start.store(own.start.cast_mut(), Ordering::Relaxed);
        shown.stride.store(own.stride, Ordering::Relaxed);
        if !team.arrival.wait() {
            return false;
        }
        let Some(remote) = &team.remote else {
            let departs = Passes(&team.departure);
            copy(&|rank| team.shown(rank));
            drop(departs);
            return true;
        };
        let delivers = Passes(&team.delivery);
        if self.rank == team.own.start {
            // SAFETY: the caller's, and every rank here waits for the delivery.
            let is_whole = remote.deliver(extent, |rank, row, len| unsafe { team.shown(rank).part(row, len) });
            if !is_whole {
                self.abandon();
            }
        }
        drop(delivers);
        // What was lost stays lost: nobody arrives at the next exchange.
        let Some(numbers) = remote.delivered() else { return false };
        let departs = Passes(&team.departure);
        copy(&|rank| match team.own.contains(&rank) {
            true => team.shown(rank),
            false => {
                let (start, stride) = (extent.start(rank), (extent.width)(rank));
                Rows { start: numbers[start..].as_ptr(), stride }
            }
        });
        drop(numbers);
        drop(departs);
        true
    }

    /// Lets every member through that waits or will wait: the team exchanges nothing any more.
    pub fn abandon(&self) {
        self.team.arrival.break_up();
        self.team.remote.iter().for_each(Remote::shut_down);
    }

    /// Whether a member has [left](Self::abandon).
    pub fn is_broken(&self) -> bool {
        self.team.arrival.is_broken()
    }
}

impl Extent<'_> {
    /// Where the numbers of a rank begin among those of all ranks. `[rank][rows][width]`
    pub fn start(&self, rank: usize) -> usize {
        (0..rank).map(|before| self.rows * (self.width)(before)).sum()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Waits at a barrier that nobody breaks, also when what comes before panics.
struct Passes<'a>(&'a Barrier);

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        let everybody = self.0.wait();
        debug_assert!(everybody, "nobody breaks it");
    }
}

impl Rows {
    /// Rows at `start`, of which each begins `stride` numbers after the one before.
    pub fn new(start: *const f32, stride: usize) -> Rows {
        Rows { start, stride }
    }

    /// The first `len` numbers of row `row`.
    ///
    /// # Safety
    ///
    /// They must be there, and nobody may write them.
    pub unsafe fn part<'a>(self, row: usize, len: usize) -> &'a [f32] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.start.add(row * self.stride), len) }
    }
}

/// Where as many threads wait for each other as there are ranks, again and again.
struct Barrier {
    ranks: u64,
    /// `round << 32 | arrived << 1 | BROKEN`
    state: State,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    told: Condvar,
}

/// Alone on its cache line, because every rank writes it.
#[repr(align(128))]
struct State(AtomicU64);

const BROKEN: u64 = 1;
const ARRIVED: u64 = 2;
const ROUND: u64 = 1 << 32;

impl Barrier {
    fn new(ranks: usize) -> Barrier {
        Barrier {
            ranks: ranks as u64,
            state: State(AtomicU64::new(0)),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            told: Condvar::new(),
        }
    }

    /// Waits for all ranks; what they did before is visible afterwards. `false` if the barrier was broken before all had come: then
    /// no rank passes this round.
    fn wait(&self) -> bool {
        let state = &self.state.0;
        let mut seen = state.load(Ordering::SeqCst);
        let round = loop {
            if seen & BROKEN != 0 {
                return false;
            }
            let round = seen / ROUND;
            let is_last = (seen % ROUND) / ARRIVED + 1 == self.ranks;
            let next = if is_last { (round + 1) % ROUND * ROUND } else { seen + ARRIVED };
            match state.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) if is_last => {
                    self.tell();
                    return true;
                }
                Ok(_) => break round,
                Err(now) => seen = now,
            }
        };
        let waits = || {
            let now = state.load(Ordering::SeqCst);
            now / ROUND == round && now & BROKEN == 0
        };
        if !spin_while(waits) {
            let mut lock = self.sleep.lock();
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // Either the last rank sees the sleeper and tells it, or the sleeper sees the new round.
            while waits() {
                lock = self.told.wait(lock);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        // No rank arrives at a broken barrier, so that the round tells whether all had come.
        state.load(Ordering::SeqCst) / ROUND != round
    }

    fn break_up(&self) {
        self.state.0.fetch_or(BROKEN, Ordering::SeqCst);
        self.tell();
    }

    fn is_broken(&self) -> bool {
        self.state.0.load(Ordering::SeqCst) & BROKEN != 0
    }

    fn tell(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _lock = self.sleep.lock();
            self.told.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use os::socket::Stream;
    #[cfg(unix)]
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    /// What `member` reads of all ranks when it shows `own`. `None` if the team is broken.
    fn read(member: &Member, own: &[f32; 2]) -> Option<Vec<f32>> {
        let mut read = Vec::new();
        // SAFETY: every rank shows one row of two numbers, and writes it after the exchange only.
        let passed = unsafe {
            member.exchange(Rows::new(own.as_ptr(), 2), Extent { rows: 1, width: &|_| 2 }, |rows| {
                (0..member.ranks()).for_each(|rank| read.extend_from_slice(rows(rank).part(0, 2)));
            })
        };
        passed.then_some(read)
    }

    #[test]
    fn every_rank_reads_what_all_show_in_every_exchange() {
        for ranks in [1, 2, 3, 5] {
            let exchanges = if ranks == 2 { 20_000 } else { 500 };
            thread::scope(|scope| {
                for member in Team::of(ranks) {
                    scope.spawn(move || {
                        let mut own = [0.0; 2];
                        for exchange in 0..exchanges {
                            own = [exchange as f32, own[1] + member.rank() as f32];
                            let wanted: Vec<f32> =
                                (0..ranks).flat_map(|rank| [exchange as f32, (rank * (exchange + 1)) as f32]).collect();
                            assert_eq!(read(&member, &own), Some(wanted));
                            if (exchange + member.rank()) % 97 == 0 {
                                thread::sleep(Duration::from_micros(50));
                            }
                        }
                        // A member that leaves breaks the team, so that all wait until the last exchange is over.
                        let _ = read(&member, &own);
                    });
                }
            });
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_member_that_leaves_lets_the_others_through() {
        for exchanges in 0..20 {
            thread::scope(|scope| {
                for member in Team::of(3) {
                    scope.spawn(move || {
                        for exchange in 0..exchanges {
                            if member.rank() == 1 && exchange + 1 == exchanges {
                                return;
                            }
                            let passed = read(&member, &[0.0; 2]).is_some();
                            assert!(passed || member.is_broken());
                        }
                        assert!(exchanges == 0 || read(&member, &[0.0; 2]).is_none());
                    });
                }
            });
        }
    }

    /// Connected streams.
    fn streams() -> (Arc<Stream>, Arc<Stream>) {
        let (here, there) = UnixStream::pair().unwrap();
        (Arc::new(here.into()), Arc::new(there.into()))
    }

    /// A team of `processes` times `each` ranks, as each process sees it.
    fn teams(processes: usize, each: usize) -> Vec<Vec<Member>> {
        let ranks = processes * each;
        let own = |process: usize| process * each..(process + 1) * each;
        let (mut links, mut teams) = (Vec::new(), Vec::new());
        for process in 1..processes {
            let (here, there) = streams();
            links.push((own(process), here));
            teams.push(Team::spanning(ranks, own(process), Links::Leader(there)));
        }
        teams.insert(0, Team::spanning(ranks, own(0), Links::Followers(links)));
        teams
    }

    #[test]
    fn processes_read_what_the_ranks_of_all_show() {
        for (processes, each) in [(2, 1), (3, 1), (2, 2), (3, 3)] {
            let ranks = processes * each;
            thread::scope(|scope| {
                for member in teams(processes, each).into_iter().flatten() {
                    scope.spawn(move || {
                        for exchange in 0..500 {
                            let own = [exchange as f32, member.rank() as f32];
                            let wanted: Vec<f32> = (0..ranks).flat_map(|rank| [exchange as f32, rank as f32]).collect();
                            assert_eq!(read(&member, &own), Some(wanted));
                        }
                        let _ = read(&member, &[0.0; 2]);
                    });
                }
            });
        }
    }

    #[test]
    fn a_member_that_leaves_lets_those_of_other_processes_through() {
        for leaver in 0..6 {
            thread::scope(|scope| {
                for member in teams(3, 2).into_iter().flatten() {
                    scope.spawn(move || {
                        for exchange in 0.. {
                            if member.rank() == leaver && exchange == 20 {
                                return;
                            }
                            if read(&member, &[0.0; 2]).is_none() {
                                assert!(member.is_broken());
                                return;
                            }
                        }
                    });
                }
            });
        }
    }
}
