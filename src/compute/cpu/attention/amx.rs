//! Attention by AMX, for keys and values in bf16 and in int8, whose integers are exact in bf16.
//!
//! Queries and weights are f32, tiles are bf16: each number is split into an upper part and the remainder, which
//! are multiplied one after the other. The two keep 16 bits, so that no more is lost than in the sums of f32.
//!
//! A tile of work is up to [`TILE_QUERIES`] queries in blocks of 16, as in `tile.rs`, and one block's scores are a tile for each
//! 16 keys: `[key][query]`, so that the softmax of 16 queries runs down the lanes of a vector. Sums go by absolute position.
//!
//! What a query does not attend to gets the weight zero. Should a token that other queries of the tile attend to have an infinite
//! value, the tile is lost: zero times infinity is no number. No other sequence ever shares a tile.
// Loops over registers read best by their numbers.
#![allow(clippy::needless_range_loop)]
#![allow(unsafe_code)]

use super::{Call, KEY_STEP};
use crate::cpu::amx::{
    Ahead, Configured, EDGE, LINE_BYTES, Operand, Products, STEP, Start, TILE_BYTES, TILE_NUMBERS, Tile, transpose,
    transposed,
};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::lanes::{Kernel, Lanes, dispatch, exp, tanh};
use crate::cpu::{Isa, KvNumber, Number, Pool};
use crate::{AttentionSpec, KvFormat, KvShape, KvValues};
use base::error::{Result, room};
use half::bf16;
use std::ops::Range;

/// Queries that share the keys and values they read.
pub const TILE_QUERIES: usize = 64;
/// Numbers of a head, at most.
const DIM: usize = 256;
const BLOCKS: usize = TILE_QUERIES / EDGE;
/// Steps of a tile along the keys of a step.
const KEY_TILES: usize = KEY_STEP / STEP;
/// The upper bits of an f32, which are its bf16.
const UPPER: u32 = 0xffff_0000;

/// Memory of a thread, used for one tile of work after another.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Work {
    /// `[block][upper, rest][step][pair of numbers][query]`
    queries: [Tile; BLOCKS * 2 * DIM / STEP],
    /// `[key][head_dim]`
    keys: [bf16; KEY_STEP * DIM],
    /// `[16 numbers][32 keys][pair of keys][number]`
    values: [Tile; DIM / EDGE * KEY_TILES],
    /// `[key][query]`
    scores: [[f32; EDGE]; KEY_STEP],
    /// `[upper, rest][32 keys][query][pair of keys]`
    weights: [Tile; 2 * KEY_TILES],
    /// Four tiles, as [`Products`] leave them.
    sums: [[[f32; EDGE]; EDGE]; 4],
    /// `[block][16 numbers][query][number]`
    outs: [[[f32; EDGE]; EDGE]; BLOCKS * DIM / EDGE],
    softmax: [Softmax; BLOCKS],
    /// Of the keys and the values of a step, where they have any.
    key_scales: [f32; KEY_STEP],
    value_scales: [f32; KEY_STEP],
}

/// Where the softmax of 16 queries stands.
#[derive(Clone, Copy)]
struct Softmax {
    /// First position that each query attends to.
    window_starts: [f32; EDGE],
    /// One past the last position that each query attends to; 0 where there is no query.
    contexts: [f32; EDGE],
    /// Greatest score so far.
    greatest: [f32; EDGE],
    /// Sum of the weights so far, relative to the greatest score.
    total: [f32; EDGE],
    /// What the outputs must be multiplied with before more is added.
    rescale: [f32; EDGE],
}

const NOBODY: Softmax = Softmax {
    window_starts: [0.0; EDGE],
    contexts: [0.0; EDGE],
    greatest: [f32::NEG_INFINITY; EDGE],
    total: [0.0; EDGE],
    rescale: [0.0; EDGE],
};

impl Softmax {
    /// Whether a query attends to a position of the step that begins at `start`.
    fn attends(&self, start: usize) -> bool {
        let (start, end) = (start as f32, (start + KEY_STEP) as f32);
        self.window_starts.iter().zip(&self.contexts).any(|(&first, &context)| context > start && first < end)
    }
}

impl Work {
    /// Memory for `threads` threads; none where it serves nobody.
    pub fn new(isa: Isa, threads: usize) -> Result<Vec<Work>> {
        let threads = if isa == Isa::Amx { threads } else { 0 };
        let mut work = room::<Work>(threads, "what threads know of attention", "num_threads")?;
        // SAFETY: there is room for as many. All fields are numbers, of which zeros are valid. They are zeroed where they lie, since a `Work`
        // on the way there would take 100 KiB of the caller's stack; a tile begins by setting its softmax.
        unsafe {
            work.as_mut_ptr().write_bytes(0, threads);
            work.set_len(threads);
        }
        Ok(work)
    }
}

/// Whether heads of this shape can be taken.
pub fn serves(isa: Isa, kv: &KvShape) -> bool {
    let is_exact = [bf16::FORMAT, KvFormat::Int8].contains(&kv.format);
    let is_common = kv.values == KvValues::Stored && is_exact;
    isa == Isa::Amx && is_common && kv.head_dim.is_multiple_of(STEP) && kv.head_dim <= DIM
}

/// Numbers that bf16 holds exactly.
pub trait Staged: KvNumber {
    /// The same number.
    fn to_bf16(self) -> bf16;
}

impl Staged for bf16 {
    #[inline(always)]
    fn to_bf16(self) -> bf16 {
        self
    }
}

impl Staged for i8 {
    #[inline(always)]
    fn to_bf16(self) -> bf16 {
        bf16::from_bits((f32::from(self).to_bits() >> 16) as u16)
    }
}

/// Computes all tiles of work.
pub fn run<T: Staged>(pool: &Pool, work: &mut [Work], call: &Call<T>) {
    let (tiles, chunk) = call.sharing();
    let work = Disjoint::new(work);
    pool.for_each(tiles, chunk, &|thread, tiles| {
        // SAFETY: no two calls with the same thread overlap.
        let work = unsafe { &mut work.part(thread..thread + 1)[0] };
        let _configured = Configured::new();
        dispatch(Isa::Amx, Tiles { work, call, tiles });
    });
}

struct Tiles<'a, T> {
    work: &'a mut Work,
    call: &'a Call<'a, T>,
    tiles: Range<usize>,
}

impl<T: Staged> Kernel for Tiles<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        assert_eq!(L::N, EDGE, "AMX includes AVX-512");
        for tile in self.tiles {
            let (row, kv_head, tile) = self.call.place(tile);
            attend(lanes, self.work, self.call, row, kv_head, tile);
        }
    }
}

/// Computes tile `tile` of a row for one key and value head.
#[inline(always)]
fn attend<L: Lanes, T: Staged>(lanes: L, work: &mut Work, call: &Call<T>, row: usize, kv_head: usize, tile: usize) {
    let dim = call.kv.head_dim;
    let tokens = call.batch.row(row);
    let first = tile * TILE_QUERIES;
    let queries = TILE_QUERIES.min(tokens.len() * call.group - first);
    // Token and head of query `i` of the tile.
    let place = |i: usize| (tokens.start + (first + i) / call.group, kv_head * call.group + (first + i) % call.group);
    gather(work, call, queries, row, place);
    let blocks = queries.div_ceil(EDGE);
    let longest = call.window_end(row, call.batch.positions[place(queries - 1).0] as usize);
    let earliest = call.spec.window_start(call.batch.positions[place(0).0] as usize);
    // Steps begin at multiples of their size with a window, too: sums go by absolute position.
    let begin = earliest / KEY_STEP * KEY_STEP;

    let mut keys = call.keys(row, kv_head, begin, longest);
    let mut values = call.values(row, kv_head, begin, longest);
    // What no query attends to is not read.
    for rows in [&mut keys, &mut values] {
        rows[..earliest - begin].fill(&[]);
    }
    for start in (begin..longest).step_by(KEY_STEP) {
        stage(work, &keys, &values, dim);
        if T::IS_SCALED {
            work.key_scales = call.key_scales(row, kv_head, start, longest);
            work.value_scales = call.value_scales(row, kv_head, start, longest);
            if start == begin {
                for scales in [&mut work.key_scales, &mut work.value_scales] {
                    scales[..earliest - begin].fill(0.0);
                }
            }
        }
        keys = call.keys(row, kv_head, start + KEY_STEP, longest);
        values = call.values(row, kv_head, start + KEY_STEP, longest);
        if blocks == 1 {
            // There is too little to compute to wait for memory.
            for line in keys.iter().chain(&values).flat_map(|row| row.chunks(LINE_BYTES / size_of::<T>())) {
                lanes.prefetch(line.as_ptr());
            }
        }
        for block in 0..blocks {
            if work.softmax[block].attends(start) {
                score::<L, T>(lanes, work, block, dim, start, call.spec);
                weigh::<L, T>(lanes, work, block);
                accumulate(lanes, work, block, dim);
            }
        }
    }
    for i in 0..queries {
        let (token, head) = place(i);
        let at = (token * call.spec.heads + head) * dim;
        // SAFETY: a token and head is in one tile, and a tile is computed by one thread.
        let out = unsafe { call.out.part(at..at + dim) };
        let inverse = 1.0 / work.softmax[i / EDGE].total[i % EDGE];
        let tiles = &work.outs[i / EDGE * (dim / EDGE)..];
        for (out, tile) in out.as_chunks_mut::<EDGE>().0.iter_mut().zip(tiles) {
            out.iter_mut().zip(&tile[i % EDGE]).for_each(|(out, v)| *out = v * inverse);
        }
    }
}

/// Takes queries apart, and clears their outputs.
#[inline(always)]
fn gather<T: KvNumber>(
    work: &mut Work,
    call: &Call<T>,
    queries: usize,
    row: usize,
    place: impl Fn(usize) -> (usize, usize),
) {
    let dim = call.kv.head_dim;
    let (steps, groups) = (dim / STEP, dim / EDGE);
    let cols = call.cols;
    for block in 0..queries.div_ceil(EDGE) {
        let within = block * EDGE..queries.min((block + 1) * EDGE);
        work.outs[block * groups..][..groups].fill([[0.0; EDGE]; EDGE]);
        let softmax = &mut work.softmax[block];
        *softmax = NOBODY;
        let ranges = softmax.window_starts.iter_mut().zip(&mut softmax.contexts);
        for (i, (window_start, context)) in within.clone().zip(ranges) {
            let position = call.batch.positions[place(i).0] as usize;
            *window_start = call.spec.window_start(position) as f32;
            *context = call.window_end(row, position) as f32;
        }
        for i in within.clone() {
            (softmax.greatest[i % EDGE], softmax.total[i % EDGE]) = call.beginning(place(i).1);
        }
        for step in 0..steps {
            let mut parts = [[[0; EDGE]; EDGE]; 2];
            for i in within.clone() {
                let (token, head) = place(i);
                let numbers = &call.qkv[token * cols + head * dim + step * STEP..][..STEP];
                for (pair, numbers) in numbers.as_chunks::<2>().0.iter().enumerate() {
                    let (first, second) = (taken_apart(numbers[0]), taken_apart(numbers[1]));
                    for (part, tile) in parts.iter_mut().enumerate() {
                        tile[i % EDGE][pair] = u32::from(first[part]) | u32::from(second[part]) << 16;
                    }
                }
            }
            for (part, tile) in parts.iter().enumerate() {
                work.queries[(block * 2 + part) * steps + step] = transposed(tile);
            }
        }
    }
}

/// The upper part of a number, and the rest rounded, both bf16.
#[inline(always)]
fn taken_apart(number: f32) -> [u16; 2] {
    let upper = number.to_bits() & UPPER;
    let rest = <bf16 as Number>::from_f32(number - f32::from_bits(upper));
    [(upper >> 16) as u16, rest.to_bits()]
}

/// Puts the keys and values of a step into order; rows that are empty become zero.
#[inline(always)]
fn stage<T: Staged>(work: &mut Work, keys: &[&[T]; KEY_STEP], values: &[&[T]; KEY_STEP], dim: usize) {
    for (to, key) in work.keys.chunks_exact_mut(dim).zip(keys) {
        if key.is_empty() {
            to.fill(bf16::ZERO);
        } else {
            to.iter_mut().zip(*key).for_each(|(to, number)| *to = number.to_bf16());
        }
    }
    let nothing = [T::zeroed(); DIM];
    for (pair, rows) in values.as_chunks::<2>().0.iter().enumerate() {
        let [first, second] = [0, 1].map(|i| if rows[i].is_empty() { &nothing[..dim] } else { rows[i] });
        let numbers = first.as_chunks::<EDGE>().0.iter().zip(second.as_chunks::<EDGE>().0);
        for (group, (first, second)) in numbers.enumerate() {
            let to = &mut work.values[group * KEY_TILES + pair / EDGE][pair % EDGE];
            for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
                *to = u32::from(first.to_bf16().to_bits()) | u32::from(second.to_bf16().to_bits()) << 16;
            }
        }
    }
}

/// Scores the keys of a step for a block of queries, and finds the greatest so far.
#[inline(always)]
fn score<L: Lanes, T: KvNumber>(
    lanes: L,
    work: &mut Work,
    block: usize,
    dim: usize,
    start: usize,
    spec: &AttentionSpec,
) {
    let Work { queries, keys, scores, sums, softmax, key_scales, .. } = work;
    let steps = dim / STEP;
    let queries = &queries[block * 2 * steps..][..2 * steps];
    let softmax = &mut softmax[block];
    // SAFETY: vectors have 16 numbers by `Tiles::run`, as these arrays have.
    let contexts = unsafe { lanes.load(softmax.contexts.as_ptr()) };
    // SAFETY: as above.
    let window_starts = unsafe { lanes.load(softmax.window_starts.as_ptr()) };
    // With a softcap a score is multiplied in two steps: before the tanh and after it.
    let (scale, softcap) = match spec.softcap {
        None => (spec.scale, None),
        Some(softcap) => (spec.scale / softcap, Some(lanes.splat(softcap))),
    };
    let is_cut_before = softmax.window_starts.iter().any(|&first| first > start as f32);
    // SAFETY: as above.
    let mut greatest = unsafe { lanes.load(softmax.greatest.as_ptr()) };
    let halves = keys.chunks_exact(2 * EDGE * dim).zip(scores.as_chunks_mut::<{ 2 * EDGE }>().0);
    for (half, (keys, scores)) in halves.enumerate() {
        let products = Products {
            left: Operand {
                at: keys.as_ptr().cast(),
                row_bytes: dim * 2,
                step_bytes: STEP * 2,
                next_bytes: EDGE * dim * 2,
            },
            right: Operand {
                at: queries.as_ptr().cast(),
                row_bytes: LINE_BYTES,
                step_bytes: TILE_BYTES,
                next_bytes: steps * TILE_BYTES,
            },
            steps,
            ahead: Ahead::NOTHING,
        };
        // SAFETY: `run` made this thread `Configured`. The lines above cut keys and queries to what is read.
        unsafe { products.add(2, 2, sums.as_mut_ptr().cast(), Start::Zero) };
        for (key, scores) in scores.iter_mut().enumerate() {
            let (group, key_of_group) = (key / EDGE, key % EDGE);
            let [upper, rest] = [0, 1].map(|part| sums[group * 2 + part][key_of_group].as_ptr());
            let position = lanes.splat((start + half * 2 * EDGE + key) as f32);
            // SAFETY: as above.
            unsafe {
                let mut score = lanes.add(lanes.load(upper), lanes.load(rest));
                if T::IS_SCALED {
                    score = lanes.mul(score, lanes.splat(key_scales[half * 2 * EDGE + key]));
                }
                score = lanes.mul(score, lanes.splat(scale));
                if let Some(softcap) = softcap {
                    score = lanes.mul(tanh(lanes, score), softcap);
                }
                score = lanes.select_less(position, contexts, score, lanes.splat(f32::NEG_INFINITY));
                if is_cut_before {
                    score = lanes.select_less(position, window_starts, lanes.splat(f32::NEG_INFINITY), score);
                }
                lanes.store(scores.as_mut_ptr(), score);
                greatest = lanes.max(score, greatest);
            }
        }
    }
    // All scores may be minus infinity, whose difference to itself is no number.
    let base = lanes.select_less(lanes.splat(f32::NEG_INFINITY), greatest, greatest, lanes.splat(0.0));
    // SAFETY: as above.
    unsafe {
        let before = lanes.load(softmax.greatest.as_ptr());
        lanes.store(softmax.rescale.as_mut_ptr(), exp(lanes, lanes.sub(before, base)));
        lanes.store(softmax.greatest.as_mut_ptr(), greatest);
    }
}

/// Turns the scores of a step into weights, taken apart.
#[inline(always)]
fn weigh<L: Lanes, T: KvNumber>(lanes: L, work: &mut Work, block: usize) {
    let Work { scores, weights, softmax, value_scales, .. } = work;
    let softmax = &mut softmax[block];
    // SAFETY: vectors have 16 numbers by `Tiles::run`, as these arrays have.
    let greatest = unsafe { lanes.load(softmax.greatest.as_ptr()) };
    let base = lanes.select_less(lanes.splat(f32::NEG_INFINITY), greatest, greatest, lanes.splat(0.0));
    // Four sums, so that an addition need not wait for the one before it.
    let mut totals = [lanes.splat(0.0); 4];
    let upper_bits = lanes.splat_u32(UPPER);
    for (tile, scores) in scores.as_chunks::<STEP>().0.iter().enumerate() {
        let mut parts: [Tile; 2] = [[[0; EDGE]; EDGE]; 2];
        for (quad, scores) in scores.as_chunks::<4>().0.iter().enumerate() {
            let (mut uppers, mut rests) = ([upper_bits; 4], [upper_bits; 4]);
            // A closure would not take on the instructions of this function.
            for i in 0..4 {
                // SAFETY: as above.
                let score = unsafe { lanes.load(scores[i].as_ptr()) };
                let weight = exp(lanes, lanes.sub(score, base));
                totals[i] = lanes.add(totals[i], weight);
                let weight = if T::IS_SCALED {
                    lanes.mul(weight, lanes.splat(value_scales[tile * STEP + quad * 4 + i]))
                } else {
                    weight
                };
                uppers[i] = lanes.and(lanes.to_bits(weight), upper_bits);
                rests[i] = rounded(lanes, lanes.sub(weight, lanes.with_bits(uppers[i])));
            }
            for i in [0, 2] {
                let (pair, [upper, rest]) = (2 * quad + i / 2, &mut parts);
                // SAFETY: as above.
                unsafe {
                    let pairs = lanes.add_u32(lanes.shift_right(uppers[i], 16), uppers[i + 1]);
                    lanes.store_u32(upper[pair].as_mut_ptr(), pairs);
                    let pairs = lanes.add_u32(lanes.shift_right(rests[i], 16), rests[i + 1]);
                    lanes.store_u32(rest[pair].as_mut_ptr(), pairs);
                }
            }
        }
        for (part, pairs) in parts.iter().enumerate() {
            let to = &mut weights[part * KEY_TILES + tile];
            // SAFETY: this file serves `Isa::Amx`, which includes AVX-512. Both are whole tiles.
            unsafe { transpose(pairs.as_ptr().cast(), LINE_BYTES, to.as_mut_ptr().cast()) };
        }
    }
    let step = lanes.add(lanes.add(totals[0], totals[1]), lanes.add(totals[2], totals[3]));
    // SAFETY: as above.
    unsafe {
        let before = lanes.mul(lanes.load(softmax.total.as_ptr()), lanes.load(softmax.rescale.as_ptr()));
        lanes.store(softmax.total.as_mut_ptr(), lanes.add(before, step));
    }
}

/// The nearest bf16 of each lane, in its upper bits.
#[inline(always)]
fn rounded<L: Lanes>(lanes: L, v: L::V) -> L::U {
    let bits = lanes.to_bits(v);
    let odd = lanes.and(lanes.shift_right(bits, 16), lanes.splat_u32(1));
    let up = lanes.add_u32(odd, lanes.splat_u32(0x7fff));
    lanes.and(lanes.add_u32(bits, up), lanes.splat_u32(UPPER))
}

/// Adds the weighted values of a step to the outputs of a block.
#[inline(always)]
fn accumulate<L: Lanes>(lanes: L, work: &mut Work, block: usize, dim: usize) {
    let Work { values, weights, sums, outs, softmax, .. } = work;
    let groups = dim / EDGE;
    let rescale = &softmax[block].rescale;
    let outs = outs[block * groups..][..groups].as_chunks_mut::<2>().0;
    for (outs, values) in outs.iter_mut().zip(values.as_chunks::<{ 2 * KEY_TILES }>().0) {
        let operand = |at: *const u8| Operand {
            at,
            row_bytes: LINE_BYTES,
            step_bytes: TILE_BYTES,
            next_bytes: KEY_TILES * TILE_BYTES,
        };
        let products = Products {
            left: operand(weights.as_ptr().cast()),
            right: operand(values.as_ptr().cast()),
            steps: KEY_TILES,
            ahead: Ahead::NOTHING,
        };
        // SAFETY: `run` made this thread `Configured`. There are two times KEY_TILES tiles of each.
        unsafe { products.add(2, 2, sums.as_mut_ptr().cast(), Start::Zero) };
        for (group, out) in outs.iter_mut().enumerate() {
            for (query, out) in out.iter_mut().enumerate() {
                let [upper, rest] = [0, 1].map(|part| sums[part * 2 + group][query].as_ptr());
                // SAFETY: vectors have 16 numbers by `Tiles::run`, as these arrays have.
                unsafe {
                    let more = lanes.add(lanes.load(upper), lanes.load(rest));
                    let sum = lanes.fma(lanes.load(out.as_ptr()), lanes.splat(rescale[query]), more);
                    lanes.store(out.as_mut_ptr(), sum);
                }
            }
        }
    }
}

const _: () = assert!(TILE_NUMBERS * 4 == size_of::<Tile>() && size_of::<bf16>() == 2);
