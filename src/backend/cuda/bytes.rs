//! Numbers as the bytes that a kernel reads, and bytes from a kernel as numbers.
//!
//! Both ways are sound for types without padding alone, which [`Bytes`] and [`Number`] name.

use super::plan::{DecodeCta, DecodeRow, PrefillTile};
use crate::batch::{Adjustment, BlockCopy, Sampling, TokenId};

/// Types without padding or pointers, whose bytes are the numbers a kernel reads.
///
/// # Safety
///
/// Every byte of a value is initialized.
pub unsafe trait Bytes: Copy {}
// SAFETY: one number.
unsafe impl Bytes for u32 {}
// SAFETY: numbers of four bytes, without padding.
unsafe impl Bytes for DecodeRow {}
// SAFETY: as above.
unsafe impl Bytes for DecodeCta {}
// SAFETY: as above.
unsafe impl Bytes for PrefillTile {}
// SAFETY: numbers of four and eight bytes, whose sizes add up to that of the whole.
unsafe impl Bytes for Sampling {}
const _: () = assert!(size_of::<Sampling>() == 4 * 14 + 8 * 2);
// SAFETY: three numbers of four bytes.
unsafe impl Bytes for Adjustment {}
const _: () = assert!(size_of::<Adjustment>() == 12);
// SAFETY: two numbers of four bytes.
unsafe impl Bytes for BlockCopy {}
const _: () = assert!(size_of::<BlockCopy>() == 8);

/// Writes `values` at byte `at` and returns where they end.
pub fn put<T: Bytes>(to: &mut [u8], at: usize, values: &[T]) -> usize {
    let bytes = size_of_val(values);
    // SAFETY: `values` are initialized bytes, `size_of_val` of them, by `Bytes`.
    let from = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) };
    to[at..at + bytes].copy_from_slice(from);
    at + bytes
}

/// Bytes as numbers of four bytes.
///
/// # Panics
///
/// If the bytes are not aligned.
pub fn numbers<T: Number>(bytes: &[u8]) -> &[T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && size_of::<T>() == 4);
    // SAFETY: aligned by the line above, and any four bytes are such a number by `Number`.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 4) }
}

/// A number of four bytes.
///
/// # Safety
///
/// Any four bytes are a value.
pub unsafe trait Number {}
// SAFETY: as the trait asks.
unsafe impl Number for TokenId {}
// SAFETY: as above.
unsafe impl Number for f32 {}
