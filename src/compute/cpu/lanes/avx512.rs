//! Sixteen numbers in an AVX-512 register.
//!
//! The blocks marked "token" are sound because an [`Avx512`] exists only inside [`run`], whose caller promised the
//! instructions.
#![allow(unsafe_code)]

use super::{Kernel, Lanes};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// # Safety
///
/// The machine must have AVX2, FMA, F16C, and AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn run<K: Kernel>(kernel: K) {
    kernel.run(Avx512(()));
}

#[derive(Clone, Copy)]
pub struct Avx512(());

/// The first `len` of 16 lanes, `len` being less than 16.
#[inline(always)]
fn first(len: usize) -> __mmask16 {
    (1 << len) - 1
}

/// Lanes `i` and `i + 8` added.
#[inline(always)]
fn fold(v: __m512) -> __m256 {
    // SAFETY: token.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
}

impl Lanes for Avx512 {
    type V = __m512;
    type U = __m512i;
    const N: usize = 16;
    // 24 of 32 registers accumulate.
    const QUERIES: usize = 6;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> __m512 {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> __m512 {
        // SAFETY: token, and the caller's promise.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m512 {
        // SAFETY: token, and the caller's promise of 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, len: usize) -> __m512 {
        // SAFETY: token; a masked lane is not read, and the caller promises the others.
        unsafe { _mm512_maskz_loadu_ps(first(len), from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: __m512, len: usize) {
        // SAFETY: token; a masked lane is not written, and the caller promises the others.
        unsafe { _mm512_mask_storeu_ps(to, first(len), v) }
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: token; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn select_less(self, x: __m512, bound: __m512, then: __m512, otherwise: __m512) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, bound), otherwise, then) }
    }

    #[inline(always)]
    fn pow2(self, n: __m512) -> __m512 {
        // SAFETY: token.
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_set1_epi32(value.cast_signed()) }
    }

    #[inline(always)]
    fn count_from(self, first: u32) -> __m512i {
        // SAFETY: token.
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_add_epi32(_mm512_set1_epi32(first.cast_signed()), lanes)
        }
    }

    #[inline(always)]
    unsafe fn store_u32(self, to: *mut u32, v: __m512i) {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    fn add_u32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m512i, bits: u32) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())) }
    }

    #[inline(always)]
    fn mul_wide(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        // SAFETY: token.
        unsafe {
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let high = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, _mm512_srli_epi64::<32>(even), odd);
            let low = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, even, _mm512_slli_epi64::<32>(odd));
            [high, low]
        }
    }

    #[inline(always)]
    fn to_bits(self, v: __m512) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_castps_si512(v) }
    }

    #[inline(always)]
    fn with_bits(self, v: __m512i) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_castsi512_ps(v) }
    }

    #[inline(always)]
    fn to_f32(self, v: __m512i) -> __m512 {
        // SAFETY: token.
        unsafe { _mm512_cvtepi32_ps(v) }
    }

    #[inline(always)]
    fn truncate(self, v: __m512) -> __m512i {
        // SAFETY: token.
        unsafe { _mm512_cvttps_epi32(v) }
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        self.sum4([v; 4])[0]
    }

    #[inline(always)]
    fn sum4(self, v: [__m512; 4]) -> [f32; 4] {
        let v = [fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])];
        // SAFETY: token; an `__m128` is four numbers.
        unsafe {
            let pairs = [_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3])];
            let quads = _mm256_hadd_ps(pairs[0], pairs[1]);
            let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
            std::mem::transmute::<__m128, [f32; 4]>(sums)
        }
    }

    #[inline(always)]
    fn greatest(self, v: __m512) -> f32 {
        // SAFETY: token.
        unsafe {
            let eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let half = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }
    }
}
