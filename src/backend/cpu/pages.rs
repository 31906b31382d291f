//! Zeroed memory that takes no room until it is touched.

use crate::error::{Error, Result};
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// An array of zeroed numbers in anonymous pages: aligned to a page, and resident only where it was touched.
pub struct Pages<T> {
    /// `None` for an empty array, which cannot be mapped.
    map: Option<MmapMut>,
    len: usize,
    number: PhantomData<T>,
}

/// Types that any bytes are valid for.
///
/// # Safety
///
/// Every bit pattern is a value, and all zeros is 0.
pub unsafe trait Plain: Copy {}
// SAFETY: a number of fixed width has no invalid bits.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u8 {}

impl<T: Plain> Pages<T> {
    /// `len` zeros. `what` and `knob` go into the message when there is no memory.
    pub fn zeroed(len: usize, what: &'static str, knob: &'static str) -> Result<Pages<T>> {
        let refused = |bytes: usize| Error::OutOfMemory { what, bytes: bytes as u64, knob };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| refused(usize::MAX))?;
        let map = match bytes {
            0 => None,
            _ => Some(MmapMut::map_anon(bytes).map_err(|_| refused(bytes))?),
        };
        Ok(Pages { map, len, number: PhantomData })
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { map: None, len: 0, number: PhantomData }
    }
}

impl<T: Plain> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.map {
            // SAFETY: the mapping has `len` numbers by `zeroed`, begins at a page, and any bytes are a valid `T`.
            Some(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), self.len) },
            None => &[],
        }
    }
}

impl<T: Plain> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            // SAFETY: as in `deref`, and `&mut self` makes the access unique.
            Some(map) => unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), self.len) },
            None => &mut [],
        }
    }
}
