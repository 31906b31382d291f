//! The ceilings of the machine: memory bandwidth, and multiply-adds in registers.

use compute::cpu::{Isa, Pool};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Instructions that multiply and add.
#[derive(Clone, Copy)]
pub enum Unit {
    /// FMA of eight f32.
    Fma256,
    /// FMA of sixteen f32.
    Fma512,
    /// Dot products of bf16 pairs into sixteen f32.
    Dot512,
    /// Products of bf16 tiles.
    Tiles,
}

impl Unit {
    /// Those that an instruction set could use.
    pub fn of(isa: Isa) -> &'static [Unit] {
        match isa.name() {
            "avx2" => &[Unit::Fma256],
            "avx512" => &[Unit::Fma512],
            "avx512bf16" => &[Unit::Fma512, Unit::Dot512],
            "amx" => &[Unit::Dot512, Unit::Tiles],
            _ => &[],
        }
    }

    /// What to call it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Fma256 => "FMA of 256 bits",
            Unit::Fma512 => "FMA of 512 bits",
            Unit::Dot512 => "bf16 dot products of 512 bits",
            Unit::Tiles => "AMX tiles",
        }
    }
}

const ROUNDS: usize = 7;

/// GB/s of all threads reading `bytes` from end to end, a piece at a time; the best of all pieces, read plainly or asking for
/// memory ahead, which is faster where a core has few misses in flight by itself.
pub fn read_gbps(pool: &Pool, bytes: &[u8]) -> f64 {
    const PIECE: usize = 16 << 20;
    let best = [0, 32 << 10].map(|ahead| {
        let mut pieces = bytes.as_chunks::<PIECE>().0.iter().cycle();
        let rounds = bytes.len() / PIECE * ROUNDS;
        let seconds = best_seconds(rounds, || {
            let piece = pieces.next().expect("a cycle has no end");
            pool.for_each(PIECE, 512 << 10, &|_, range| {
                let mut sums = [0u64; 16];
                for line in piece[range].as_chunks::<128>().0 {
                    if ahead > 0 {
                        ask_for(line.as_ptr().wrapping_add(ahead));
                        ask_for(line.as_ptr().wrapping_add(ahead + 64));
                    }
                    for (sum, number) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                        *sum = sum.wrapping_add(u64::from_ne_bytes(*number));
                    }
                }
                black_box(sums);
            });
        });
        1e-9 * PIECE as f64 / seconds
    });
    best[0].max(best[1])
}

/// Asks for the line of the cache at `at`, which need not be readable.
fn ask_for(at: *const u8) {
    // SAFETY: every x86-64 has the instruction, and it never faults.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// GFLOP/s of all threads in `unit`; the best of some rounds.
pub fn gflops(pool: &Pool, unit: &Unit) -> f64 {
    const TURNS: usize = 400_000;
    let shares = pool.threads() * 16;
    let flops = AtomicUsize::new(0);
    let seconds = best_seconds(ROUNDS, || {
        flops.store(0, Ordering::Relaxed);
        pool.for_each(shares, 1, &|_, _| {
            flops.fetch_add(turns(*unit, TURNS / 16), Ordering::Relaxed);
        });
    });
    1e-9 * flops.into_inner() as f64 / seconds
}

fn best_seconds(rounds: usize, mut work: impl FnMut()) -> f64 {
    let seconds = (0..rounds).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min)
}

#[cfg(not(target_arch = "x86_64"))]
fn turns(_: Unit, _: usize) -> usize {
    0
}

/// Makes `turns` turns of twelve independent instructions, four for tiles; returns the multiplications and additions.
#[cfg(target_arch = "x86_64")]
fn turns(unit: Unit, turns: usize) -> usize {
    // SAFETY: `Unit::of` names only units of an instruction set that `Isa::available` found.
    unsafe {
        match unit {
            Unit::Fma256 => x86::fma256(turns),
            Unit::Fma512 => x86::fma512(turns),
            Unit::Dot512 => x86::dot512(turns),
            Unit::Tiles => x86::tiles(turns),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn fma256(turns: usize) -> usize {
        let mut sums = [_mm256_setzero_ps(); 12];
        let (a, b) = black_box((_mm256_set1_ps(0.5), _mm256_set1_ps(0.25)));
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
        turns * 12 * 16
    }

    #[target_feature(enable = "avx512f")]
    pub unsafe fn fma512(turns: usize) -> usize {
        let mut sums = [_mm512_setzero_ps(); 12];
        let (a, b) = black_box((_mm512_set1_ps(0.5), _mm512_set1_ps(0.25)));
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
        turns * 12 * 32
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn dot512(turns: usize) -> usize {
        let mut sums = [_mm512_setzero_ps(); 12];
        // SAFETY: both are 64 bytes that may hold anything.
        let a: __m512bh = unsafe { std::mem::transmute(black_box(_mm512_set1_epi16(0x3f00))) };
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, a, a);
            }
        }
        black_box(sums);
        turns * 12 * 64
    }

    pub unsafe fn tiles(turns: usize) -> usize {
        #[repr(align(64))]
        struct Config([u8; 64]);
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for tile in 0..8 {
            config.0[16 + 2 * tile] = 64;
            config.0[48 + tile] = 16;
        }
        // SAFETY: the caller says that the machine has tiles; the configuration is eight of 16 rows by 64 bytes.
        unsafe {
            asm!("ldtilecfg [{config}]", config = in(reg) &config);
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3");
            asm!("tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7");
            for _ in 0..turns {
                asm!(
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                );
            }
            asm!("tilerelease");
        }
        turns * 4 * 16 * 16 * 32 * 2
    }
}
