//! A slice that several threads write at once, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that may be handed to several threads.
#[derive(Clone, Copy)]
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: `Disjoint::part` makes its caller promise that no two threads hold overlapping parts, and `T: Send`.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice over for as long as parts of it are out.
    pub fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Where the slice begins.
    pub fn start(&self) -> *mut T {
        self.start
    }

    /// A part of it, which several threads may write at once too.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the slice.
    pub fn within(&self, range: Range<usize>) -> Disjoint<'a, T> {
        assert!(range.start <= range.end && range.end <= self.len);
        Disjoint { start: self.start.wrapping_add(range.start), len: range.len(), slice: PhantomData }
    }

    /// One thread's part.
    ///
    /// # Safety
    ///
    /// No other part that overlaps `range` may be alive.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies in the slice by the line above; the caller promises that it overlaps no other part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
