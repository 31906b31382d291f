//! The instructions of AMX, and what goes with them.
//!
//! The compiler knows nothing of tile registers: it neither uses nor saves them, so they keep their values from one `asm!`
//! to the next. No `asm!` here is `nomem`, because each tile load reads what Rust wrote before it.
//!
//! | tiles | hold |
//! |-------|------|
//! | 0 1 2 3 | sums of left 0 and right 0, 1; of left 1 and right 0, 1. `[16 left][16 right]` |
//! | 4 5     | left operands 0, 1. `[16 left][32 k]` |
//! | 6 7     | right operands 0, 1. `[16 pairs of k][16 right][2]` |
//!
//! Weights may stand on the left and `x` on the right, or the other way round: each sum takes the same products in the same
//! order.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

/// Columns, or tokens, of a tile.
pub const EDGE: usize = 16;
/// Numbers along `k` in a tile.
pub const STEP: usize = 32;
/// Numbers of 32 bits in a tile.
pub const TILE_NUMBERS: usize = EDGE * EDGE;
/// Bytes of a tile.
pub const TILE_BYTES: usize = TILE_NUMBERS * 4;
/// Bytes of a row of a tile, and of a line of the cache.
pub const LINE_BYTES: usize = EDGE * 4;

/// Sixteen rows of 64 bytes.
pub type Tile = [[u32; EDGE]; EDGE];

/// This thread's tiles, of 16 rows by 64 bytes, until it is dropped.
///
/// Made anew for each range of columns: on the caller's thread, the host may use tiles of other shapes between calls.
pub struct Configured(());

impl Configured {
    /// All tiles whole.
    pub fn new() -> Configured {
        Configured::with_right(EDGE)
    }

    /// Sums and right operands of `right` columns, at most [`EDGE`]: of few columns a tile reads fewer bytes.
    pub fn with_right(right: usize) -> Configured {
        Configured::with(right, EDGE)
    }

    /// Operands of `pairs` pairs of numbers along `k`, at most [`EDGE`].
    pub fn with_pairs(pairs: usize) -> Configured {
        Configured::with(EDGE, pairs)
    }

    fn with(right: usize, pairs: usize) -> Configured {
        #[repr(C, align(64))]
        struct Config {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(LINE_BYTES as u16);
        for tile in [0, 1, 2, 3, 6, 7] {
            config.row_bytes[tile] = (right * 4) as u16;
        }
        config.rows[..8].fill(EDGE as u8);
        config.row_bytes[4..6].fill((pairs * 4) as u16);
        config.rows[6..8].fill(pairs as u8);
        const { assert!(size_of::<Config>() == 64) };
        // SAFETY: `Isa::Amx` is chosen only where the kernel permits tiles; the 64 bytes describe eight valid ones.
        unsafe { asm!("ldtilecfg [{config}]", config = in(reg) &config, options(nostack, preserves_flags)) };
        Configured(())
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: as in `new`. Without live tiles the kernel saves less when it changes threads.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

/// What the sums begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Zero.
    Zero,
    /// What they were.
    Sums,
}

/// Products of up to two tiles on the left with up to two on the right, over some steps of `k`.
pub struct Products {
    /// What stands on the left. `[16][32 k]`
    pub left: Operand,
    /// What stands on the right. `[16 pairs of k][16][2]`
    pub right: Operand,
    /// Steps of [`STEP`] numbers.
    pub steps: usize,
    /// What to bring into the second-level cache meanwhile.
    pub ahead: Ahead,
}

/// One side of a product.
pub struct Operand {
    /// The first tile.
    pub at: *const u8,
    /// Bytes from one row of a tile to the next.
    pub row_bytes: usize,
    /// Bytes from one step to the next.
    pub step_bytes: usize,
    /// Bytes from tile 0 to tile 1.
    pub next_bytes: usize,
}

/// Memory that is read later. May lead anywhere.
pub struct Ahead {
    at: *const u8,
    /// Lines of the cache in each step.
    lines: usize,
}

impl Ahead {
    /// Nothing is brought.
    pub const NOTHING: Ahead = Ahead { at: std::ptr::null(), lines: 0 };

    /// `lines` lines of the cache in each step, from `at` on, one after the other.
    pub fn in_order(at: *const u8, lines: usize) -> Ahead {
        Ahead { at, lines }
    }
}

macro_rules! tile_zero {
    ($tile:literal) => {
        asm!(concat!("tilezero tmm", $tile), options(nostack, preserves_flags))
    };
}

macro_rules! tile_load {
    ($tile:literal, $at:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd tmm", $tile, ", [{at} + {stride}*1]"),
            at = in(reg) $at,
            stride = in(reg) $stride,
            options(nostack, preserves_flags)
        )
    };
}

macro_rules! tile_store {
    ($tile:literal, $at:expr, $stride:expr) => {
        asm!(
            concat!("tilestored [{at} + {stride}*1], tmm", $tile),
            at = in(reg) $at,
            stride = in(reg) $stride,
            options(nostack, preserves_flags)
        )
    };
}

macro_rules! tile_multiply {
    ($sums:literal, $weight:literal, $x:literal) => {
        asm!(concat!("tdpbf16ps tmm", $sums, ", tmm", $weight, ", tmm", $x), options(nostack, preserves_flags))
    };
}

impl Operand {
    /// Tile `number` of step `step`.
    fn tile(&self, number: usize, step: usize) -> *const u8 {
        self.at.wrapping_add(number * self.next_bytes + step * self.step_bytes)
    }
}

impl Products {
    /// Adds the products of `left` and `right` tiles to `sums`, or begins them. `sums` holds four tiles: `[left][right]`
    ///
    /// # Safety
    ///
    /// This thread is [`Configured`]. There are `steps` steps of `left` and `right` tiles, one or two; `sums` has room for the
    /// four tiles, or for two where `left` is 1.
    pub unsafe fn add(&self, left: usize, right: usize, sums: *mut f32, start: Start) {
        // SAFETY: the caller says so.
        unsafe {
            match (left, right) {
                (1, 1) => self.add_few::<1, 1>(sums, start),
                (1, _) => self.add_few::<1, 2>(sums, start),
                (_, 1) => self.add_few::<2, 1>(sums, start),
                _ => self.add_few::<2, 2>(sums, start),
            }
        }
    }

    /// Adds the products to the sums that this thread's tiles hold, of one `left` tile and one or two `right` ones.
    ///
    /// # Safety
    ///
    /// As [`Products::add`]; the sums began with [`zero_sums`].
    #[inline(always)]
    pub unsafe fn add_in_tiles(&self, right: usize) {
        // SAFETY: the caller says so.
        unsafe {
            match right {
                1 => self.add_steps::<1, 1>(),
                _ => self.add_steps::<1, 2>(),
            }
        }
    }

    /// [`Products::add`] for `LEFT` and `RIGHT` tiles.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    unsafe fn add_few<const LEFT: usize, const RIGHT: usize>(&self, sums: *mut f32, start: Start) {
        let below = sums.wrapping_add(2 * TILE_NUMBERS);
        // SAFETY: the caller says that all tiles read and written here are there.
        unsafe {
            match start {
                Start::Zero => zero_sums(),
                Start::Sums => {
                    tile_load!(0, sums, LINE_BYTES);
                    if RIGHT == 2 {
                        tile_load!(1, sums.add(TILE_NUMBERS), LINE_BYTES);
                    }
                    if LEFT == 2 {
                        tile_load!(2, below, LINE_BYTES);
                    }
                    if LEFT == 2 && RIGHT == 2 {
                        tile_load!(3, below.add(TILE_NUMBERS), LINE_BYTES);
                    }
                }
            }
            self.add_steps::<LEFT, RIGHT>();
            store_sums::<LEFT, RIGHT>(sums);
        }
    }

    /// Adds the products to the sums in the tiles.
    ///
    /// # Safety
    ///
    /// As [`Products::add`].
    #[inline(always)]
    unsafe fn add_steps<const LEFT: usize, const RIGHT: usize>(&self) {
        let Products { left, right, ahead, .. } = self;
        // SAFETY: the caller says that all tiles read here are there; a prefetch may lead anywhere.
        unsafe {
            let mut lines = ahead.at;
            for step in 0..self.steps {
                tile_load!(6, right.tile(0, step), right.row_bytes);
                tile_load!(4, left.tile(0, step), left.row_bytes);
                tile_multiply!(0, 4, 6);
                if RIGHT == 2 {
                    tile_load!(7, right.tile(1, step), right.row_bytes);
                    tile_multiply!(1, 4, 7);
                }
                if LEFT == 2 {
                    tile_load!(5, left.tile(1, step), left.row_bytes);
                    tile_multiply!(2, 5, 6);
                }
                if LEFT == 2 && RIGHT == 2 {
                    tile_multiply!(3, 5, 7);
                }
                for _ in 0..ahead.lines {
                    _mm_prefetch::<_MM_HINT_T1>(lines.cast());
                    lines = lines.wrapping_add(LINE_BYTES);
                }
            }
        }
    }
}

/// Stores the products of a tile of `x` and a tile of weights to `sums`. Calls take turns with `turn` 0 and 1, so that a product need not wait
/// until the sums of the one before it are stored.
///
/// # Safety
///
/// This thread is [`Configured`]. Both tiles can be read, rows of 64 bytes apart, and a tile can be written.
#[inline(always)]
pub unsafe fn group_product(x: *const u8, weights: *const u8, sums: *mut f32, turn: usize) {
    // SAFETY: the caller says so.
    unsafe {
        if turn == 0 {
            tile_zero!(0);
            tile_load!(6, weights, LINE_BYTES);
            tile_load!(4, x, LINE_BYTES);
            tile_multiply!(0, 4, 6);
            tile_store!(0, sums, LINE_BYTES);
        } else {
            tile_zero!(1);
            tile_load!(7, weights, LINE_BYTES);
            tile_load!(5, x, LINE_BYTES);
            tile_multiply!(1, 5, 7);
            tile_store!(1, sums, LINE_BYTES);
        }
    }
}

/// Begins the sums in this thread's tiles.
///
/// # Safety
///
/// This thread is [`Configured`].
#[inline(always)]
pub unsafe fn zero_sums() {
    // SAFETY: the caller says so.
    unsafe {
        tile_zero!(0);
        tile_zero!(1);
        tile_zero!(2);
        tile_zero!(3);
    }
}

/// Writes the sums of `LEFT` and `RIGHT` tiles. `[left][right]`
///
/// # Safety
///
/// This thread is [`Configured`], and `sums` has room as [`Products::add`] says.
#[inline(always)]
pub unsafe fn store_sums<const LEFT: usize, const RIGHT: usize>(sums: *mut f32) {
    let below = sums.wrapping_add(2 * TILE_NUMBERS);
    // SAFETY: the caller says so.
    unsafe {
        tile_store!(0, sums, LINE_BYTES);
        if RIGHT == 2 {
            tile_store!(1, sums.add(TILE_NUMBERS), LINE_BYTES);
        }
        if LEFT == 2 {
            tile_store!(2, below, LINE_BYTES);
        }
        if LEFT == 2 && RIGHT == 2 {
            tile_store!(3, below.add(TILE_NUMBERS), LINE_BYTES);
        }
    }
}

/// Columns as rows.
pub fn transposed(rows: &Tile) -> Tile {
    let mut columns = [[0; EDGE]; EDGE];
    // SAFETY: this file serves `Isa::Amx`, which includes AVX-512. Both are whole tiles.
    unsafe { transpose(rows.as_ptr().cast(), LINE_BYTES, columns.as_mut_ptr().cast()) };
    columns
}

/// Writes the columns of the tile at `from`, whose rows lie `row_bytes` apart, as rows to `to`, which follow each other.
///
/// # Safety
///
/// The machine has AVX-512. 64 bytes of 16 rows can be read, and a tile can be written; `to` need not be aligned.
#[target_feature(enable = "avx512f")]
pub unsafe fn transpose(from: *const u8, row_bytes: usize, to: *mut u8) {
    let mut whole = [_mm512_setzero_si512(); EDGE];
    for (row, vector) in whole.iter_mut().enumerate() {
        // SAFETY: the caller says so.
        *vector = unsafe { _mm512_loadu_si512(from.add(row * row_bytes).cast()) };
    }
    let mut pairs = whole;
    for i in (0..EDGE).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(whole[i], whole[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(whole[i], whole[i + 1]);
    }
    // Lane `l` of `quads[4 i + c]` is column `4 l + c` of rows `4 i..4 i + 4`.
    let mut quads = pairs;
    for i in (0..EDGE).step_by(4) {
        quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for c in 0..4 {
        let even_upper = _mm512_shuffle_i32x4::<0x88>(quads[c], quads[4 + c]);
        let odd_upper = _mm512_shuffle_i32x4::<0xdd>(quads[c], quads[4 + c]);
        let even_lower = _mm512_shuffle_i32x4::<0x88>(quads[8 + c], quads[12 + c]);
        let odd_lower = _mm512_shuffle_i32x4::<0xdd>(quads[8 + c], quads[12 + c]);
        let lanes = [
            _mm512_shuffle_i32x4::<0x88>(even_upper, even_lower),
            _mm512_shuffle_i32x4::<0x88>(odd_upper, odd_lower),
            _mm512_shuffle_i32x4::<0xdd>(even_upper, even_lower),
            _mm512_shuffle_i32x4::<0xdd>(odd_upper, odd_lower),
        ];
        for (lane, vector) in lanes.into_iter().enumerate() {
            // SAFETY: the caller says so.
            unsafe { _mm512_storeu_si512(to.add((4 * lane + c) * LINE_BYTES).cast(), vector) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_tile_has_columns_for_rows() {
        if !is_x86_feature_detected!("avx512f") {
            return;
        }
        let rows = std::array::from_fn(|i| std::array::from_fn(|j| (100 * i + j) as u32));
        let wanted: Tile = std::array::from_fn(|j| std::array::from_fn(|i| (100 * i + j) as u32));
        assert_eq!(transposed(&rows), wanted);
    }
}
