//! How do the GPUs of one engine reach each other?
//!
//! Where every GPU reaches the memory of every other one, each rank has a region that every rank may write: physical memory of its own
//! device, mapped for all of them at one address. Other memory of the devices stays their own: `cuCtxEnablePeerAccess` would map all of
//! it, and make every later allocation wait for the peers.
//! Elsewhere, where access is promised but does not work, and with several processes, NCCL carries the rows (`nccl.rs`).
//!
//! Invariant: no region is unmapped before every rank has dropped its [`Member`] and every stream is idle. A member that is dropped
//! breaks the [team](super::team): kernels that wait for its rank give up, and so do threads.

use super::driver::{Address, Context, check};
use super::nccl::{Library, UniqueId};
use super::pieces::{location, properties};
use super::team::Team;
use base::error::{Error, Result};
use base::log::{Level, log};
use cudarc::driver::sys;
use os::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Ranks at most, as `kernels/common/exchange.cuh` says.
pub const MAX_RANKS: usize = 8;

/// Bytes of a region, unless a device maps memory in larger pieces. Two slots of this, divided among the senders, hold 4,096 rows of
/// 4,096 numbers with two ranks: an exchange of a full batch of 8,192 tokens is two launches. Each GPU of an engine has one.
const REGION_BYTES: usize = 128 << 20;

/// All bits set: the state of a word that nobody has sent.
const EMPTY: u32 = u32::MAX;

/// By which way ranks exchange rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Kernels write into the memory of the other GPUs.
    PeerMemory,
    /// NCCL, by whatever the GPUs have in common.
    Nccl,
}

/// What the ranks of this process share.
pub struct Peers {
    /// The first of them, and how many ranks there are in all processes.
    first: usize,
    ranks: usize,
    /// `None` where ranks exchange by NCCL.
    regions: Option<Regions>,
    /// Whether some rank did not get what others wrote into its region.
    is_memory_refused: AtomicBool,
    /// By which ranks find each other, while they open. Of several processes, one makes it for all.
    nccl_id: Mutex<Option<UniqueId>>,
    team: Arc<Team>,
    faults: Vec<AtomicU64>,
    /// Dropped last: all that is above needs them.
    contexts: Vec<Arc<Context>>,
}

/// The place of one rank among its peers. The team is broken when it is dropped.
pub struct Member {
    peers: Arc<Peers>,
    rank: usize,
}

/// What a test lets a rank do instead of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It launches nothing, now and later, and says nothing.
    Silence,
    /// The launch fails.
    Error,
    /// The thread panics.
    Panic,
}

impl Peers {
    /// Opens the devices `ordinals`, one for each rank, and maps memory for what they send each other. A kernel waits for another rank
    /// for at most `patience`. Where a device cannot reach the memory of another one, ranks exchange by NCCL.
    ///
    /// # Errors
    ///
    /// Where a device does not exist or is named twice, where devices differ, where they cannot reach each other's memory and there is no
    /// NCCL, and where there is no memory.
    pub fn open(ordinals: &[usize], patience: Duration) -> Result<Vec<Member>> {
        Peers::open_by(None, ordinals, patience)
    }

    /// The same, by the way that a test names.
    #[doc(hidden)]
    pub fn open_by(transport: Option<Transport>, ordinals: &[usize], patience: Duration) -> Result<Vec<Member>> {
        let contexts = open_devices(ordinals, ordinals.len())?;
        let regions = match transport.map_or_else(|| choose(ordinals, &contexts), Ok)? {
            Transport::PeerMemory => Some(Regions::map(ordinals, &contexts)?),
            Transport::Nccl => {
                Library::get().map_err(|what| Error::Unsupported { what: what.to_owned() })?;
                None
            }
        };
        Peers::of(contexts, 0, ordinals.len(), regions, patience)
    }

    /// Opens the devices `ordinals` for as many ranks, from `first` on, of `ranks` in several processes. All of them exchange by NCCL: what
    /// [`find_by`](Self::find_by) gets must be known before they open.
    ///
    /// # Errors
    ///
    /// Where a device does not exist or is named twice, where devices differ, and where there is no NCCL.
    pub fn open_some(ordinals: &[usize], first: usize, ranks: usize, patience: Duration) -> Result<Vec<Member>> {
        Library::get().map_err(|missing| Error::Unsupported {
            what: format!(
                "GPUs of several processes exchange by NCCL, and {missing}: install nvidia-nccl-cu13 or libnccl2, or use the GPUs of one \
                 process (tensor_parallel_size, device_indices)"
            ),
        })?;
        Peers::of(open_devices(ordinals, ranks)?, first, ranks, None, patience)
    }

    fn of(
        contexts: Vec<Arc<Context>>,
        first: usize,
        ranks: usize,
        regions: Option<Regions>,
        patience: Duration,
    ) -> Result<Vec<Member>> {
        let own = first..first + contexts.len();
        let peers = Arc::new(Peers {
            first,
            ranks,
            regions,
            is_memory_refused: AtomicBool::new(false),
            nccl_id: Mutex::default(),
            team: Arc::new(Team::new(&contexts[0], contexts.len(), patience)?),
            faults: contexts.iter().map(|_| AtomicU64::new(0)).collect(),
            contexts,
        });
        Ok(own.map(|rank| Member { peers: peers.clone(), rank }).collect())
    }

    /// The name by which the ranks of all processes find each other in NCCL, which one process makes.
    pub fn find_by(&self, id: UniqueId) {
        *self.nccl_id.lock() = Some(id);
    }

    /// Whether they still compute together.
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// By which way they exchange rows.
    pub fn transport(&self) -> Transport {
        match self.regions.is_some() && !self.is_memory_refused.load(Ordering::SeqCst) {
            true => Transport::PeerMemory,
            false => Transport::Nccl,
        }
    }

    /// As [`Team::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.team.is_broken()
    }

    /// As [`Team::break_up`].
    pub fn break_up(&self) {
        self.team.break_up();
    }

    /// Lets rank `rank` do `fault` at the exchange that follows `exchanges` others from now on.
    #[doc(hidden)]
    pub fn inject(&self, rank: usize, exchanges: u32, fault: Fault) {
        self.faults[rank - self.first].store((u64::from(exchanges) + 1) << 2 | (fault as u64 + 1), Ordering::SeqCst);
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.break_up();
        // Kernels of any rank may write to any region. Each context answers for its stream.
        for context in &self.contexts {
            let _ = context.synchronize();
        }
        self.team.end_watches();
    }
}

impl Member {
    /// This rank, among those of all processes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are in all processes.
    pub fn ranks(&self) -> usize {
        self.peers.ranks
    }

    /// Its place among the ranks of this process.
    fn own(&self) -> usize {
        self.rank - self.peers.first
    }

    /// The device of this rank.
    pub fn context(&self) -> &Arc<Context> {
        &self.peers.contexts[self.own()]
    }

    /// Compute capability of the device, as in 90.
    pub fn capability(&self) -> i32 {
        self.context().facts().capability
    }

    /// Stands for the GPU of this rank among those of all hosts.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn gpu(&self) -> Result<u64> {
        self.context().identity()
    }

    /// What this rank shares with the others of its process.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Where the regions of all ranks begin, one after the other. 0 where there are none.
    pub fn regions(&self) -> Address {
        self.peers.regions.as_ref().map_or(0, |regions| regions.start)
    }

    /// Bytes that one rank can send to another one in an exchange by memory: `[2 slots][ranks]` of them are in each region.
    pub fn sender_bytes(&self) -> usize {
        self.peers.regions.as_ref().map_or(0, |regions| regions.bytes / 2 / self.ranks() / 16 * 16)
    }

    /// Where a kernel finds whether the team is broken.
    pub fn broken(&self) -> Address {
        self.peers.team.broken()
    }

    /// How long a kernel waits for another rank.
    pub fn patience(&self) -> Duration {
        self.peers.team.patience()
    }

    /// Waits until all ranks of this process are here.
    ///
    /// # Errors
    ///
    /// [`Error::RankLost`] if one has failed, or does not come.
    pub fn meet(&self) -> Result<()> {
        self.peers.team.meet()
    }

    /// The name by which the ranks find each other in NCCL, which the first of them makes unless it [came](Peers::find_by) from another
    /// process. All ranks of this process call it at the same time.
    pub fn nccl_id(&self, library: &Library) -> Result<UniqueId> {
        if self.own() == 0 && self.peers.nccl_id.lock().is_none() {
            self.peers.find_by(library.unique_id()?);
        }
        self.meet()?;
        let id = *self.peers.nccl_id.lock();
        id.ok_or(Error::RankLost)
    }

    /// Agrees with the other ranks whether the regions serve, as `is_whole` says of this one's. All ranks call it at the same time, with
    /// idle streams. Where they do not, waits of kernels that were given up and injected faults are forgotten.
    ///
    /// # Errors
    ///
    /// As [`meet`](Self::meet).
    pub fn agree_on_memory(&self, is_whole: bool) -> Result<bool> {
        if !is_whole {
            self.peers.is_memory_refused.store(true, Ordering::SeqCst);
        }
        self.meet()?;
        if self.peers.transport() == Transport::PeerMemory {
            return Ok(true);
        }
        if self.own() == 0 {
            self.peers.team.forget_waits();
            self.peers.faults.iter().for_each(|fault| fault.store(0, Ordering::SeqCst));
        }
        self.meet()?;
        Ok(false)
    }

    /// Whether no other rank has failed or left. A kernel may have given up its wait.
    pub fn is_whole(&self) -> bool {
        self.peers.team.is_whole()
    }

    /// The fault that is due at this exchange.
    pub fn fault(&self) -> Option<Fault> {
        let due = &self.peers.faults[self.own()];
        let (left, fault) = match due.load(Ordering::Relaxed) {
            0 => return None,
            due => (due >> 2, due & 3),
        };
        if left > 1 {
            due.store((left - 1) << 2 | fault, Ordering::Relaxed);
            return None;
        }
        [Fault::Silence, Fault::Error, Fault::Panic].into_iter().find(|known| *known as u64 + 1 == fault)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.peers.break_up();
    }
}

/// The devices `ordinals`, for some of `ranks` ranks.
fn open_devices(ordinals: &[usize], ranks: usize) -> Result<Vec<Arc<Context>>> {
    if ranks > MAX_RANKS {
        return Err(Error::Option {
            field: "tensor_parallel_size",
            value: ranks.to_string(),
            wanted: "at most 8 on CUDA",
        });
    }
    for (index, ordinal) in ordinals.iter().enumerate() {
        if ordinals[..index].contains(ordinal) {
            return Err(Error::Option {
                field: "device_indices",
                value: format!("{ordinals:?}"),
                wanted: "each GPU once: a GPU serves one rank",
            });
        }
    }
    let contexts = ordinals.iter().map(|&ordinal| Context::open(ordinal)).collect::<Result<Vec<_>>>()?;
    check_alike(ordinals, &contexts)?;
    Ok(contexts)
}

/// Refuses devices that are not of one kind.
fn check_alike(ordinals: &[usize], contexts: &[Arc<Context>]) -> Result<()> {
    for (a, b) in pairs(ordinals.len()) {
        let (own, other) = (contexts[a].facts().capability, contexts[b].facts().capability);
        if own != other {
            let what = format!(
                "GPUs {} and {} have compute capability {}.{} and {}.{}: ranks compute on equal GPUs, so name others \
                 or reduce tensor_parallel_size",
                ordinals[a],
                ordinals[b],
                own / 10,
                own % 10,
                other / 10,
                other % 10
            );
            return Err(Error::Unsupported { what });
        }
    }
    Ok(())
}

/// Memory where every device says that it reaches the memory of every other one, or else NCCL.
fn choose(ordinals: &[usize], contexts: &[Arc<Context>]) -> Result<Transport> {
    for (a, b) in pairs(ordinals.len()) {
        let mut reaches = 0;
        // SAFETY: both devices were opened, the out-pointer is a live local.
        let code = unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, contexts[a].device(), contexts[b].device()) };
        check("cuDeviceCanAccessPeer", code)?;
        if reaches != 0 {
            continue;
        }
        let (a, b) = (ordinals[a], ordinals[b]);
        if let Err(missing) = Library::get() {
            return Err(Error::Unsupported {
                what: without_nccl(&format!("GPU {a} cannot access the memory of GPU {b}"), missing),
            });
        }
        log(Level::Info, format_args!("GPU {a} cannot access the memory of GPU {b}: ranks exchange by NCCL"));
        return Ok(Transport::Nccl);
    }
    Ok(Transport::PeerMemory)
}

/// The message where ranks need NCCL for the reason `why`, which is `missing`.
pub fn without_nccl(why: &str, missing: &str) -> String {
    format!("{why}, and {missing}: install nvidia-nccl-cu13 or libnccl2, or set tensor_parallel_size to 1")
}

fn pairs(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..ranks).flat_map(move |a| (0..ranks).filter(move |&b| b != a).map(move |b| (a, b)))
}

/// The regions of all ranks, at one range of addresses that every device of the engine knows.
struct Regions {
    start: Address,
    /// Of one region.
    bytes: usize,
    ranks: usize,
    /// Regions that are mapped, from the first on.
    mapped: usize,
}

impl Regions {
    fn map(ordinals: &[usize], contexts: &[Arc<Context>]) -> Result<Regions> {
        let access = |ordinal: &usize| sys::CUmemAccessDesc {
            location: location(*ordinal as i32),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let accesses: Vec<sys::CUmemAccessDesc> = ordinals.iter().map(access).collect();
        let mut bytes = REGION_BYTES;
        for &ordinal in ordinals {
            let (mut granularity, properties) = (0, properties(ordinal as i32));
            let flags = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
            // SAFETY: the properties and the out-pointer are live locals.
            let code = unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &properties, flags) };
            check("cuMemGetAllocationGranularity", code)?;
            bytes = bytes.next_multiple_of(granularity.max(1));
        }
        let mut start = 0;
        let ranks = ordinals.len();
        // SAFETY: the out-pointer is a live local.
        let code = unsafe { sys::cuMemAddressReserve(&mut start, bytes * ranks, 0, 0, 0) };
        check("cuMemAddressReserve", code)?;
        let mut regions = Regions { start, bytes, ranks, mapped: 0 };
        for (rank, (&ordinal, context)) in ordinals.iter().zip(contexts).enumerate() {
            context.make_current()?;
            let (mut handle, properties) = (0, properties(ordinal as i32));
            let at = start + (rank * bytes) as u64;
            // SAFETY: the properties and the out-pointer are live locals. The range was reserved above and nothing is mapped there; the
            // mapping keeps the memory, whose handle is released here on every path.
            unsafe {
                match sys::cuMemCreate(&mut handle, bytes, &properties, 0) {
                    sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                        let what = "memory that the GPUs exchange through";
                        return Err(Error::OutOfMemory { what, bytes: bytes as u64, knob: "tensor_parallel_size" });
                    }
                    code => check("cuMemCreate", code)?,
                }
                let mapped = check("cuMemMap", sys::cuMemMap(at, bytes, 0, handle, 0));
                let released = check("cuMemRelease", sys::cuMemRelease(handle));
                mapped?;
                regions.mapped = rank + 1;
                released?;
                check("cuMemSetAccess", sys::cuMemSetAccess(at, bytes, accesses.as_ptr(), accesses.len()))?;
                check("cuMemsetD32Async", sys::cuMemsetD32Async(at, EMPTY, bytes / 4, context.stream()))?;
            }
            context.synchronize()?;
        }
        Ok(regions)
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        // SAFETY: mapped and reserved by `map`. `Peers` has waited for all streams; where `map` fails, nothing was launched.
        unsafe {
            for rank in 0..self.mapped {
                let _ = sys::cuMemUnmap(self.start + (rank * self.bytes) as u64, self.bytes);
            }
            let _ = sys::cuMemAddressFree(self.start, self.bytes * self.ranks);
        }
    }
}
