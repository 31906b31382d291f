//! Floating-point numbers one after another, little-endian.

use half::{bf16, f16};

pub fn read<const BYTES: usize>(bytes: &[u8], numbers: &mut [f32], number: impl Fn([u8; BYTES]) -> f32) {
    for (to, &bytes) in numbers.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        *to = number(bytes);
    }
}

pub fn write<const BYTES: usize>(
    numbers: impl IntoIterator<Item = f32>,
    bytes: &mut [u8],
    number: impl Fn(f32) -> [u8; BYTES],
) {
    for (to, from) in bytes.as_chunks_mut::<BYTES>().0.iter_mut().zip(numbers) {
        *to = number(from);
    }
}

pub fn from_f16(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

pub fn from_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

pub fn to_f16(number: f32) -> [u8; 2] {
    f16::from_f32(number).to_le_bytes()
}

pub fn to_bf16(number: f32) -> [u8; 2] {
    bf16::from_f32(number).to_le_bytes()
}
