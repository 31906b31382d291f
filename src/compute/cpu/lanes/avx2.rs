//! AVX2, FMA and F16C: eight numbers in a register.
//!
//! An [`Avx2`] exists only inside [`run`], whose caller promised the instructions.
#![allow(unsafe_code)]

use super::simd::{NUMBERS, Pairwise, Simd};
use super::{Kernel, Lanes, each, of_registers, operations};
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

type V = __m256;
type U = __m256i;

impl Lanes for Avx2 {
    type V = V;
    type U = U;
    const N: usize = 8;
    const REGISTERS: usize = 16;
    // 12 of 16 registers accumulate.
    const QUERIES: usize = 3;

    #[inline(always)]
    unsafe fn token() -> Self {
        Avx2(())
    }

    operations! { unsafe fn with self:
        load(from: *const f32) -> V = _mm256_loadu_ps(from);
        load_f16(from: *const f16) -> V = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
        load_bf16(from: *const bf16) -> V =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))));
        load_two_bf16(from: *const bf16) -> [V; 2] = {
            let pairs = _mm256_loadu_si256(from.cast());
            let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(odd)]
        };
        load_i8(from: *const i8) -> V = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())));
        load_first(from: *const f32, len: usize) -> V = _mm256_maskload_ps(from, first(len));
        store(to: *mut f32, v: V) = _mm256_storeu_ps(to, v);
        store_first(to: *mut f32, v: V, len: usize) = _mm256_maskstore_ps(to, first(len), v);
        store_u32(to: *mut u32, v: U) = _mm256_storeu_si256(to.cast(), v);
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    operations! { fn:
        splat(value: f32) -> V = _mm256_set1_ps(value);
        add(a: V, b: V) -> V = _mm256_add_ps(a, b);
        sub(a: V, b: V) -> V = _mm256_sub_ps(a, b);
        mul(a: V, b: V) -> V = _mm256_mul_ps(a, b);
        div(a: V, b: V) -> V = _mm256_div_ps(a, b);
        fma(a: V, b: V, c: V) -> V = _mm256_fmadd_ps(a, b, c);
        max(a: V, b: V) -> V = _mm256_max_ps(a, b);
        select_less(x: V, bound: V, then: V, otherwise: V) -> V =
            _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps::<_CMP_LT_OQ>(x, bound));
        pow2(n: V) -> V = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(
            _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)),
        ));
        splat_u32(value: u32) -> U = _mm256_set1_epi32(value.cast_signed());
        count_from(first: u32) -> U =
            _mm256_add_epi32(_mm256_set1_epi32(first.cast_signed()), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        add_u32(a: U, b: U) -> U = _mm256_add_epi32(a, b);
        xor(a: U, b: U) -> U = _mm256_xor_si256(a, b);
        and(a: U, b: U) -> U = _mm256_and_si256(a, b);
        shift_right(a: U, bits: u32) -> U = _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed()));
        mul_wide(a: U, b: U) -> [U; 2] = {
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            [high, low]
        };
        to_bits(v: V) -> U = _mm256_castps_si256(v);
        with_bits(v: U) -> V = _mm256_castsi256_ps(v);
        to_f32(v: U) -> V = _mm256_cvtepi32_ps(v);
        truncate(v: V) -> U = _mm256_cvttps_epi32(v);
        sum(v: V) -> f32 = sum4([v; 4])[0];
        sum4(v: [V; 4]) -> [f32; 4] = sum4(v);
        greatest(v: V) -> f32 = greatest(_mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)));
    }
}

/// All ones for the first `len` of 8 lanes.
#[inline(always)]
fn first(len: usize) -> __m256i {
    const ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: called with these instructions, and the slice has the 8 numbers.
    unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS[8 - len..][..8].as_ptr().cast()) }
}

/// The sum of each vector, as `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))` of its lanes.
#[inline(always)]
pub(super) fn sum4(v: [__m256; 4]) -> [f32; 4] {
    // SAFETY: called with these instructions; an `__m128` is four numbers.
    unsafe {
        let quads = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
        std::mem::transmute::<__m128, [f32; 4]>(sums)
    }
}

/// The greatest of four lanes.
#[inline(always)]
pub(super) fn greatest(half: __m128) -> f32 {
    // SAFETY: called with these instructions.
    unsafe {
        let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
        _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
    }
}

type Ints = [__m256i; 2];
type Floats = [__m256; 2];

impl Simd for Avx2 {
    type Ints = Ints;
    type Floats = Floats;

    of_registers! { (0 1):
        and(a: Ints, b: Ints) -> Ints = _mm256_and_si256(a, b);
        or(a: Ints, b: Ints) -> Ints = _mm256_or_si256(a, b);
        xor(a: Ints, b: Ints) -> Ints = _mm256_xor_si256(a, b);
        add_i32(a: Ints, b: Ints) -> Ints = _mm256_add_epi32(a, b);
        sub_i32(a: Ints, b: Ints) -> Ints = _mm256_sub_epi32(a, b);
        shl_i32(v: Ints; bits: i32) -> Ints = _mm256_sllv_epi32(v, _mm256_set1_epi32(bits));
        shr_u32(v: Ints; bits: i32) -> Ints = _mm256_srlv_epi32(v, _mm256_set1_epi32(bits));
        shr_i32(v: Ints; bits: i32) -> Ints = _mm256_srav_epi32(v, _mm256_set1_epi32(bits));
        low_u32(a: Ints, b: Ints) -> Ints = _mm256_unpacklo_epi32(a, b);
        high_u32(a: Ints, b: Ints) -> Ints = _mm256_unpackhi_epi32(a, b);
        low_u64(a: Ints, b: Ints) -> Ints = _mm256_unpacklo_epi64(a, b);
        high_u64(a: Ints, b: Ints) -> Ints = _mm256_unpackhi_epi64(a, b);
        zero() -> Ints = _mm256_setzero_si256();
        every_u8(; byte: u8) -> Ints = _mm256_set1_epi8(byte.cast_signed());
        every_i32(; number: i32) -> Ints = _mm256_set1_epi32(number);
        every(; number: f32) -> Floats = _mm256_set1_ps(number);
        to_floats(v: Ints) -> Floats = _mm256_cvtepi32_ps(v);
        from_bits(v: Ints) -> Floats = _mm256_castsi256_ps(v);
        mul(a: Floats, b: Floats) -> Floats = _mm256_mul_ps(a, b);
        mul_add(a: Floats, b: Floats, c: Floats) -> Floats = _mm256_fmadd_ps(a, b, c);
        mul_sub_from(a: Floats, b: Floats, c: Floats) -> Floats = _mm256_fnmadd_ps(a, b, c);
        look_up(indexes: Ints; table: &[u8; 16]) -> Ints =
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), indexes);
    }

    operations! { unsafe fn:
        load(from: *const u8) -> Ints = each!(I of 2 => _mm256_loadu_si256(from.add(32 * I).cast()));
        two(columns: [*const u8; 2]) -> Ints = each!(I of 2 => _mm256_loadu_si256(columns[I].cast()));
        two_of_nibbles(columns: [*const u8; 2]) -> Ints = each!(I of 2 => {
            let twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(columns[I].cast()));
            _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_set_epi64x(4, 4, 0, 0)), _mm256_set1_epi8(15))
        });
        four(columns: [*const u8; 4]) -> Ints =
            each!(I of 2 => _mm256_loadu2_m128i(columns[2 * I + 1].cast(), columns[2 * I].cast()));
        four_and_more(low: Ints, high: Ints, at: i32, ones: u8) -> Ints = each!(I of 2 => {
            let high = _mm256_srlv_epi32(high[I], _mm256_set1_epi32(at));
            let high = _mm256_and_si256(high, _mm256_set1_epi8(ones.cast_signed()));
            let low = _mm256_and_si256(low[I], _mm256_set1_epi8(15));
            _mm256_or_si256(low, _mm256_sllv_epi32(high, _mm256_set1_epi32(4)))
        });
        add_fifth_bits(codes: Ints, bits: [u32; 2]) -> Ints = each!(I of 2 => {
            // Byte `i` gets the byte that has its bit.
            let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits[I].cast_signed()), places);
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
            _mm256_add_epi8(codes[I], _mm256_and_si256(is_set, _mm256_set1_epi8(16)))
        });
        even_quarters(a: Ints, b: Ints) -> Ints =
            [_mm256_permute2x128_si256::<0x20>(a[0], a[1]), _mm256_permute2x128_si256::<0x20>(b[0], b[1])];
        odd_quarters(a: Ints, b: Ints) -> Ints =
            [_mm256_permute2x128_si256::<0x31>(a[0], a[1]), _mm256_permute2x128_si256::<0x31>(b[0], b[1])];
        from_halves(words: Ints) -> Floats = {
            let lower = each!(I of 2 => _mm256_and_si256(words[I], _mm256_set1_epi32(0xffff)));
            // In each quarter four words of the first eight, and then four of the others.
            let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(lower[0], lower[1]));
            [_mm256_cvtph_ps(_mm256_castsi256_si128(packed)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed))]
        };
        halves(from: &[u16; NUMBERS]) -> Floats =
            each!(I of 2 => _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().add(8 * I).cast())));
        words(from: &[u16; NUMBERS]) -> Ints =
            each!(I of 2 => _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(8 * I).cast())));
        bytes(from: &[u8; NUMBERS]) -> Ints =
            each!(I of 2 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(8 * I).cast())));
        load_floats(from: &[f32; NUMBERS]) -> Floats = each!(I of 2 => _mm256_loadu_ps(from.as_ptr().add(8 * I)));
        store_floats(to: &mut [f32; NUMBERS], v: Floats) =
            _ = each!(I of 2 => _mm256_storeu_ps(to.as_mut_ptr().add(8 * I), v[I]));
    }
}

impl Pairwise for Avx2 {
    of_registers! { (0 1):
        every_i16(; word: i16) -> Ints = _mm256_set1_epi16(word);
        add_i16(a: Ints, b: Ints) -> Ints = _mm256_add_epi16(a, b);
        sub_i16(a: Ints, b: Ints) -> Ints = _mm256_sub_epi16(a, b);
        upper_bytes(v: Ints) -> Ints = _mm256_srli_epi16::<8>(v);
        even_u32(a: Ints, b: Ints) -> Ints = shuffled::<0x88>(a, b);
        odd_u32(a: Ints, b: Ints) -> Ints = shuffled::<0xdd>(a, b);
        multiply_bytes(codes: Ints, x: Ints) -> Ints = _mm256_maddubs_epi16(codes, x);
        multiply_words(a: Ints, b: Ints) -> Ints = _mm256_madd_epi16(a, b);
        to_integers(v: Floats) -> Ints = _mm256_cvtps_epi32(v);
        twice(; from: *const u8) -> Ints = _mm256_loadu_si256(from.cast());
    }

    operations! { unsafe fn:
        store(to: *mut u8, v: Ints) = _ = each!(I of 2 => _mm256_storeu_si256(to.add(32 * I).cast(), v[I]));
    }

    unsafe fn dot(_: Ints, _: Ints, _: Ints) -> Ints {
        unreachable!("without VNNI kernels multiply words")
    }
}

/// Two of four numbers of 32 bits of `a`, and two of `b`.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn shuffled<const ORDER: i32>(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_castps_si256(_mm256_shuffle_ps::<ORDER>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))) }
}
