//! Numbers as the bytes that a kernel reads, and bytes from a kernel as numbers.

use bytemuck::{AnyBitPattern, NoUninit};

/// Writes `values` at byte `at` and returns where they end.
pub fn put<T: NoUninit>(to: &mut [u8], at: usize, values: &[T]) -> usize {
    let from: &[u8] = bytemuck::cast_slice(values);
    to[at..at + from.len()].copy_from_slice(from);
    at + from.len()
}

/// Bytes as numbers.
///
/// # Panics
///
/// If the bytes are not aligned, or no whole numbers.
pub fn numbers<T: AnyBitPattern>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}
