//! Bytes on the host that weights are made of: a part of a mapped file, memory of our own, or memory of the caller.
#![allow(unsafe_code)]

use base::error::{Error, Result};
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{Mmap, MmapMut};
use std::hint::black_box;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that are shared and never written. A clone or a slice copies none of them.
#[derive(Clone, Debug)]
pub struct HostBytes {
    whole: Whole,
    range: Range<usize>,
}

#[derive(Clone, Debug)]
enum Whole {
    Mapped(Arc<Mmap>),
    Owned(Arc<[u8]>),
    Callers(&'static [u8]),
}

impl HostBytes {
    /// The bytes at `range` of a mapped file.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the file: whoever read the file's header checks that.
    pub fn mapped(file: Arc<Mmap>, range: Range<usize>) -> HostBytes {
        assert!(range.start <= range.end && range.end <= file.len());
        HostBytes { whole: Whole::Mapped(file), range }
    }

    /// Bytes in memory.
    pub fn owned(bytes: Arc<[u8]>) -> HostBytes {
        HostBytes { range: 0..bytes.len(), whole: Whole::Owned(bytes) }
    }

    /// Bytes of the caller's memory.
    ///
    /// # Safety
    ///
    /// `len` bytes can be read from `start`, and nobody writes or frees them while these bytes or clones or slices of them exist. `start`
    /// may be dangling if `len` is 0.
    ///
    /// # Panics
    ///
    /// If `start` is null, or `len` is more than an address space has.
    pub unsafe fn of_caller(start: *const u8, len: usize) -> HostBytes {
        assert!(!start.is_null() && len <= isize::MAX as usize);
        // SAFETY: not null by the check above, bytes need no alignment, and the rest is the caller's promise. The slice does not live for
        // ever: no copy of the reference leaves this struct, which only lends it for its own lifetime.
        HostBytes { range: 0..len, whole: Whole::Callers(unsafe { std::slice::from_raw_parts(start, len) }) }
    }

    /// `len` bytes that `fill` writes, which finds zeros, in large pages where the system has them. `what` and `knob` are for the message.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] when there is no room for them, and those of `fill`.
    pub fn written(
        len: usize,
        what: &'static str,
        knob: &'static str,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<HostBytes> {
        let refused = |_| Error::OutOfMemory { what, bytes: len as u64, knob };
        let mut map = MmapMut::map_anon(len.max(1)).map_err(refused)?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        fill(&mut map[..len])?;
        Ok(HostBytes::mapped(Arc::new(map.make_read_only().map_err(refused)?), 0..len))
    }

    /// The bytes at `range` of these.
    ///
    /// # Panics
    ///
    /// If the range does not lie in them.
    pub fn slice(&self, range: Range<usize>) -> HostBytes {
        assert!(range.start <= range.end && range.end <= self.range.len());
        let start = self.range.start;
        HostBytes { whole: self.whole.clone(), range: start + range.start..start + range.end }
    }

    /// Brings the bytes into memory, where the system has not read them from a file yet. Memory of the caller is left as it is: to walk
    /// over a gigabyte of pages that are there takes a tenth of a second.
    pub fn populate(&self) {
        if let Whole::Callers(_) = self.whole {
            return;
        }
        const PAGE: usize = 4096;
        #[cfg(target_os = "linux")]
        {
            let start = self.as_ptr().addr() / PAGE * PAGE;
            let len = self.as_ptr().addr() + self.len() - start;
            // SAFETY: the advice changes no memory: pages that these bytes touch are read, and where there is none it fails.
            if unsafe { libc::madvise(std::ptr::without_provenance_mut(start), len, libc::MADV_POPULATE_READ) } == 0 {
                return;
            }
        }
        // Kernels before 5.14 do not know the advice: reading a byte of each page does the same, more slowly.
        black_box(self.iter().step_by(PAGE).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.whole {
            Whole::Mapped(file) => &file[self.range.clone()],
            Whole::Owned(bytes) => &bytes[self.range.clone()],
            Whole::Callers(bytes) => &bytes[self.range.clone()],
        }
    }
}
