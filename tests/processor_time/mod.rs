//! Processor time, which other programs on the machine do not lengthen.
#![allow(dead_code)] // not every program asks for both

use std::time::Duration;

/// That of all threads of this process.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// That of the calling thread.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct that it is given.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
