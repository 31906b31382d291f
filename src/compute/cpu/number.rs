//! The number types of keys and values.
#![allow(unsafe_code)]

use super::lanes::Lanes;
use crate::KvFormat;
use bytemuck::Pod;
use formats::DType;
use half::{bf16, f16};

/// What a KV cache holds: numbers, or integers with scales.
pub trait KvNumber: Pod + Send + Sync {
    /// The format of such a cache.
    const FORMAT: KvFormat;
    /// Whether each key and each value has a scale.
    const IS_SCALED: bool = Self::FORMAT.scale_bytes() > 0;

    /// The same number.
    fn to_f32(self) -> f32;
    /// A vector of them.
    ///
    /// # Safety
    ///
    /// `L::N` numbers must be readable.
    unsafe fn load<L: Lanes>(lanes: L, from: *const Self) -> L::V;
}

/// A number type that stands for itself.
pub trait Number: KvNumber {
    /// The nearest number of this type, the even one of two.
    fn from_f32(value: f32) -> Self;
}

impl KvNumber for i8 {
    const FORMAT: KvFormat = KvFormat::Int8;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, from: *const i8) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { lanes.load_i8(from) }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl KvNumber for f32 {
    const FORMAT: KvFormat = KvFormat::Plain(DType::F32);

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, from: *const f32) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { lanes.load(from) }
    }
}

impl Number for f16 {
    #[inline(always)]
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl KvNumber for f16 {
    const FORMAT: KvFormat = KvFormat::Plain(DType::F16);

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, from: *const f16) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { lanes.load_f16(from) }
    }
}

impl Number for bf16 {
    /// Without the branches of `bf16::from_f32`, so that a loop over it becomes vector instructions.
    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // Rounding could carry a NaN over to an infinity or to zero; it keeps its upper bits and becomes a quiet one.
        let bits = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
        bf16::from_bits((bits >> 16) as u16)
    }
}

impl KvNumber for bf16 {
    const FORMAT: KvFormat = KvFormat::Plain(DType::Bf16);

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, from: *const bf16) -> L::V {
        // SAFETY: the caller's promise.
        unsafe { lanes.load_bf16(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        let edges =
            [0.0, -0.0, 1.0, 1.003_906_3, 1.011_718_8, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -3e38];
        let spread = (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
        let nan_of_low_bits = f32::from_bits(0x7f80_0001);
        for value in edges.into_iter().chain(spread).chain([nan_of_low_bits, f32::from_bits(u32::MAX)]) {
            let ours = <bf16 as Number>::from_f32(value);
            assert_eq!(ours.to_bits(), bf16::from_f32(value).to_bits(), "{value} {:08x}", value.to_bits());
            assert!(KvNumber::to_f32(ours).is_nan() == value.is_nan());
        }
    }
}
