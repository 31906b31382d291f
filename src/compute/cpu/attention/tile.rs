//! A tile: some queries of one row over one key and value head, from the start of their windows to their own positions.
#![allow(unsafe_code)]

use super::inner::{Values, accumulate, score};
use super::query::Query;
use super::{Call, KEY_STEP, TILE_QUERIES};
use crate::cpu::KvNumber;
use crate::cpu::lanes::{Lanes, exp, tanh};
use crate::{AttentionSpec, KvValues};

/// Numbers of keys or values that stand converted to f32 at a time: half of a small first-level cache.
const CONVERTED: usize = 4096;

/// With more queries than this, converting keys and values once for all of them is faster.
const QUERIES_WITHOUT_CONVERSION: usize = 6;

/// Memory of a thread, used for one tile after another. 31 KiB on the stack
pub struct Scratch {
    queries: [Query; TILE_QUERIES],
    /// Scores of a step, then weights.
    weights: [[f32; KEY_STEP]; TILE_QUERIES],
    converted: [f32; CONVERTED],
}

impl Scratch {
    #[inline(always)]
    pub fn new() -> Scratch {
        Scratch {
            queries: [Query::NONE; TILE_QUERIES],
            weights: [[0.0; KEY_STEP]; TILE_QUERIES],
            converted: [0.0; CONVERTED],
        }
    }
}

/// Computes tile `tile` of a row for one key and value head.
#[inline(always)]
pub fn attend<L: Lanes, T: KvNumber>(
    lanes: L,
    scratch: &mut Scratch,
    call: &Call<T>,
    row: usize,
    kv_head: usize,
    tile: usize,
) {
    let Scratch { queries, weights, converted } = scratch;
    let queries = gather(queries, call, row, kv_head, tile);
    let (dim, value_dim) = (call.kv.head_dim, call.kv.value_dim());
    // A row of `converted` is padded to whole vectors.
    let [padded, padded_value] = [dim, value_dim].map(|dim| dim.next_multiple_of(L::N));
    let rows = (CONVERTED / padded).min(KEY_STEP);
    assert!(rows > 0, "a head of {dim} numbers, but at most {CONVERTED} are supported");
    // A key that ends with its value has two scales: it is multiplied by them, and not its score.
    let has_two_scales = T::IS_SCALED && call.kv.values != KvValues::Stored;
    let is_padded = padded != dim || padded_value != value_dim;
    let convert = queries.len() > QUERIES_WITHOUT_CONVERSION || is_padded || has_two_scales;
    let longest = queries.iter().map(|q| q.context).max().unwrap_or(0);
    // Steps begin at multiples of their size with a window, too: sums go by absolute position.
    let begin = queries.iter().map(|q| q.window_start).min().unwrap_or(0) / KEY_STEP * KEY_STEP;

    let mut keys = call.keys(row, kv_head, begin, longest);
    for start in (begin..longest).step_by(KEY_STEP) {
        let len = KEY_STEP.min(longest - start);
        let values = call.values(row, kv_head, start, longest);
        let scales: [[f32; 2]; KEY_STEP] = match has_two_scales {
            true => call.both_scales(row, kv_head, start, longest),
            false => [[1.0; 2]; KEY_STEP],
        };
        if convert {
            for (part, keys) in keys[..len].chunks(rows).enumerate() {
                let scales = &scales[part * rows..];
                let keys = match has_two_scales {
                    true => to_scaled_f32(lanes, converted, keys, padded, (call.kv.scaled_as_key(), scales)),
                    false => to_f32(lanes, converted, keys, padded),
                };
                // SAFETY: `gather` took queries of `dim` numbers, and `to_f32` padded the keys.
                unsafe { score(lanes, queries, keys.as_slice(), dim, weights, part * rows, &[]) };
            }
        } else {
            // SAFETY: as above, and a head is whole vectors here.
            unsafe { score(lanes, queries, &keys[..len], dim, weights, 0, &values[..len]) };
        }
        if T::IS_SCALED && !has_two_scales {
            multiply(&mut weights[..queries.len()], &call.key_scales(row, kv_head, start, longest));
        }
        for (query, weights) in queries.iter_mut().zip(&mut *weights) {
            weigh(lanes, query, weights, start, call.spec);
        }
        if T::IS_SCALED {
            multiply(&mut weights[..queries.len()], &call.value_scales(row, kv_head, start, longest));
        }
        keys = call.keys(row, kv_head, start + KEY_STEP, longest);
        if convert {
            for (part, values) in values[..len].chunks(rows).enumerate() {
                let values = to_f32(lanes, converted, values, padded_value);
                let values = Values { rows: values.as_slice(), position: start + part * rows, ahead: &[] };
                // SAFETY: `gather` took outputs of `value_dim` numbers, and `to_f32` padded the values.
                unsafe { accumulate(lanes, queries, value_dim, weights, values) };
            }
        } else {
            let ahead = &keys[..KEY_STEP.min(longest - start - len)];
            let values = Values { rows: &values[..len], position: start, ahead };
            // SAFETY: as above, and a head is whole vectors here.
            unsafe { accumulate(lanes, queries, value_dim, weights, values) };
        }
    }
    for query in queries {
        let inverse = 1.0 / query.total;
        // SAFETY: `gather` took these `value_dim` numbers for this tile alone.
        let out = unsafe { std::slice::from_raw_parts_mut(query.out, value_dim) };
        out.iter_mut().for_each(|v| *v *= inverse);
    }
}

/// Lists the queries of a tile and clears their outputs.
#[inline(always)]
fn gather<'a, T: KvNumber>(
    queries: &'a mut [Query],
    call: &Call<T>,
    row: usize,
    kv_head: usize,
    tile: usize,
) -> &'a mut [Query] {
    let (dim, value_dim, tokens) = (call.kv.head_dim, call.kv.value_dim(), call.batch.row(row));
    let cols = call.cols;
    let first = tile * TILE_QUERIES;
    let len = TILE_QUERIES.min(tokens.len() * call.group - first);
    let queries = &mut queries[..len];
    for (i, query) in queries.iter_mut().enumerate() {
        let token = tokens.start + (first + i) / call.group;
        let head = kv_head * call.group + (first + i) % call.group;
        let position = call.batch.positions[token] as usize;
        let at = (token * call.spec.heads + head) * value_dim;
        // SAFETY: a token and head is in one tile, and a tile is computed by one thread.
        let out = unsafe { call.out.part(at..at + value_dim) };
        out.fill(0.0);
        let (greatest, total) = call.beginning(head);
        *query = Query {
            query: call.qkv[token * cols + head * dim..][..dim].as_ptr(),
            out: out.as_mut_ptr(),
            window_start: call.spec.window_start(position),
            context: call.window_end(row, position),
            greatest,
            total,
            ..Query::NONE
        };
    }
    queries
}

/// Converts rows into `to`, `padded` numbers each, zeros beyond their end.
#[inline(always)]
fn to_f32<'a, L: Lanes, T: KvNumber>(lanes: L, to: &'a mut [f32], from: &[&[T]], padded: usize) -> Rows<'a> {
    for (to, from) in to.chunks_exact_mut(padded).zip(from) {
        let whole = from.len() / L::N * L::N;
        for i in (0..whole).step_by(L::N) {
            // SAFETY: `i + N` is at most the length of `from`, which is at most that of `to`.
            unsafe { lanes.store(to.as_mut_ptr().add(i), T::load(lanes, from.as_ptr().add(i))) };
        }
        to[whole..].fill(0.0);
        to[whole..].iter_mut().zip(&from[whole..]).for_each(|(to, from)| *to = from.to_f32());
    }
    Rows::new(to, padded, from.len())
}

/// [`to_f32`], with the first `split` numbers of each row multiplied by the first of its scales, and the others by the second.
#[inline(always)]
fn to_scaled_f32<'a, L: Lanes, T: KvNumber>(
    lanes: L,
    to: &'a mut [f32],
    from: &[&[T]],
    padded: usize,
    (split, scales): (usize, &[[f32; 2]]),
) -> Rows<'a> {
    to_f32(lanes, to, from, padded);
    for (row, &[first, second]) in to.chunks_exact_mut(padded).zip(scales).take(from.len()) {
        row[..split].iter_mut().for_each(|v| *v *= first);
        row[split..].iter_mut().for_each(|v| *v *= second);
    }
    Rows::new(to, padded, from.len())
}

/// Multiplies scores by the scales of their keys, or weights by those of their values. What a query does not attend to may become NaN.
#[inline(always)]
fn multiply(weights: &mut [[f32; KEY_STEP]], scales: &[f32; KEY_STEP]) {
    for weights in weights {
        weights.iter_mut().zip(scales).for_each(|(weight, scale)| *weight *= scale);
    }
}

/// A few rows of f32.
struct Rows<'a> {
    rows: [&'a [f32]; KEY_STEP],
    len: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn new(numbers: &'a [f32], padded: usize, len: usize) -> Rows<'a> {
        let mut rows = Rows { rows: [&[]; KEY_STEP], len };
        rows.rows.iter_mut().zip(numbers.chunks_exact(padded)).for_each(|(row, numbers)| *row = numbers);
        rows
    }

    #[inline(always)]
    fn as_slice(&self) -> &[&'a [f32]] {
        &self.rows[..self.len]
    }
}

/// Turns the scores of a step that begins at position `start` into weights.
#[inline(always)]
fn weigh<L: Lanes>(lanes: L, query: &mut Query, weights: &mut [f32; KEY_STEP], start: usize, spec: &AttentionSpec) {
    let attended = query.attended(start, KEY_STEP);
    let scale = match spec.softcap {
        None => spec.scale,
        Some(softcap) => {
            // Before the mask, whose minus infinity would become `-softcap`.
            cap(lanes, weights, spec.scale, softcap);
            softcap
        }
    };
    // Weights of positions that the query does not attend to become zero, and add nothing to the sums.
    weights[..attended.start].fill(f32::NEG_INFINITY);
    weights[attended.end..].fill(f32::NEG_INFINITY);
    let vectors = || (attended.start / L::N * L::N..attended.end).step_by(L::N);

    let mut greatest = lanes.splat(query.greatest);
    for i in vectors() {
        // SAFETY: KEY_STEP is a multiple of N, so that `i + N` is at most KEY_STEP. The same holds below.
        let score = lanes.mul(unsafe { lanes.load(weights.as_ptr().add(i)) }, lanes.splat(scale));
        // SAFETY: as above.
        unsafe { lanes.store(weights.as_mut_ptr().add(i), score) };
        greatest = lanes.max(score, greatest);
    }
    let greatest = lanes.greatest(greatest);
    // All scores may be minus infinity, whose difference to itself is no number.
    let base = if greatest == f32::NEG_INFINITY { 0.0 } else { greatest };

    let mut total = lanes.splat(0.0);
    for i in vectors() {
        // SAFETY: as above.
        unsafe {
            let score = lanes.load(weights.as_ptr().add(i));
            let weight = exp(lanes, lanes.sub(score, lanes.splat(base)));
            lanes.store(weights.as_mut_ptr().add(i), weight);
            total = lanes.add(total, weight);
        }
    }
    query.rescale = lanes.greatest(exp(lanes, lanes.splat(query.greatest - base)));
    query.total = query.total * query.rescale + lanes.sum(total);
    query.greatest = greatest;
}

/// Turns scores into `tanh(score * scale / softcap)`, which are to be multiplied by `softcap`. Places without a score change as
/// well; the mask overwrites them.
#[inline(always)]
fn cap<L: Lanes>(lanes: L, scores: &mut [f32; KEY_STEP], scale: f32, softcap: f32) {
    let factor = lanes.splat(scale / softcap);
    for scores in scores.chunks_exact_mut(L::N) {
        // SAFETY: the chunk has N numbers.
        unsafe {
            let score = lanes.load(scores.as_ptr());
            lanes.store(scores.as_mut_ptr(), tanh(lanes, lanes.mul(score, factor)));
        }
    }
}
