//! Eight numbers in an AVX register.
//!
//! The blocks marked "token" are sound because an [`Avx2`] exists only inside [`run`], whose caller promised the
//! instructions.
#![allow(unsafe_code)]

use super::{Kernel, Lanes};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// # Safety
///
/// The machine must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run<K: Kernel>(kernel: K) {
    kernel.run(Avx2(()));
}

#[derive(Clone, Copy)]
pub struct Avx2(());

/// All ones for the first `len` of 8 lanes.
#[inline(always)]
fn first(len: usize) -> __m256i {
    const ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: token, and the slice has the 8 numbers.
    unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS[8 - len..][..8].as_ptr().cast()) }
}

impl Lanes for Avx2 {
    type V = __m256;
    type U = __m256i;
    const N: usize = 8;
    // 12 of 16 registers accumulate.
    const QUERIES: usize = 3;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> __m256 {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> __m256 {
        // SAFETY: token, and the caller's promise.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m256 {
        // SAFETY: token, and the caller's promise of 8 bytes.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, len: usize) -> __m256 {
        // SAFETY: token; a masked lane is not read, and the caller promises the others.
        unsafe { _mm256_maskload_ps(from, first(len)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m256) {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: __m256, len: usize) {
        // SAFETY: token; a masked lane is not written, and the caller promises the others.
        unsafe { _mm256_maskstore_ps(to, first(len), v) }
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: token; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn select_less(self, x: __m256, bound: __m256, then: __m256, otherwise: __m256) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps::<_CMP_LT_OQ>(x, bound)) }
    }

    #[inline(always)]
    fn pow2(self, n: __m256) -> __m256 {
        // SAFETY: token.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_set1_epi32(value.cast_signed()) }
    }

    #[inline(always)]
    fn count_from(self, first: u32) -> __m256i {
        // SAFETY: token.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_add_epi32(_mm256_set1_epi32(first.cast_signed()), lanes)
        }
    }

    #[inline(always)]
    unsafe fn store_u32(self, to: *mut u32, v: __m256i) {
        // SAFETY: token, and the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    fn add_u32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m256i, bits: u32) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed())) }
    }

    #[inline(always)]
    fn mul_wide(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: token.
        unsafe {
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            [high, low]
        }
    }

    #[inline(always)]
    fn to_bits(self, v: __m256) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_castps_si256(v) }
    }

    #[inline(always)]
    fn with_bits(self, v: __m256i) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_castsi256_ps(v) }
    }

    #[inline(always)]
    fn to_f32(self, v: __m256i) -> __m256 {
        // SAFETY: token.
        unsafe { _mm256_cvtepi32_ps(v) }
    }

    #[inline(always)]
    fn truncate(self, v: __m256) -> __m256i {
        // SAFETY: token.
        unsafe { _mm256_cvttps_epi32(v) }
    }

    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        self.sum4([v; 4])[0]
    }

    #[inline(always)]
    fn sum4(self, v: [__m256; 4]) -> [f32; 4] {
        // SAFETY: token; an `__m128` is four numbers.
        unsafe {
            let pairs = [_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3])];
            let quads = _mm256_hadd_ps(pairs[0], pairs[1]);
            let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
            std::mem::transmute::<__m128, [f32; 4]>(sums)
        }
    }

    #[inline(always)]
    fn greatest(self, v: __m256) -> f32 {
        // SAFETY: token.
        unsafe {
            let half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }
    }
}
