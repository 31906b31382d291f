//! Four numbers in plain Rust, which every compiler knows how to put into a 128-bit register.

use super::{Kernel, Lanes, operations};
use half::{bf16, f16};
use std::array::from_fn;

pub fn run(kernel: impl Kernel) {
    kernel.run(Portable(()));
}

#[derive(Clone, Copy)]
pub struct Portable(());

type V = [f32; 4];
type U = [u32; 4];

impl Lanes for Portable {
    type V = V;
    type U = U;
    const N: usize = 4;
    const REGISTERS: usize = 16;
    const QUERIES: usize = 3;

    #[inline(always)]
    unsafe fn token() -> Self {
        Portable(())
    }

    operations! { unsafe fn with self:
        // An unaligned read of numbers that have no invalid bits, as are those below.
        load(from: *const f32) -> V = from.cast::<V>().read_unaligned();
        load_f16(from: *const f16) -> V = from.cast::<[f16; 4]>().read_unaligned().map(f16::to_f32);
        load_bf16(from: *const bf16) -> V =
            from.cast::<[u16; 4]>().read_unaligned().map(|bits| f32::from_bits(u32::from(bits) << 16));
        load_i8(from: *const i8) -> V = from.cast::<[i8; 4]>().read_unaligned().map(f32::from);
        load_first(from: *const f32, len: usize) -> V = {
            let mut v = [0.0; 4];
            std::ptr::copy_nonoverlapping(from, v.as_mut_ptr(), len);
            v
        };
        store(to: *mut f32, v: V) = to.cast::<V>().write_unaligned(v);
        store_first(to: *mut f32, v: V, len: usize) = std::ptr::copy_nonoverlapping(v.as_ptr(), to, len);
        store_u32(to: *mut u32, v: U) = to.cast::<U>().write_unaligned(v);
    }

    #[inline(always)]
    fn prefetch<T>(self, _from: *const T) {}

    operations! { fn:
        splat(value: f32) -> V = [value; 4];
        add(a: V, b: V) -> V = from_fn(|i| a[i] + b[i]);
        sub(a: V, b: V) -> V = from_fn(|i| a[i] - b[i]);
        mul(a: V, b: V) -> V = from_fn(|i| a[i] * b[i]);
        div(a: V, b: V) -> V = from_fn(|i| a[i] / b[i]);
        fma(a: V, b: V, c: V) -> V = if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            from_fn(|i| a[i].mul_add(b[i], c[i]))
        } else {
            from_fn(|i| a[i] * b[i] + c[i])
        };
        max(a: V, b: V) -> V = from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] });
        select_less(x: V, bound: V, then: V, otherwise: V) -> V =
            from_fn(|i| if x[i] < bound[i] { then[i] } else { otherwise[i] });
        pow2(n: V) -> V = n.map(|n| f32::from_bits((n as i32 + 127).cast_unsigned() << 23));
        splat_u32(value: u32) -> U = [value; 4];
        count_from(first: u32) -> U = [0, 1, 2, 3].map(|i| first.wrapping_add(i));
        add_u32(a: U, b: U) -> U = from_fn(|i| a[i].wrapping_add(b[i]));
        xor(a: U, b: U) -> U = from_fn(|i| a[i] ^ b[i]);
        and(a: U, b: U) -> U = from_fn(|i| a[i] & b[i]);
        shift_right(a: U, bits: u32) -> U = a.map(|a| a >> bits);
        mul_wide(a: U, b: U) -> [U; 2] = {
            let wide = |i: usize| u64::from(a[i]) * u64::from(b[i]);
            [from_fn(|i| (wide(i) >> 32) as u32), from_fn(|i| wide(i) as u32)]
        };
        to_bits(v: V) -> U = v.map(f32::to_bits);
        with_bits(v: U) -> V = v.map(f32::from_bits);
        to_f32(v: U) -> V = v.map(|v| v.cast_signed() as f32);
        truncate(v: V) -> U = v.map(|v| (v as i32).cast_unsigned());
        sum(v: V) -> f32 = sum(v);
        sum4(v: [V; 4]) -> [f32; 4] = v.map(sum);
        greatest(v: V) -> f32 = v[0].max(v[1]).max(v[2].max(v[3]));
    }
}

#[inline(always)]
fn sum(v: V) -> f32 {
    (v[0] + v[1]) + (v[2] + v[3])
}
