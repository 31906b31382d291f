//! Vectors of f32 as wide as the instruction set has them, behind one set of operations.
//!
//! A kernel is written once against [`Lanes`] and compiled once for each instruction set. A token of a type that
//! implements [`Lanes`] is the proof that its instructions are there: [`dispatch`] hands it out.
//!
//! Each verb computes every lane for itself, and the sums over lanes add in an order that is fixed by the width. So a
//! number depends neither on the lane it stands in nor on its neighbours.
//!
//! A file for each instruction set has its tables, a line for each operation: that of [`Lanes`], and that of [`Simd`](simd::Simd). Vectors of the latter
//! have 64 bytes; products of integers are written in them.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod simd;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub use neon::{DotProd, I8mm, Plain, cast};

use super::Isa;
use half::{bf16, f16};

/// A table: `name(arguments) -> result = instructions;` is a method that every caller inlines, and so takes on the caller's instructions.
macro_rules! operations {
    // With a token, which is the proof that the instructions are there.
    (fn: $($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: the token.
            #[allow(unused_unsafe)]
            unsafe { $value }
        }
    )*};
    // With a token, and pointers.
    (unsafe fn with self: $($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $value:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($argument: $type),*) $(-> $result)? {
            // SAFETY: the token, and the caller's promise.
            unsafe { $value }
        }
    )*};
    (unsafe fn: $($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $value:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise.
            #[allow(unused_unsafe)]
            unsafe { $value }
        }
    )*};
}
use operations;

/// `$value` for each number below 2, 4 or 8, a constant in it. No closure: closures do not always become part of a function with these instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! each {
    ($i:ident of 2 => $value:expr) => { each!($i in (0 1) => $value) };
    ($i:ident of 4 => $value:expr) => { each!($i in (0 1 2 3) => $value) };
    ($i:ident of 8 => $value:expr) => { each!($i in (0 1 2 3 4 5 6 7) => $value) };
    ($i:ident in ($($number:literal)*) => $value:expr) => {
        [$({ #[allow(dead_code)] const $i: usize = $number; $value }),*]
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use each;

/// A table of operations that are the same instructions for each register of a vector: `name(registers; others) -> result = instructions;`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! of_registers {
    ($numbers:tt: $($name:ident($($register:ident: $vector:ty),* $(; $other:ident: $type:ty)?) -> $result:ty = $value:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($register: $vector,)* $($other: $type)?) -> $result {
            // SAFETY: the caller's promise.
            unsafe {
                each!(I in $numbers => {
                    $(let $register = $register[I];)*
                    $value
                })
            }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use of_registers;

/// A loop that is compiled for each instruction set.
pub trait Kernel {
    /// Runs it. Implementations are `#[inline(always)]`, so that they take on the instructions of their caller.
    fn run<L: Lanes>(self, lanes: L);
}

/// Runs a kernel with the instructions of `isa`.
pub fn dispatch(isa: Isa, kernel: impl Kernel) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Cpu::new` refuses an instruction set that this machine lacks.
        Isa::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => unsafe { avx512::run(kernel) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::Neon | Isa::DotProd | Isa::I8mm | Isa::Bf16 => unsafe { neon::run(kernel) },
        _ => portable::run(kernel),
    }
}

/// The operations on a vector of `N` numbers.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
pub trait Lanes: Copy {
    /// A vector of f32.
    type V: Copy;
    /// A vector of u32.
    type U: Copy;
    /// Numbers in a vector.
    const N: usize;
    /// Vectors that registers hold.
    const REGISTERS: usize;
    /// Queries that an inner loop of attention keeps in registers, four accumulators each.
    const QUERIES: usize;

    /// The proof.
    ///
    /// # Safety
    ///
    /// The machine must have the instructions, and the caller be compiled for them.
    unsafe fn token() -> Self;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// The `N` numbers at `from`.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// The `N` numbers at `from`.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load_f16(self, from: *const f16) -> Self::V;
    /// The `N` numbers at `from`.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load_bf16(self, from: *const bf16) -> Self::V;
    /// The `2 N` numbers at `from`.
    ///
    /// # Safety
    ///
    /// They must be readable.
    #[inline(always)]
    unsafe fn load_two_f16(self, from: *const f16) -> [Self::V; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.load_f16(from), self.load_f16(from.add(Self::N))] }
    }
    /// The `2 N` numbers at `from`. On x86-64 the even ones and then the odd ones, as they fall out of 32 bits.
    ///
    /// # Safety
    ///
    /// They must be readable.
    #[inline(always)]
    unsafe fn load_two_bf16(self, from: *const bf16) -> [Self::V; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.load_bf16(from), self.load_bf16(from.add(Self::N))] }
    }
    /// The `N` integers at `from`, as numbers.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load_i8(self, from: *const i8) -> Self::V;
    /// The first `len` of `N` numbers at `from`, and zeros.
    ///
    /// # Safety
    ///
    /// `len` numbers must be readable, and `len` be less than `N`.
    unsafe fn load_first(self, from: *const f32, len: usize) -> Self::V;
    /// Writes `N` numbers to `to`.
    ///
    /// # Safety
    ///
    /// They must be writable.
    unsafe fn store(self, to: *mut f32, v: Self::V);
    /// Writes the first `len` of `N` numbers to `to`.
    ///
    /// # Safety
    ///
    /// `len` numbers must be writable, and `len` be less than `N`.
    unsafe fn store_first(self, to: *mut f32, v: Self::V, len: usize);
    /// Asks for the cache line at `from`, which need not be readable.
    fn prefetch<T>(self, from: *const T);

    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the instruction set can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater one; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `then` where `x < bound`, else `otherwise`; a NaN is not less.
    fn select_less(self, x: Self::V, bound: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// `2^n` for whole numbers from -126 to 127.
    fn pow2(self, n: Self::V) -> Self::V;

    /// `value` in every lane.
    fn splat_u32(self, value: u32) -> Self::U;
    /// `first`, `first + 1` and so on, which may wrap.
    fn count_from(self, first: u32) -> Self::U;
    /// Writes `N` numbers to `to`.
    ///
    /// # Safety
    ///
    /// They must be writable.
    unsafe fn store_u32(self, to: *mut u32, v: Self::U);
    /// `a + b`, which may wrap.
    fn add_u32(self, a: Self::U, b: Self::U) -> Self::U;
    /// The bits of one or the other.
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    /// The bits of both.
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a >> bits`, from 0 to 31.
    fn shift_right(self, a: Self::U, bits: u32) -> Self::U;
    /// The upper and the lower half of `a * b`.
    fn mul_wide(self, a: Self::U, b: Self::U) -> [Self::U; 2];
    /// The bits of each f32.
    fn to_bits(self, v: Self::V) -> Self::U;
    /// The f32 of each pattern of bits.
    fn with_bits(self, v: Self::U) -> Self::V;
    /// Whole numbers below 2^31, rounded to nearest.
    fn to_f32(self, v: Self::U) -> Self::V;
    /// Numbers from 0 to below 2^31, rounded down.
    fn truncate(self, v: Self::V) -> Self::U;

    /// The sum of all lanes: neighbours first, then neighbours of those.
    fn sum(self, v: Self::V) -> f32;
    /// [`Lanes::sum`] of each, bit for bit.
    fn sum4(self, v: [Self::V; 4]) -> [f32; 4];
    /// The sum of each vector, added up as [`sum4`](Lanes::sum4) does.
    #[inline(always)]
    fn sum8(self, [a, b, c, d, e, f, g, h]: [Self::V; 8]) -> [f32; 8] {
        let fours = [self.sum4([a, b, c, d]), self.sum4([e, f, g, h])];
        std::array::from_fn(|i| fours[i / 4][i % 4])
    }
    /// The greatest of all lanes.
    fn greatest(self, v: Self::V) -> f32;
}

/// `e^x` within 2 units in the last place. 0 below -87.3, infinite above 88.3; NaN stays NaN.
#[inline(always)]
pub fn exp<L: Lanes>(lanes: L, x: L::V) -> L::V {
    let [lowest, highest] = [-87.3, 88.3].map(|bound| lanes.splat(bound));
    // NaN is neither below nor above, and comes through the polynomial.
    let inside = lanes.select_less(x, lowest, lowest, x);
    let inside = lanes.select_less(highest, inside, highest, inside);
    // Adding 1.5 * 2^23 rounds to a whole number.
    let magic = lanes.splat(12_582_912.0);
    let n = lanes.sub(lanes.fma(inside, lanes.splat(std::f32::consts::LOG2_E), magic), magic);
    // ln 2 in two parts, the first one with so few bits that n times it is exact.
    let r = lanes.fma(n, lanes.splat(-0.693_359_4), inside);
    let r = lanes.fma(n, lanes.splat(2.121_944_4e-4), r);
    let mut p = lanes.splat(EXP[4]);
    for &c in EXP[..4].iter().rev() {
        p = lanes.fma(p, r, lanes.splat(c));
    }
    let one = lanes.splat(1.0);
    let e_r = lanes.add(one, lanes.fma(lanes.mul(r, r), p, r));
    let e = lanes.mul(e_r, lanes.pow2(n));
    let e = lanes.select_less(x, lowest, lanes.splat(0.0), e);
    lanes.select_less(highest, x, lanes.splat(f32::INFINITY), e)
}

/// `tanh(x)` within 4 units in the last place; NaN stays NaN.
#[inline(always)]
pub fn tanh<L: Lanes>(lanes: L, x: L::V) -> L::V {
    let one = lanes.splat(1.0);
    // `1 - 2 / (e^2x + 1)`, which is 1 and -1 beyond the range of exp. Near 0 the difference would lose bits.
    let e = exp(lanes, lanes.add(x, x));
    let far = lanes.sub(one, lanes.div(lanes.splat(2.0), lanes.add(e, one)));
    let squared = lanes.mul(x, x);
    let mut p = lanes.splat(TANH[4]);
    for &c in TANH[..4].iter().rev() {
        p = lanes.fma(p, squared, lanes.splat(c));
    }
    let near = lanes.fma(lanes.mul(p, squared), x, x);
    lanes.select_less(squared, lanes.splat(TANH_NEAR * TANH_NEAR), near, far)
}

/// Below this, [`tanh`] is a polynomial.
const TANH_NEAR: f32 = 0.625;

/// `(tanh(x) - x) / x^3` in powers of `x^2` for `|x| <= 0.625`, constant term first, as in the Cephes library.
const TANH: [f32; 5] = [-0.333_332_8, 0.133_314_42, -0.053_739_716, 0.020_639_09, -0.005_704_988_7];

/// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`, constant term first; a minimax fit with a relative error of 3e-9 in `e^r`.
pub const EXP: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_717_5, 0.001_381_459_6];

#[cfg(test)]
mod tests {
    use super::*;

    struct Exp<'a>(&'a mut [f32]);

    impl Kernel for Exp<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            for x in self.0.chunks_exact_mut(L::N) {
                // SAFETY: the chunk has N numbers.
                unsafe { lanes.store(x.as_mut_ptr(), exp(lanes, lanes.load(x.as_ptr()))) }
            }
        }
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for isa in Isa::available() {
            let x: Vec<f32> = (0..32_000).map(|i| -87.2 + i as f32 * (175.4 / 32_000.0)).collect();
            let mut y = x.clone();
            dispatch(*isa, Exp(&mut y));
            for (x, y) in x.iter().zip(&y) {
                let exact = f64::from(*x).exp();
                let ulp = f64::from(f32::EPSILON) * exact;
                assert!((f64::from(*y) - exact).abs() < 2.0 * ulp, "{isa:?}: exp({x}) = {y}, but is {exact}");
            }
        }
    }

    #[test]
    fn exp_beyond_its_range_is_zero_infinite_or_nan() {
        for isa in Isa::available() {
            let mut y = [f32::NEG_INFINITY, -1e30, -87.4, 0.0, 88.4, 1e30, f32::INFINITY, f32::NAN].repeat(2);
            dispatch(*isa, Exp(&mut y));
            assert_eq!(y[..7], [0.0, 0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY, f32::INFINITY], "{isa:?}");
            assert!(y[7].is_nan(), "{isa:?}");
        }
    }

    struct Tanh<'a>(&'a mut [f32]);

    impl Kernel for Tanh<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            for x in self.0.chunks_exact_mut(L::N) {
                // SAFETY: the chunk has N numbers.
                unsafe { lanes.store(x.as_mut_ptr(), tanh(lanes, lanes.load(x.as_ptr()))) }
            }
        }
    }

    #[test]
    fn tanh_is_within_four_units_in_the_last_place() {
        for isa in Isa::available() {
            let near = (0..16_000).map(|i| (i as f32 - 8000.0) * 1e-4);
            let far = (0..16_000).map(|i| (i as f32 - 8000.0) * 1e-2);
            let x: Vec<f32> =
                near.chain(far).chain([f32::MIN, f32::MAX, f32::NEG_INFINITY, f32::INFINITY].repeat(4)).collect();
            let mut y = x.clone();
            dispatch(*isa, Tanh(&mut y));
            for (x, y) in x.iter().zip(&y) {
                let exact = f64::from(*x).tanh();
                let ulp = f64::from(f32::EPSILON) * exact.abs();
                assert!((f64::from(*y) - exact).abs() <= 4.0 * ulp, "{isa:?}: tanh({x}) = {y}, but is {exact}");
            }
            let mut nan = [f32::NAN; 16];
            dispatch(*isa, Tanh(&mut nan));
            assert!(nan.iter().all(|v| v.is_nan()), "{isa:?}");
        }
    }

    /// Sums of 4 vectors: one by one, then together.
    struct Sums<'a>(&'a [f32], &'a mut [f32; 8]);

    impl Kernel for Sums<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            // SAFETY: there are 4 x 16 numbers, and no vector has more than 16.
            let v = [0, 1, 2, 3].map(|i| unsafe { lanes.load(self.0[16 * i..][..16].as_ptr()) });
            self.1[..4].copy_from_slice(&v.map(|v| lanes.sum(v)));
            self.1[4..].copy_from_slice(&lanes.sum4(v));
        }
    }

    #[test]
    fn four_sums_together_have_the_bits_of_each_alone() {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 * 1.7).sin() * 10f32.powi(i % 7 - 3)).collect();
        for isa in Isa::available() {
            let mut sums = [0.0; 8];
            dispatch(*isa, Sums(&x, &mut sums));
            let [alone, together] = [&sums[..4], &sums[4..]].map(|s| s.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
            assert_eq!(alone, together, "{isa:?}");
            assert!(alone[0] != alone[1]);
        }
    }

    /// Copies the first `len` numbers through a vector.
    struct First<'a>(&'a [f32], &'a mut [f32], usize);

    impl Kernel for First<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            let len = self.2.min(L::N - 1);
            // SAFETY: `len` is less than N, and both slices have 16 numbers.
            unsafe {
                let v = lanes.load_first(self.0[..16].as_ptr(), len);
                lanes.store_first(self.1[..16].as_mut_ptr(), v, len);
                assert_eq!(lanes.sum(v), self.0[..len].iter().sum::<f32>(), "lanes beyond the first are zero");
            }
            self.1[15] = len as f32;
        }
    }

    #[test]
    fn a_part_of_a_vector_touches_nothing_else() {
        let x: Vec<f32> = (1..=16).map(|i| i as f32).collect();
        for isa in Isa::available() {
            for len in 1..16 {
                let mut y = [-1.0; 16];
                dispatch(*isa, First(&x, &mut y, len));
                let len = y[15] as usize;
                assert_eq!(y[..len], x[..len], "{isa:?}");
                assert!(y[len..15].iter().all(|&v| v == -1.0), "{isa:?}");
            }
        }
    }
}
