//! Four numbers in plain Rust, which every compiler knows how to put into a 128-bit register.

use super::{Kernel, Lanes};
use half::{bf16, f16};

pub fn run(kernel: impl Kernel) {
    kernel.run(Portable(()));
}

#[derive(Clone, Copy)]
pub struct Portable(());

impl Lanes for Portable {
    type V = [f32; 4];
    type U = [u32; 4];
    const N: usize = 4;
    const QUERIES: usize = 3;

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 4] {
        [value; 4]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's promise; an unaligned read of numbers that have no invalid bits.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> [f32; 4] {
        // SAFETY: as in `load`.
        unsafe { from.cast::<[f16; 4]>().read_unaligned() }.map(f16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> [f32; 4] {
        // SAFETY: as in `load`.
        unsafe { from.cast::<[u16; 4]>().read_unaligned() }.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> [f32; 4] {
        // SAFETY: as in `load`.
        unsafe { from.cast::<[i8; 4]>().read_unaligned() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, len: usize) -> [f32; 4] {
        let mut v = [0.0; 4];
        // SAFETY: the caller promises that `len` numbers are there and less than 4.
        unsafe { std::ptr::copy_nonoverlapping(from, v.as_mut_ptr(), len) };
        v
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: [f32; 4], len: usize) {
        // SAFETY: the caller promises that `len` numbers may be written and are less than 4.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), to, len) }
    }

    #[inline(always)]
    fn prefetch<T>(self, _from: *const T) {}

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
        } else {
            std::array::from_fn(|i| a[i] * b[i] + c[i])
        }
    }

    #[inline(always)]
    fn max(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn select_less(self, x: [f32; 4], bound: [f32; 4], then: [f32; 4], otherwise: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if x[i] < bound[i] { then[i] } else { otherwise[i] })
    }

    #[inline(always)]
    fn pow2(self, n: [f32; 4]) -> [f32; 4] {
        n.map(|n| f32::from_bits((n as i32 + 127).cast_unsigned() << 23))
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> [u32; 4] {
        [value; 4]
    }

    #[inline(always)]
    fn count_from(self, first: u32) -> [u32; 4] {
        [0, 1, 2, 3].map(|i| first.wrapping_add(i))
    }

    #[inline(always)]
    unsafe fn store_u32(self, to: *mut u32, v: [u32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u32; 4]>().write_unaligned(v) }
    }

    #[inline(always)]
    fn add_u32(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn xor(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] ^ b[i])
    }

    #[inline(always)]
    fn and(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn shift_right(self, a: [u32; 4], bits: u32) -> [u32; 4] {
        a.map(|a| a >> bits)
    }

    #[inline(always)]
    fn mul_wide(self, a: [u32; 4], b: [u32; 4]) -> [[u32; 4]; 2] {
        let wide = |i: usize| u64::from(a[i]) * u64::from(b[i]);
        [std::array::from_fn(|i| (wide(i) >> 32) as u32), std::array::from_fn(|i| wide(i) as u32)]
    }

    #[inline(always)]
    fn to_bits(self, v: [f32; 4]) -> [u32; 4] {
        v.map(f32::to_bits)
    }

    #[inline(always)]
    fn with_bits(self, v: [u32; 4]) -> [f32; 4] {
        v.map(f32::from_bits)
    }

    #[inline(always)]
    fn to_f32(self, v: [u32; 4]) -> [f32; 4] {
        v.map(|v| v.cast_signed() as f32)
    }

    #[inline(always)]
    fn truncate(self, v: [f32; 4]) -> [u32; 4] {
        v.map(|v| (v as i32).cast_unsigned())
    }

    #[inline(always)]
    fn sum(self, v: [f32; 4]) -> f32 {
        (v[0] + v[1]) + (v[2] + v[3])
    }

    #[inline(always)]
    fn sum4(self, v: [[f32; 4]; 4]) -> [f32; 4] {
        v.map(|v| self.sum(v))
    }

    #[inline(always)]
    fn greatest(self, v: [f32; 4]) -> f32 {
        v[0].max(v[1]).max(v[2].max(v[3]))
    }
}
