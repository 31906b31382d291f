//! How much memory can programs of this machine still have?
//!
//! Linux answers in files, which `runner::memory` reads. This module asks the systems that answer in calls.
#![allow(unsafe_code)]

/// Bytes that the system can still hand out; `None` where it does not say, or says it in files.
#[cfg(windows)]
pub fn free_bytes() -> Option<u64> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    // Wine keeps an answer for a second, and gives zeros to a thread that asks while another one waits for the first.
    for _ in 0..100 {
        let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
        // SAFETY: the struct is a live local that states its size.
        let is_known = unsafe { GlobalMemoryStatusEx(&mut status) } != 0;
        if !is_known {
            return None;
        }
        if status.ullTotalPhys > 0 {
            // Free memory that no commit charge is left for cannot be had.
            return Some(status.ullAvailPhys.min(status.ullAvailPageFile));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

/// Free and inactive pages: the system reuses the latter before it swaps.
#[cfg(target_vendor = "apple")]
pub fn free_bytes() -> Option<u64> {
    let mut statistics = std::mem::MaybeUninit::<libc::vm_statistics64>::zeroed();
    let mut count = (size_of::<libc::vm_statistics64>() / size_of::<libc::integer_t>()) as libc::mach_msg_type_number_t;
    // SAFETY: the out-pointer is a live local of `count` integers; sysconf reads a constant.
    let (code, page) = unsafe {
        #[expect(deprecated, reason = "the crate that replaces it is one more dependency for one call")]
        let host = libc::mach_host_self();
        let to = statistics.as_mut_ptr().cast();
        (libc::host_statistics64(host, libc::HOST_VM_INFO64, to, &mut count), libc::sysconf(libc::_SC_PAGESIZE))
    };
    // SAFETY: all zeros are a value too, and the call has filled what it knows.
    let statistics = unsafe { statistics.assume_init() };
    let pages = u64::from(statistics.free_count) + u64::from(statistics.inactive_count);
    (code == libc::KERN_SUCCESS).then(|| pages * u64::try_from(page).unwrap_or(0))
}

/// Not asked.
#[cfg(not(any(windows, target_vendor = "apple")))]
pub fn free_bytes() -> Option<u64> {
    None
}
