//! Which process this is: the first that entered the library, or a fork of it. The answer takes no lock.
//!
//! In the child of a `fork()` only the calling thread goes on, and a lock that another thread held stays locked for ever. So
//! [`enter`] numbers the process before anything else of the library runs in it, and what a process shares between its threads
//! is found by this number.
//!
//! The mark of a known process lies on a page that the kernel sets to zero in a child: one load tells, where `getpid` takes
//! 130 ns. Where the kernel has no such pages (Linux before 4.14, macOS) the mark holds the process id, as it does on Windows, where
//! no process is a fork of another.
//!
//! On Windows the first call also pins the module: worker threads and thread-local destructors may outlive `FreeLibrary`.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread;

/// Where the mark is; null before the first call.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Stands in for the page where the kernel has none.
static PLAIN_MARK: AtomicU64 = AtomicU64::new(0);
/// Processes that have entered the library, from the first through its forks to this one.
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// The states of a mark, in its lowest bits; 0 is a new process. Above them stands the process id, or 0 on a page.
const BEGINNING: u64 = 1;
const KNOWN: u64 = 2;
const STATE_BITS: u32 = 2;

/// The number of this process: 0 in the first, and one more than its parent's in each fork that enters the library.
///
/// When the number is new, `begin` runs with it on one thread, and others wait until it has returned. It must be short, must
/// not come back here, and must take no lock that a thread of the parent may have held.
pub fn enter(begin: impl FnOnce(u32)) -> u32 {
    let mark = MARK.load(Ordering::Acquire);
    // SAFETY: a pointer that is not null comes from `make_mark`, and what it points to is never freed.
    let mark = unsafe { mark.as_ref() }.unwrap_or_else(make_mark);
    let here = if std::ptr::eq(mark, &PLAIN_MARK) { u64::from(std::process::id()) << STATE_BITS } else { 0 };
    if mark.load(Ordering::Acquire) != here | KNOWN {
        begin_process(mark, here, begin);
    }
    ENTERED.load(Ordering::Relaxed) - 1
}

#[cold]
fn begin_process(mark: &AtomicU64, here: u64, begin: impl FnOnce(u32)) {
    let before = mark.load(Ordering::Acquire);
    let is_new = before != here | BEGINNING && before != here | KNOWN;
    if is_new && mark.compare_exchange(before, here | BEGINNING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        pin_module();
        begin(ENTERED.fetch_add(1, Ordering::Relaxed));
        mark.store(here | KNOWN, Ordering::Release);
    }
    while mark.load(Ordering::Acquire) != here | KNOWN {
        thread::yield_now();
    }
}

#[cold]
fn make_mark() -> &'static AtomicU64 {
    let page = wiped_on_fork();
    let made = page.map_or((&raw const PLAIN_MARK).cast_mut(), |(page, _)| page);
    let first = match MARK.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(first) => {
            if let Some((page, bytes)) = page {
                unmap(page, bytes);
            }
            first
        }
    };
    // SAFETY: a static, or a page that is mapped for ever; a zeroed page is an atomic 0.
    unsafe { &*first }
}

/// A new page of zeros that is zero again in a child, and its size.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn wiped_on_fork() -> Option<(*mut AtomicU64, usize)> {
    // SAFETY: maps a page of its own, and unmaps it if the kernel does not know the advice.
    unsafe {
        let bytes = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).ok()?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, bytes, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, bytes);
            return None;
        }
        Some((page.cast(), bytes))
    }
}

/// Frees a page that only this thread has seen.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn unmap(page: *mut AtomicU64, bytes: usize) {
    // SAFETY: `wiped_on_fork` mapped it with this size, and no other thread has seen it.
    unsafe { libc::munmap(page.cast(), bytes) };
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn wiped_on_fork() -> Option<(*mut AtomicU64, usize)> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn unmap(_page: *mut AtomicU64, _bytes: usize) {}

/// Keeps the module that holds this function loaded until the process ends.
#[cfg(windows)]
fn pin_module() {
    use windows_sys::Win32::System::LibraryLoader::{
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
    };
    let mut module = null_mut();
    let address = (pin_module as fn() as *const u16).cast();
    // SAFETY: the address lies in this module, and the out-pointer is a live local. A call that fails changes nothing.
    unsafe {
        GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN, address, &mut module)
    };
}

/// The link flag `nodelete` does it on Linux, and elsewhere the loader keeps a library that has thread-local destructors.
#[cfg(not(windows))]
fn pin_module() {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_thread_begins_and_the_others_wait_for_it() {
        for here in [0, 77 << STATE_BITS] {
            // What a process before this one left: nothing on a page, its own id elsewhere.
            let mark = AtomicU64::new(if here == 0 { 0 } else { 76 << STATE_BITS | KNOWN });
            let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        begin_process(&mark, here, |_| {
                            begun.fetch_add(1, Ordering::Relaxed);
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                        assert_eq!(done.load(Ordering::Relaxed), 1);
                    });
                }
            });
            assert_eq!(begun.into_inner(), 1);
        }
    }
}
