//! A tile: some queries of one row over one key and value head, from the start of their windows to their own positions.
#![allow(unsafe_code)]

use super::inner::{Values, accumulate, score};
use super::query::Query;
use super::{Call, KEY_STEP, TILE_QUERIES};
use crate::AttentionSpec;
use crate::cpu::KvNumber;
use crate::cpu::lanes::{Lanes, exp, tanh};

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
    let (kv, dim) = (&call.kv, call.kv.head_dim);
    // A row of `converted` is padded to whole vectors.
    let padded = dim.next_multiple_of(L::N);
    let rows = (CONVERTED / padded).min(KEY_STEP);
    assert!(rows > 0, "a head of {dim} numbers, but at most {CONVERTED} are supported");
    let convert = queries.len() > QUERIES_WITHOUT_CONVERSION || padded != dim;
    let longest = queries.iter().map(|q| q.context).max().unwrap_or(0);
    // Steps begin at multiples of their size with a window, too: sums go by absolute position.
    let begin = queries.iter().map(|q| q.window_start).min().unwrap_or(0) / KEY_STEP * KEY_STEP;
    let value = kv.value_at(0, 0) - kv.key_at(0, 0);

    let mut keys = call.rows(row, kv_head, begin, longest, 0);
    for start in (begin..longest).step_by(KEY_STEP) {
        let len = KEY_STEP.min(longest - start);
        let values = call.rows(row, kv_head, start, longest, value);
        if convert {
            for (part, keys) in keys[..len].chunks(rows).enumerate() {
                let keys = to_f32(lanes, converted, keys, padded);
                // SAFETY: `gather` took queries of `dim` numbers, and `to_f32` padded the keys.
                unsafe { score(lanes, queries, keys.as_slice(), dim, weights, part * rows, &[]) };
            }
        } else {
            // SAFETY: as above, and a head is whole vectors here.
            unsafe { score(lanes, queries, &keys[..len], dim, weights, 0, &values[..len]) };
        }
        if T::IS_SCALED {
            multiply(&mut weights[..queries.len()], &call.scales(row, kv_head, start, longest, 0));
        }
        for (query, weights) in queries.iter_mut().zip(&mut *weights) {
            weigh(lanes, query, weights, start, call.spec);
        }
        if T::IS_SCALED {
            multiply(&mut weights[..queries.len()], &call.scales(row, kv_head, start, longest, value));
        }
        keys = call.rows(row, kv_head, start + KEY_STEP, longest, 0);
        if convert {
            for (part, values) in values[..len].chunks(rows).enumerate() {
                let values = to_f32(lanes, converted, values, padded);
                let values = Values { rows: values.as_slice(), position: start + part * rows, ahead: &[] };
                // SAFETY: `gather` took outputs of `dim` numbers, and `to_f32` padded the values.
                unsafe { accumulate(lanes, queries, dim, weights, values) };
            }
        } else {
            let ahead = &keys[..KEY_STEP.min(longest - start - len)];
            let values = Values { rows: &values[..len], position: start, ahead };
            // SAFETY: as above, and a head is whole vectors here.
            unsafe { accumulate(lanes, queries, dim, weights, values) };
        }
    }
    for query in queries {
        let inverse = 1.0 / query.total;
        // SAFETY: `gather` took these `dim` numbers for this tile alone.
        let out = unsafe { std::slice::from_raw_parts_mut(query.out, dim) };
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
    let (dim, tokens) = (call.kv.head_dim, call.batch.row(row));
    let cols = call.cols;
    let first = tile * TILE_QUERIES;
    let len = TILE_QUERIES.min(tokens.len() * call.group - first);
    let queries = &mut queries[..len];
    for (i, query) in queries.iter_mut().enumerate() {
        let token = tokens.start + (first + i) / call.group;
        let head = kv_head * call.group + (first + i) % call.group;
        let position = call.batch.positions[token] as usize;
        let at = (token * call.spec.heads + head) * dim;
        // SAFETY: a token and head is in one tile, and a tile is computed by one thread.
        let out = unsafe { call.out.part(at..at + dim) };
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
    let mut rows = Rows { rows: [&[]; KEY_STEP], len: from.len() };
    rows.rows.iter_mut().zip(to.chunks_exact(padded)).for_each(|(row, to)| *row = to);
    rows
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
