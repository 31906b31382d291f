//! Bytes on the host that weights are made of: a part of a mapped file, or memory of our own.

use crate::error::{Error, Result};
use memmap2::{Mmap, MmapMut};
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

    /// `len` bytes that `fill` writes, which finds zeros. `what` and `knob` are for the message.
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
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.whole {
            Whole::Mapped(file) => &file[self.range.clone()],
            Whole::Owned(bytes) => &bytes[self.range.clone()],
        }
    }
}
