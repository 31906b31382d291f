//! Vectors of 64 bytes: where registers have fewer, a vector is two or four of them.
//!
//! All operations are `#[inline(always)]` and take on the instructions of their caller.
#![allow(unsafe_code)]

/// Numbers of 32 bits in a vector.
pub const NUMBERS: usize = 16;

/// The operations on vectors of 64 bytes.
///
/// # Safety
///
/// All require a machine that has the instructions, and that pointers lead to as many bytes as they say.
pub trait Simd: Sized {
    /// 64 bytes.
    type Ints: Copy;
    /// Sixteen numbers.
    type Floats: Copy;

    unsafe fn zero() -> Self::Ints;
    unsafe fn load(from: *const u8) -> Self::Ints;
    /// Thirty-two bytes of each of two columns.
    unsafe fn two(columns: [*const u8; 2]) -> Self::Ints;
    /// Thirty-two codes of four bits of each of two columns, of which the low bits are the first 16.
    unsafe fn two_of_nibbles(columns: [*const u8; 2]) -> Self::Ints;
    /// Sixteen bytes of each of four columns.
    unsafe fn four(columns: [*const u8; 4]) -> Self::Ints;
    unsafe fn every_u8(byte: u8) -> Self::Ints;
    unsafe fn every_i32(number: i32) -> Self::Ints;
    unsafe fn and(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn xor(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn add_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn sub_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn shl_i32(v: Self::Ints, bits: i32) -> Self::Ints;
    unsafe fn shr_u32(v: Self::Ints, bits: i32) -> Self::Ints;
    unsafe fn shr_i32(v: Self::Ints, bits: i32) -> Self::Ints;
    /// The low four bits of each byte of `low`, and above them those from bit `at` on of `high`, as many as `ones` has: 1 or 3.
    unsafe fn four_and_more(low: Self::Ints, high: Self::Ints, at: i32, ones: u8) -> Self::Ints;
    /// Sixteen more where a bit is set, of the 32 of each column.
    unsafe fn add_fifth_bits(codes: Self::Ints, bits: [u32; 2]) -> Self::Ints;
    /// The bytes of a table at indexes.
    unsafe fn look_up(indexes: Self::Ints, table: &[u8; 16]) -> Self::Ints;

    // In each quarter of the vectors.

    unsafe fn low_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn high_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn low_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn high_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// The even quarters of `a`, and those of `b`.
    unsafe fn even_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn odd_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints;

    unsafe fn to_floats(v: Self::Ints) -> Self::Floats;
    /// Of f32 numbers.
    unsafe fn from_bits(v: Self::Ints) -> Self::Floats;
    /// Half-precision numbers in the lower words.
    unsafe fn from_halves(words: Self::Ints) -> Self::Floats;
    unsafe fn halves(from: &[u16; NUMBERS]) -> Self::Floats;
    unsafe fn words(from: &[u16; NUMBERS]) -> Self::Ints;
    unsafe fn bytes(from: &[u8; NUMBERS]) -> Self::Ints;

    unsafe fn every(number: f32) -> Self::Floats;
    unsafe fn load_floats(from: &[f32; NUMBERS]) -> Self::Floats;
    unsafe fn store_floats(to: &mut [f32; NUMBERS], v: Self::Floats);
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    unsafe fn mul_sub_from(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// Stores the first ones, as many as `to` has, at most 16, after adding `bias`.
    #[inline(always)]
    unsafe fn store_columns(to: &mut [f32], v: Self::Floats, bias: Option<&[f32]>) {
        let mut numbers = [0.0; NUMBERS];
        // SAFETY: the caller says so.
        unsafe { Self::store_floats(&mut numbers, v) };
        match bias {
            Some(bias) => to.iter_mut().zip(numbers).zip(bias).for_each(|((to, number), bias)| *to = number + bias),
            None => to.copy_from_slice(&numbers[..to.len()]),
        }
    }
}

/// Products of neighbouring lanes, which the instructions of x86-64 add up.
///
/// # Safety
///
/// As [`Simd`]. [`dot`](Pairwise::dot) is an instruction with VNNI alone.
#[cfg(target_arch = "x86_64")]
pub trait Pairwise: Simd {
    unsafe fn store(to: *mut u8, v: Self::Ints);
    /// Thirty-two bytes, twice.
    unsafe fn twice(from: *const u8) -> Self::Ints;
    unsafe fn every_i16(word: i16) -> Self::Ints;
    unsafe fn add_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn sub_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// The upper byte of each word.
    unsafe fn upper_bytes(v: Self::Ints) -> Self::Ints;
    /// In each quarter of the vectors, the even numbers of 32 bits of `a`, and those of `b`.
    unsafe fn even_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn odd_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Adds the products of each four unsigned bytes with signed ones.
    unsafe fn dot(sums: Self::Ints, codes: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// The sums of the products of each two unsigned bytes with signed ones, which must have 16 bits.
    unsafe fn multiply_bytes(codes: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// The sums of the products of each two words.
    unsafe fn multiply_words(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn to_integers(v: Self::Floats) -> Self::Ints;
}
