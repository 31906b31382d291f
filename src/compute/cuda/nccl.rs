//! How do ranks exchange rows where their GPUs cannot reach each other's memory, and between processes? NCCL carries the bytes, and kernels
//! of our own compute.
//!
//! The library is opened when it is needed, and found as cuBLASLt is. Every rank makes a communicator on its own thread. One op is used,
//! an all-gather of bytes, so that NCCL does no arithmetic and every number has the bits that it has by memory of the peers.
//!
//! A kernel of NCCL that waits for a rank does not look at a clock. A thread per rank does: kernels count the exchanges that have ended,
//! and where the count stands still for the patience of the team while exchanges are launched, the thread breaks the team. Invariant:
//! a communicator ends by `ncclCommAbort` alone, on that thread, once the team is broken. `ncclCommDestroy` may wait for ranks that are
//! gone, and the abort of the last rank waits until the graphs of all ranks in the process are destroyed, so no rank waits for it.

use super::driver::{Address, Context, Memory, Pinned};
use super::library;
use super::team::Team;
use base::error::{Error, Result};
use base::log::{Level, log};
use os::lock::Mutex;
use os::thread::{STACK_BYTES, spawn};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

const SONAME: &CStr = c"libnccl.so.2";
const FOLDER_VARIABLE: &str = "NVLLM_NCCL_LIB_DIR";
const PACKAGE: &str = "nvidia/nccl/lib";

/// The release whose configuration is passed, 2.18.1 as NCCL counts: the oldest that is used here, and later ones accept it.
const OLDEST: c_int = 21801;

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
const UINT8: c_int = 1;
/// A number that is left to the library.
const UNDEFINED: c_int = c_int::MIN;

/// Bytes that all ranks together gather in an exchange.
const GATHERED_BYTES: usize = 64 << 20;

/// How long the ranks may take to find each other. NCCL looks at the links of the whole machine.
const OPENING: Duration = Duration::from_secs(60);

/// How often the thread of a rank looks whether the team is broken.
const CHECK: Duration = Duration::from_millis(5);

/// Exchanges that may be launched before they end, with the launches between them fewer than the driver queues: a launch that waits
/// inside NCCL would keep the communicator from its abort.
const AHEAD: i32 = 96;

/// `ncclComm_t`
type Comm = *mut c_void;

/// `ncclUniqueId`: how ranks find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where there is no NCCL, and what the library says.
    pub fn new() -> Result<UniqueId> {
        Library::get().map_err(|what| Error::Unsupported { what: what.to_owned() })?.unique_id()
    }

    /// One that was made in another process. `None` if `bytes` have another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<UniqueId> {
        bytes.try_into().ok().map(UniqueId)
    }

    /// Its bytes, for other processes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The release of NCCL that was found, as in 22703. 0 without one.
pub fn nccl_version() -> i32 {
    Library::get().map_or(0, |library| library.version)
}

/// `ncclConfig_t` of release 2.18.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_int,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return before they are done, so that a rank that waits can give up.
    fn not_blocking() -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

/// The functions of the library. It is never closed.
pub struct Library {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init_rank_config: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int,
    comm_get_async_error: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    comm_abort: unsafe extern "C" fn(Comm) -> c_int,
    all_gather: unsafe extern "C" fn(Address, Address, usize, c_int, Comm, *mut c_void) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Library {
    /// The library, or why it cannot be used: "NCCL was not found (..)".
    pub fn get() -> std::result::Result<&'static Library, &'static str> {
        static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Library::open).as_ref().map_err(String::as_str)
    }

    fn open() -> std::result::Result<Library, String> {
        let soname = SONAME.to_str().expect("a name in ASCII");
        let by_loader = || library::open_by_name(SONAME);
        let by_path = || library::open(soname, FOLDER_VARIABLE, PACKAGE);
        let library = match std::env::var_os(FOLDER_VARIABLE) {
            // A folder that is named comes first: the loader may know an older release.
            Some(_) => by_path().or_else(by_loader),
            None => by_loader().or_else(by_path),
        };
        let Some(library) = library else {
            return Err(format!(
                "NCCL was not found (looked for {soname} in {FOLDER_VARIABLE}, in the folders of the loader and in {PACKAGE} of \
                 Python's packages)"
            ));
        };
        let symbol = |name: &CStr| match library::symbol(library, name) {
            None => Err(format!("{soname} has no {}: NCCL 2.18 or later is needed", name.to_string_lossy())),
            Some(found) => Ok(found.as_ptr()),
        };
        // SAFETY: the functions of these names have these types since the oldest release that has all of them; nccl.h declares them, and
        // the oldest release is checked below.
        let (mut library, get_version) = unsafe {
            use std::mem::transmute;
            let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = transmute(symbol(c"ncclGetVersion")?);
            let library = Library {
                version: 0,
                get_unique_id: transmute::<*mut c_void, unsafe extern "C" fn(*mut UniqueId) -> c_int>(symbol(
                    c"ncclGetUniqueId",
                )?),
                comm_init_rank_config: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int,
                >(symbol(c"ncclCommInitRankConfig")?),
                comm_get_async_error: transmute::<*mut c_void, unsafe extern "C" fn(Comm, *mut c_int) -> c_int>(
                    symbol(c"ncclCommGetAsyncError")?,
                ),
                comm_abort: transmute::<*mut c_void, unsafe extern "C" fn(Comm) -> c_int>(symbol(c"ncclCommAbort")?),
                all_gather: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Address, Address, usize, c_int, Comm, *mut c_void) -> c_int,
                >(symbol(c"ncclAllGather")?),
                get_error_string: transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(symbol(
                    c"ncclGetErrorString",
                )?),
            };
            (library, get_version)
        };
        // SAFETY: the out-pointer is a live local.
        let code = unsafe { get_version(&mut library.version) };
        let version = library.version;
        match code == SUCCESS && version >= OLDEST {
            true => Ok(library),
            false => Err(format!("{soname} is NCCL {version}: {OLDEST} (2.18.1) or later is needed")),
        }
    }

    /// A new name by which the ranks of an engine find each other. One rank makes it.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the out-pointer is a live local of the size that the library writes.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: answers a constant for every code.
        let message = unsafe { CStr::from_ptr((self.get_error_string)(code)) };
        log(Level::Error, format_args!("{call}: {}", message.to_string_lossy()));
        Err(Error::Device { call, code })
    }
}

/// The communicator of one rank, and where it gathers.
pub struct Nccl {
    shared: Arc<Shared>,
    context: Arc<Context>,
    gathered: Memory,
    rank: usize,
    ranks: usize,
}

/// What the thread of a rank and the thread that watches over it share.
struct Shared {
    library: &'static Library,
    /// `None` once it is aborted. Calls are made under the lock.
    comm: Mutex<Option<Handle>>,
    team: Arc<Team>,
    /// Exchanges that were launched, and those that have ended. Both wrap.
    launched: AtomicU32,
    ended: Pinned,
}

/// A communicator that exists.
#[derive(Clone, Copy)]
struct Handle(Comm);

// SAFETY: any thread may use a communicator, one at a time, which the lock around it ensures.
unsafe impl Send for Handle {}

// SAFETY: the word of `ended` is reached by atomic accesses alone, and the rest locks, is atomic or does not change.
unsafe impl Sync for Shared {}

impl Nccl {
    /// Makes the communicator of rank `rank` of `ranks` for the device of `context` on this thread, together with the other ranks, and
    /// the thread that watches over it.
    ///
    /// # Errors
    ///
    /// What the library says, and [`Error::RankLost`] where another rank has failed or does not come within a minute.
    pub fn open(
        library: &'static Library,
        id: UniqueId,
        (rank, ranks): (usize, usize),
        context: &Arc<Context>,
        team: &Arc<Team>,
    ) -> Result<Nccl> {
        let gathered = Memory::new(context, GATHERED_BYTES, "memory that NCCL gathers in", "memory_utilization")?;
        let shared = Arc::new(Shared {
            library,
            comm: Mutex::new(None),
            team: team.clone(),
            launched: AtomicU32::new(0),
            ended: Pinned::zeroed(context, 4, "pinned memory", "locked memory limits")?,
        });
        context.make_current()?;
        let (mut comm, mut config) = (ptr::null_mut(), Config::not_blocking());
        // SAFETY: the context of the rank's device is current, and both pointers are to live locals; the library copies the configuration.
        let code =
            unsafe { (library.comm_init_rank_config)(&mut comm, ranks as c_int, id, rank as c_int, &mut config) };
        if code != IN_PROGRESS {
            library.check("ncclCommInitRankConfig", code)?;
        }
        *shared.comm.lock() = Some(Handle(comm));
        let watched = shared.clone();
        match spawn(&format!("nccl-{rank}"), STACK_BYTES, move || watched.watch()) {
            Ok(watch) => team.keep(watch),
            Err(error) => {
                shared.abort();
                return Err(error);
            }
        }
        shared.settled("ncclCommInitRankConfig", code, OPENING.max(shared.team.patience()))?;
        if shared.team.is_broken() {
            return Err(Error::RankLost);
        }
        Ok(Nccl { shared, context: context.clone(), gathered, rank, ranks })
    }

    /// Bytes that each rank can send in an exchange.
    pub fn sender_bytes(&self) -> usize {
        GATHERED_BYTES / self.ranks / 16 * 16
    }

    /// Where the bytes of all ranks lie after an exchange, one after the other.
    pub fn gathered(&self) -> Address {
        self.gathered.address()
    }

    /// Where this rank puts `bytes` for [`all_gather`](Self::all_gather), if they do not lie elsewhere.
    pub fn own(&self, bytes: usize) -> Address {
        self.gathered.address() + (self.rank * bytes) as u64
    }

    /// The word to which the kernel that follows an exchange adds one.
    pub fn ended(&self) -> Address {
        self.shared.ended.address()
    }

    /// Launches a gathering of `bytes` of every rank, those of this one from `from` on. All ranks pass as many. Does nothing once the
    /// team is broken.
    ///
    /// # Panics
    ///
    /// If there are more bytes than [`sender_bytes`](Self::sender_bytes).
    pub fn all_gather(&self, from: Address, bytes: usize) -> Result<()> {
        assert!(bytes <= self.sender_bytes());
        let shared = &*self.shared;
        // Recorded launches do not run.
        if !self.context.is_capturing() {
            while shared.unfinished() >= AHEAD && !shared.team.is_broken() {
                yield_now();
            }
            self.add_launched(1);
        }
        self.context.make_current()?;
        let stream = self.context.stream().cast();
        let code = match *shared.comm.lock() {
            // SAFETY: `bytes` lie at `from`, as the op that computed them says, and all of them fit by the line above. The stream is of
            // the communicator's device.
            Some(Handle(comm)) => unsafe {
                (shared.library.all_gather)(from, self.gathered(), bytes, UINT8, comm, stream)
            },
            None => return Ok(()),
        };
        shared.settled("ncclAllGather", code, shared.team.patience())
    }

    /// Counts exchanges that a graph launches.
    pub fn add_launched(&self, exchanges: u32) {
        self.shared.launched.fetch_add(exchanges, Ordering::SeqCst);
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // What is freed now waits for kernels, which may wait for other ranks.
        self.shared.team.break_up();
    }
}

impl Shared {
    /// Exchanges that were launched and have not ended.
    fn unfinished(&self) -> i32 {
        self.launched.load(Ordering::SeqCst).wrapping_sub(self.ended.word().load(Ordering::SeqCst)) as i32
    }

    /// Waits until what a call began is launched, or the communicator is aborted.
    fn settled(&self, call: &'static str, mut code: c_int, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while code == IN_PROGRESS {
            if Instant::now() >= deadline {
                self.team.break_up();
                return Err(Error::RankLost);
            }
            yield_now();
            code = match *self.comm.lock() {
                // SAFETY: the communicator exists as long as it is there, and the out-pointer is a live local.
                Some(Handle(comm)) => unsafe {
                    let mut state = SUCCESS;
                    match (self.library.comm_get_async_error)(comm, &mut state) {
                        SUCCESS => state,
                        code => code,
                    }
                },
                None => return Ok(()),
            };
        }
        self.library.check(call, code)
    }

    /// Breaks the team where an exchange does not end, and aborts the communicator once the team is broken.
    fn watch(&self) {
        let mut stands: Option<(u32, Instant)> = None;
        while !self.team.is_broken() {
            let ended = self.ended.word().load(Ordering::SeqCst);
            stands = match stands {
                _ if self.unfinished() <= 0 => None,
                Some((before, since)) if before == ended => Some((before, since)),
                _ => Some((ended, Instant::now())),
            };
            if stands.is_some_and(|(_, since)| since.elapsed() >= self.team.patience()) {
                self.team.break_up();
            }
            sleep(CHECK);
        }
        self.abort();
    }

    fn abort(&self) {
        let comm = self.comm.lock().take();
        if let Some(Handle(comm)) = comm {
            // SAFETY: it exists, and nobody finds it any more. Kernels that wait for other ranks end.
            let _ = unsafe { (self.library.comm_abort)(comm) };
        }
    }
}
