//! Address space of Windows, which takes memory once it is committed.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{NonNull, null};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};

/// Bytes of a page, on every processor that Windows supports.
pub const PAGE_BYTES: usize = 4096;

/// A range of addresses of which some pages have memory.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the addresses belong to this value alone, as those of a `Vec` do.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes, more than 0, and commits none.
    pub fn map_anon(len: usize) -> io::Result<Region> {
        // SAFETY: a new range at an address that the system chooses.
        let start = unsafe { VirtualAlloc(null(), len, MEM_RESERVE, PAGE_READWRITE) };
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Region { start, len })
    }

    /// Commits the pages that `part` touches. Those that were not committed before are zero. The error is the number of bytes.
    ///
    /// # Panics
    ///
    /// If `part` lies outside.
    pub fn commit(&mut self, part: Range<usize>) -> Result<(), usize> {
        assert!(part.start <= part.end && part.end <= self.len, "{part:?} of {} bytes", self.len);
        if part.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies inside the reserved one by the check above; the call changes no page that is committed already.
        let done = unsafe {
            let start = self.start.as_ptr().add(part.start).cast();
            VirtualAlloc(start, part.len(), MEM_COMMIT, PAGE_READWRITE)
        };
        if done.is_null() { Err(part.len()) } else { Ok(()) }
    }

    /// Takes the memory of whole pages, committed or not; returns whether it did. They must be committed before they are used again.
    ///
    /// # Panics
    ///
    /// If `pages` lies outside or does not begin and end at a page.
    pub fn decommit(&mut self, pages: Range<usize>) -> bool {
        assert!(pages.start <= pages.end && pages.end <= self.len, "{pages:?} of {} bytes", self.len);
        assert!(
            pages.start.is_multiple_of(PAGE_BYTES) && pages.end.is_multiple_of(PAGE_BYTES),
            "{pages:?} are no pages"
        );
        if pages.is_empty() {
            return true;
        }
        // SAFETY: the range lies inside the reserved one by the check above, and is borrowed mutably.
        unsafe { VirtualFree(self.start.as_ptr().add(pages.start).cast(), pages.len(), MEM_DECOMMIT) != 0 }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is this value's until it is dropped. Pages that are not committed are read by nobody: `Pages::commit` comes
        // first, and an access without it ends the process instead of reaching other memory.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: reserved by `map_anon`, released once.
        unsafe { VirtualFree(self.start.as_ptr().cast(), 0, MEM_RELEASE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_committed_is_zero_and_keeps_what_is_written() {
        let mut region = Region::map_anon(1 << 40).expect("address space costs nothing");
        region.commit(10_000..20_000).unwrap();
        assert!(region[10_000..20_000].iter().all(|&byte| byte == 0));
        region[15_000] = 7;
        region.commit(0..30_000).unwrap();
        assert_eq!((region[15_000], region[29_999]), (7, 0));
        assert_eq!(region.commit(0..1 << 40), Err(1 << 40), "no machine has that much");
        assert!(region.decommit(4096..5 * 4096));
        region.commit(0..30_000).unwrap();
        assert_eq!((region[15_000], region[29_999]), (0, 0), "a page that was decommitted is zero");
    }
}
