//! Zeroed memory that takes no room until it is touched.

use crate::error::{Error, Result};
use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// An array of zeroed numbers in anonymous pages: aligned to a page, and resident only where it was touched.
pub struct Pages<T> {
    /// `None` for an empty array, which cannot be mapped.
    map: Option<MmapMut>,
    number: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// `len` zeros. `what` and `knob` go into the message when there is no memory.
    pub fn zeroed(len: usize, what: &'static str, knob: &'static str) -> Result<Pages<T>> {
        let refused = |bytes: usize| Error::OutOfMemory { what, bytes: bytes as u64, knob };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| refused(usize::MAX))?;
        let map = match bytes {
            0 => None,
            _ => Some(MmapMut::map_anon(bytes).map_err(|_| refused(bytes))?),
        };
        Ok(Pages { map, number: PhantomData })
    }

    /// Asks the system for large pages, for memory that is read here and there: looking up an address of small ones can
    /// cost more than the read. Memory then becomes resident 2 MiB at a time. A system without them changes nothing.
    pub fn in_large_pages(self) -> Pages<T> {
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        self
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { map: None, number: PhantomData }
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.map {
            Some(map) => bytemuck::cast_slice(map),
            None => &[],
        }
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            Some(map) => bytemuck::cast_slice_mut(map),
            None => &mut [],
        }
    }
}
