//! Zeroed memory that takes no room until it is touched, and none once it is released.
//!
//! Windows charges memory to its commit limit when it is allocated, and not when it is touched. Memory of which a part is used is
//! therefore [reserved](Pages::reserved) there and [committed](Pages::commit) part by part. On other systems the two calls cost nothing.

#![allow(unsafe_code)]

use base::error::{Error, Result};
use bytemuck::Pod;
#[cfg(not(windows))]
use memmap2::MmapMut as Map;
#[cfg(windows)]
use region::Region as Map;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

#[cfg(windows)]
mod region;

/// An array of zeroed numbers in anonymous pages: aligned to a page, and resident only where it was touched.
pub struct Pages<T> {
    /// `None` for an empty array, which cannot be mapped.
    map: Option<Map>,
    number: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// `len` zeros. `what` and `knob` go into the message when there is no memory.
    pub fn zeroed(len: usize, what: &'static str, knob: &'static str) -> Result<Pages<T>> {
        let mut pages = Pages::reserved(len, what, knob)?;
        pages.commit(0..len, what, knob)?;
        Ok(pages)
    }

    /// `len` zeros, of which a part must be [committed](Self::commit) before it is read or written.
    pub fn reserved(len: usize, what: &'static str, knob: &'static str) -> Result<Pages<T>> {
        let refused = |bytes: usize| Error::OutOfMemory { what, bytes: bytes as u64, knob };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| refused(usize::MAX))?;
        let map = match bytes {
            0 => None,
            _ => Some(Map::map_anon(bytes).map_err(|_| refused(bytes))?),
        };
        Ok(Pages { map, number: PhantomData })
    }

    /// Makes a part usable. What it holds already stays.
    pub fn commit(&mut self, part: Range<usize>, what: &'static str, knob: &'static str) -> Result<()> {
        #[cfg(windows)]
        if let Some(map) = &mut self.map {
            let size = size_of::<T>();
            map.commit(part.start * size..part.end * size).map_err(|bytes| Error::OutOfMemory {
                what,
                bytes: bytes as u64,
                knob,
            })?;
        }
        #[cfg(not(windows))]
        let _ = (part, what, knob);
        Ok(())
    }

    /// Gives the pages that lie whole in a part back to the system; returns their bytes. The part must be [committed](Self::commit) before
    /// it is used again, and what it held is lost. 0: nothing has changed.
    pub fn release(&mut self, part: Range<usize>) -> usize {
        let (size, page) = (size_of::<T>(), page_bytes());
        // The mapping begins at a page.
        let pages = (part.start * size).next_multiple_of(page)..part.end * size / page * page;
        match &mut self.map {
            Some(map) if pages.start < pages.end => {
                let bytes = pages.len();
                if release(map, pages) { bytes } else { 0 }
            }
            _ => 0,
        }
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

/// Bytes of a page.
fn page_bytes() -> usize {
    #[cfg(unix)]
    // SAFETY: sysconf reads a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    #[cfg(not(unix))]
    let bytes = region::PAGE_BYTES;
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(1 << 16)
}

/// Gives pages of a map back, which are zero when they are touched next.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn release(map: &mut Map, pages: Range<usize>) -> bool {
    assert!(pages.start <= pages.end && pages.end <= map.len(), "{pages:?} of {} bytes", map.len());
    // SAFETY: the range lies inside the map by the check above, the map is private and anonymous, and borrowed mutably: zeros are
    // values of every `Pod`.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, pages.start, pages.len()) }.is_ok()
}

/// Gives pages of a region back.
#[cfg(windows)]
fn release(map: &mut Map, pages: Range<usize>) -> bool {
    map.decommit(pages)
}

/// Other systems promise no zeros afterwards, and give back when they please.
#[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
fn release(_: &mut Map, _: Range<usize>) -> bool {
    false
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
