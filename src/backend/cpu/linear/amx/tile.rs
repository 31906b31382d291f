//! The instructions of AMX, and what goes with them.
//!
//! The compiler knows nothing of tile registers: it neither uses nor saves them, so they keep their values from one `asm!`
//! to the next. No `asm!` here is `nomem`, because each tile load reads what Rust wrote before it.
//!
//! | tiles | hold |
//! |-------|------|
//! | 0 1 2 3 | sums of group 0 and blocks 0, 1; of group 1 and blocks 0, 1. `[16 columns][16 tokens]` |
//! | 4 5     | weights of groups 0, 1. `[16 columns][32 k]` |
//! | 6 7     | `x` of blocks 0, 1. `[16 pairs of k][16 tokens][2]` |
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

/// Columns, and tokens, of a tile.
pub const EDGE: usize = 16;
/// Numbers along `k` in a tile.
pub const STEP: usize = 32;
/// Numbers of 32 bits in a tile.
pub const TILE_NUMBERS: usize = EDGE * EDGE;
/// Bytes of a tile.
pub const TILE_BYTES: usize = TILE_NUMBERS * 4;
/// Bytes of a row of a tile.
const ROW_BYTES: usize = EDGE * 4;

/// This thread's tiles, all of 16 rows by 64 bytes, until it is dropped.
///
/// Made anew for each range of columns: on the caller's thread, the host may use tiles of other shapes between calls.
pub struct Configured(());

impl Configured {
    pub fn new() -> Configured {
        #[repr(C, align(64))]
        struct Config {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(ROW_BYTES as u16);
        config.rows[..8].fill(EDGE as u8);
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

/// Products of columns and tokens, over some steps of `k`.
pub struct Products {
    /// The first column's weights.
    pub weight: *const u8,
    /// Bytes from one column's weights to the next one's.
    pub row_bytes: usize,
    /// Groups of [`EDGE`] columns.
    pub groups: usize,
    /// Columns beyond those whose weights to bring into the cache meanwhile.
    pub ahead_rows: usize,
    /// Steps of [`STEP`] numbers.
    pub steps: usize,
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

impl Products {
    /// Adds the products of `GROUPS` groups and `BLOCKS` blocks of tokens to `sums`.
    ///
    /// Block `b` of `x` lies `b * x_stride` numbers on; group `g` of `sums` lies `g * sums_stride` numbers on, its blocks one
    /// after another.
    ///
    /// # Safety
    ///
    /// This thread is [`Configured`]. There are `steps` steps of `GROUPS * EDGE` columns at `weight`, and `steps` tiles of
    /// each block at `x`; `sums` has room for the tiles.
    #[inline]
    pub unsafe fn add<const GROUPS: usize, const BLOCKS: usize>(
        &self,
        x: *const u32,
        x_stride: usize,
        sums: *mut f32,
        sums_stride: usize,
        start: Start,
    ) {
        // SAFETY: the caller says that all tiles read and written here are there; a prefetch may lead anywhere.
        unsafe {
            let below = sums.wrapping_add(sums_stride);
            match start {
                Start::Zero => {
                    tile_zero!(0);
                    tile_zero!(1);
                    tile_zero!(2);
                    tile_zero!(3);
                }
                Start::Sums => {
                    tile_load!(0, sums, ROW_BYTES);
                    if BLOCKS == 2 {
                        tile_load!(1, sums.add(TILE_NUMBERS), ROW_BYTES);
                    }
                    if GROUPS == 2 {
                        tile_load!(2, below, ROW_BYTES);
                    }
                    if GROUPS == 2 && BLOCKS == 2 {
                        tile_load!(3, below.add(TILE_NUMBERS), ROW_BYTES);
                    }
                }
            }
            for step in 0..self.steps {
                let weight = self.weight.add(step * STEP * 2);
                let x = x.add(step * TILE_NUMBERS);
                tile_load!(6, x, ROW_BYTES);
                tile_load!(4, weight, self.row_bytes);
                tile_multiply!(0, 4, 6);
                if BLOCKS == 2 {
                    tile_load!(7, x.add(x_stride), ROW_BYTES);
                    tile_multiply!(1, 4, 7);
                }
                if GROUPS == 2 {
                    tile_load!(5, weight.add(EDGE * self.row_bytes), self.row_bytes);
                    tile_multiply!(2, 5, 6);
                }
                if GROUPS == 2 && BLOCKS == 2 {
                    tile_multiply!(3, 5, 7);
                }
                let mut ahead = weight.wrapping_add(GROUPS * EDGE * self.row_bytes);
                for _ in 0..self.ahead_rows {
                    _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                    ahead = ahead.wrapping_add(self.row_bytes);
                }
            }
            tile_store!(0, sums, ROW_BYTES);
            if BLOCKS == 2 {
                tile_store!(1, sums.add(TILE_NUMBERS), ROW_BYTES);
            }
            if GROUPS == 2 {
                tile_store!(2, below, ROW_BYTES);
            }
            if GROUPS == 2 && BLOCKS == 2 {
                tile_store!(3, below.add(TILE_NUMBERS), ROW_BYTES);
            }
        }
    }
}

/// Columns as rows.
pub fn transposed(rows: &[[u32; EDGE]; EDGE]) -> [[u32; EDGE]; EDGE] {
    let mut columns = [[0; EDGE]; EDGE];
    // SAFETY: this file serves `Isa::Amx`, which includes AVX-512.
    unsafe { transpose(rows, &mut columns) };
    columns
}

#[target_feature(enable = "avx512f")]
fn transpose(rows: &[[u32; EDGE]; EDGE], columns: &mut [[u32; EDGE]; EDGE]) {
    let mut whole = [_mm512_setzero_si512(); EDGE];
    for (vector, row) in whole.iter_mut().zip(rows) {
        // SAFETY: a row is 64 bytes.
        *vector = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
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
            // SAFETY: a column is 64 bytes.
            unsafe { _mm512_storeu_si512(columns[4 * lane + c].as_mut_ptr().cast(), vector) };
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
        let wanted: [[u32; EDGE]; EDGE] = std::array::from_fn(|j| std::array::from_fn(|i| (100 * i + j) as u32));
        assert_eq!(transposed(&rows), wanted);
    }
}
