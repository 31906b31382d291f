//! The inner loops of attention: a few queries at a time against a few keys or values, sums in registers.
//!
//! How many are taken together decides about speed alone: each score and each output is summed in the same order.
// Loops over registers read best by their numbers.
#![allow(clippy::needless_range_loop)]
#![allow(unsafe_code)]

use super::KEY_STEP;
use super::query::Query;
use crate::cpu::KvNumber;
use crate::cpu::lanes::Lanes;
use std::ops::Range;

/// Keys that are taken together, and vectors of an output.
const COLUMNS: usize = 4;

/// How many of the next `left` queries to take together.
#[inline(always)]
fn next_few<L: Lanes>(left: usize) -> usize {
    match left {
        1 => 1,
        2 | 4 => 2,
        _ if left >= L::QUERIES => L::QUERIES,
        _ => 3,
    }
}

/// Writes `weights[q][first + j] = query[q] . keys[j]`.
///
/// Asks for the memory of `ahead` in passing, which is read next.
///
/// # Safety
///
/// `dim` numbers must be readable at each query, and as many rounded up to whole vectors at each key, those beyond `dim`
/// being zero.
#[inline(always)]
pub unsafe fn score<L: Lanes, T: KvNumber>(
    lanes: L,
    queries: &[Query],
    keys: &[&[T]],
    dim: usize,
    weights: &mut [[f32; KEY_STEP]],
    first: usize,
    ahead: &[&[T]],
) {
    let mut ahead = ahead;
    let mut at = 0;
    while at < queries.len() {
        let few = next_few::<L>(queries.len() - at);
        let (queries, weights) = (&queries[at..at + few], &mut weights[at..at + few]);
        // SAFETY: the caller's promise.
        unsafe {
            match few {
                1 => score_few::<L, T, 1>(lanes, queries, keys, dim, weights, first, ahead),
                2 => score_few::<L, T, 2>(lanes, queries, keys, dim, weights, first, ahead),
                3 => score_few::<L, T, 3>(lanes, queries, keys, dim, weights, first, ahead),
                _ => score_few::<L, T, 6>(lanes, queries, keys, dim, weights, first, ahead),
            }
        }
        // Once is enough.
        ahead = &[];
        at += few;
    }
}

/// [`score`] for `Q` queries.
#[inline(always)]
unsafe fn score_few<L: Lanes, T: KvNumber, const Q: usize>(
    lanes: L,
    queries: &[Query],
    keys: &[&[T]],
    dim: usize,
    weights: &mut [[f32; KEY_STEP]],
    first: usize,
    ahead: &[&[T]],
) {
    let queries: [*const f32; Q] = std::array::from_fn(|q| queries[q].query);
    let (fours, rest) = keys.as_chunks::<COLUMNS>();
    let mut ahead = ahead.chunks(COLUMNS);
    for (i, four) in fours.iter().enumerate() {
        for row in ahead.next().unwrap_or(&[]) {
            prefetch(lanes, row);
        }
        let four = [four[0].as_ptr(), four[1].as_ptr(), four[2].as_ptr(), four[3].as_ptr()];
        // SAFETY: the caller's promise.
        let sums = unsafe { dots::<L, T, Q, COLUMNS>(lanes, queries, four, dim) };
        for q in 0..Q {
            weights[q][first + i * COLUMNS..][..COLUMNS].copy_from_slice(&lanes.sum4(sums[q]));
        }
    }
    for (i, key) in rest.iter().enumerate() {
        // SAFETY: the caller's promise.
        let sums = unsafe { dots::<L, T, Q, 1>(lanes, queries, [key.as_ptr()], dim) };
        for q in 0..Q {
            weights[q][first + fours.len() * COLUMNS + i] = lanes.sum(sums[q][0]);
        }
    }
}

#[inline(always)]
fn prefetch<L: Lanes, T>(lanes: L, row: &[T]) {
    const LINE_BYTES: usize = 64;
    for line in row.chunks(LINE_BYTES / size_of::<T>()) {
        lanes.prefetch(line.as_ptr());
    }
}

/// Products of each query with each key, summed over all vectors but not over lanes.
#[inline(always)]
unsafe fn dots<L: Lanes, T: KvNumber, const Q: usize, const K: usize>(
    lanes: L,
    queries: [*const f32; Q],
    keys: [*const T; K],
    dim: usize,
) -> [[L::V; K]; Q] {
    let mut sums = [[lanes.splat(0.0); K]; Q];
    let mut vectors = [lanes.splat(0.0); Q];
    let mut at = 0;
    // SAFETY: `at + N` is at most `dim` in the loop, and at most `dim` rounded up below: the caller's promise.
    unsafe {
        while at + L::N <= dim {
            // Q queries, one key and Q * K sums: all the registers there are.
            for q in 0..Q {
                vectors[q] = lanes.load(queries[q].add(at));
            }
            for k in 0..K {
                let key = T::load(lanes, keys[k].add(at));
                for q in 0..Q {
                    sums[q][k] = lanes.fma(vectors[q], key, sums[q][k]);
                }
            }
            at += L::N;
        }
        if at < dim {
            for q in 0..Q {
                let query = lanes.load_first(queries[q].add(at), dim - at);
                for k in 0..K {
                    sums[q][k] = lanes.fma(query, T::load(lanes, keys[k].add(at)), sums[q][k]);
                }
            }
        }
    }
    sums
}

/// Values of consecutive positions, all of one step.
pub struct Values<'a, T> {
    /// `[positions][head_dim]`
    pub rows: &'a [&'a [T]],
    /// Position of the first of them.
    pub position: usize,
    /// What is read next; its memory is prefetched.
    pub ahead: &'a [&'a [T]],
}

/// `out[q] = out[q] * rescale[q] + sum_j weights[q][j] * values[j]` over the values that query `q` attends to.
///
/// Sets `rescale` to 1. A weight stands where its position has its place in the step.
///
/// # Safety
///
/// `dim` numbers must be writable at each output, and as many rounded up to whole vectors readable at each value.
#[inline(always)]
pub unsafe fn accumulate<L: Lanes, T: KvNumber>(
    lanes: L,
    queries: &mut [Query],
    dim: usize,
    weights: &[[f32; KEY_STEP]],
    values: Values<T>,
) {
    let Values { rows: values, position, mut ahead } = values;
    let first = position % KEY_STEP;
    let mut at = 0;
    while at < queries.len() {
        let few = next_few::<L>(queries.len() - at);
        let (queries, weights) = (&mut queries[at..at + few], &weights[at..at + few]);
        at += few;
        let attended = |query: &Query| query.attended(position, values.len());
        let begin = queries.iter().map(|query| attended(query).start).max().unwrap_or(0);
        let end = queries.iter().map(|query| attended(query).end).min().unwrap_or(0).max(begin);
        // Where the edge of a window or the causal edge cuts through, some queries attend to a few more values before or after
        // those of all. They go alone, so that no query touches a value that it does not attend to, not even with a weight of
        // zero.
        if begin > 0 {
            for (query, weights) in queries.iter_mut().zip(weights.chunks(1)) {
                let Range { start, end } = attended(query);
                // SAFETY: the caller's promise.
                unsafe { accumulate_alone(lanes, query, values, start..end.min(begin), dim, weights, first) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (values, first) = (&values[begin..end], first + begin);
            match few {
                1 => accumulate_few::<L, T, 1>(lanes, queries, values, dim, weights, first, ahead),
                2 => accumulate_few::<L, T, 2>(lanes, queries, values, dim, weights, first, ahead),
                3 => accumulate_few::<L, T, 3>(lanes, queries, values, dim, weights, first, ahead),
                _ => accumulate_few::<L, T, 6>(lanes, queries, values, dim, weights, first, ahead),
            }
        }
        // Once is enough.
        ahead = &[];
        for (query, weights) in queries.iter_mut().zip(weights.chunks(1)) {
            let attended = attended(query);
            // SAFETY: the caller's promise.
            unsafe {
                accumulate_alone(lanes, query, values, attended.start.max(end)..attended.end, dim, weights, first);
            }
        }
    }
}

/// [`accumulate`] for one query and the values `range`, where there are any.
#[inline(always)]
unsafe fn accumulate_alone<L: Lanes, T: KvNumber>(
    lanes: L,
    query: &mut Query,
    values: &[&[T]],
    range: Range<usize>,
    dim: usize,
    weights: &[[f32; KEY_STEP]],
    first: usize,
) {
    if !range.is_empty() {
        let (queries, first) = (std::slice::from_mut(query), first + range.start);
        // SAFETY: the caller's promise.
        unsafe { accumulate_few::<L, T, 1>(lanes, queries, &values[range], dim, weights, first, &[]) };
    }
}

/// [`accumulate`] for `Q` queries that see all of `values`.
#[inline(always)]
unsafe fn accumulate_few<L: Lanes, T: KvNumber, const Q: usize>(
    lanes: L,
    queries: &mut [Query],
    values: &[&[T]],
    dim: usize,
    weights: &[[f32; KEY_STEP]],
    first: usize,
    ahead: &[&[T]],
) {
    let mut ahead = ahead;
    let outs: [*mut f32; Q] = std::array::from_fn(|q| queries[q].out);
    let rescale: [f32; Q] = std::array::from_fn(|q| std::mem::replace(&mut queries[q].rescale, 1.0));
    let weights: [&[f32]; Q] = std::array::from_fn(|q| &weights[q][first..first + values.len()]);
    let mut at = 0;
    // SAFETY: every vector but the last one ends within `dim`, and the last one begins there: the caller's promise.
    unsafe {
        while at + COLUMNS * L::N <= dim {
            let old = load_out::<L, Q, COLUMNS>(lanes, outs, at);
            let new = add_values::<L, T, Q, COLUMNS>(lanes, old, rescale, weights, values, at, ahead);
            ahead = &[];
            for q in 0..Q {
                for c in 0..COLUMNS {
                    lanes.store(outs[q].add(at + c * L::N), new[q][c]);
                }
            }
            at += COLUMNS * L::N;
        }
        while at + L::N <= dim {
            let old = load_out::<L, Q, 1>(lanes, outs, at);
            let new = add_values::<L, T, Q, 1>(lanes, old, rescale, weights, values, at, ahead);
            for q in 0..Q {
                lanes.store(outs[q].add(at), new[q][0]);
            }
            at += L::N;
        }
        if at < dim {
            let mut old = [[lanes.splat(0.0); 1]; Q];
            for q in 0..Q {
                old[q][0] = lanes.load_first(outs[q].add(at), dim - at);
            }
            let new = add_values::<L, T, Q, 1>(lanes, old, rescale, weights, values, at, ahead);
            for q in 0..Q {
                lanes.store_first(outs[q].add(at), new[q][0], dim - at);
            }
        }
    }
}

#[inline(always)]
unsafe fn load_out<L: Lanes, const Q: usize, const C: usize>(
    lanes: L,
    outs: [*mut f32; Q],
    at: usize,
) -> [[L::V; C]; Q] {
    let mut sums = [[lanes.splat(0.0); C]; Q];
    for q in 0..Q {
        for c in 0..C {
            // SAFETY: the caller's promise.
            sums[q][c] = unsafe { lanes.load(outs[q].add(at + c * L::N)) };
        }
    }
    sums
}

/// `sums * rescale`, plus the weighted values in the order of their positions.
#[inline(always)]
unsafe fn add_values<L: Lanes, T: KvNumber, const Q: usize, const C: usize>(
    lanes: L,
    mut sums: [[L::V; C]; Q],
    rescale: [f32; Q],
    weights: [&[f32]; Q],
    values: &[&[T]],
    at: usize,
    ahead: &[&[T]],
) -> [[L::V; C]; Q] {
    let mut ahead = ahead.iter();
    for q in 0..Q {
        let rescale = lanes.splat(rescale[q]);
        for c in 0..C {
            sums[q][c] = lanes.mul(sums[q][c], rescale);
        }
    }
    let mut spread = [lanes.splat(0.0); Q];
    for (j, value) in values.iter().enumerate() {
        if let Some(row) = ahead.next() {
            prefetch(lanes, row);
        }
        for q in 0..Q {
            // SAFETY: the caller cut each query's weights to the number of values.
            spread[q] = lanes.splat(unsafe { *weights[q].get_unchecked(j) });
        }
        for c in 0..C {
            // SAFETY: the caller's promise.
            let vector = unsafe { T::load(lanes, value.as_ptr().add(at + c * L::N)) };
            for q in 0..Q {
                sums[q][c] = lanes.fma(spread[q], vector, sums[q][c]);
            }
        }
    }
    sums
}
