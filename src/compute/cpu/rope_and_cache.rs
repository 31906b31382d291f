//! See `ops/rope_and_cache.rs` for the contract.
//!
//! Two loops: over tokens to normalize and rotate, over heads to store. A head belongs to one thread in the second, so
//! that two tokens of one slot, which a correct batch never has, would still not be a race.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::norm::inverse_rms;
use super::{Cpu, DeviceBatch, KvCache, KvNumber, Number, Tensor, int8};
use crate::batch::Batch;
use crate::{
    AttentionSpec, KvFormat, KvPlace, KvShape, KvValues, NormExtent, NormKind, NormOrder, NormWeights, Pairing,
    QkNormRope, RopeTable,
};
use formats::DType;
use half::{bf16, f16};
use std::ops::Range;

/// The specification.
pub fn reference(
    spec: &AttentionSpec,
    qkv: &mut [f32],
    transform: QkNormRope<Box<[f32]>, [f32]>,
    cache: &mut KvCache,
    place: impl Into<KvPlace>,
    batch: &Batch,
) {
    let place = place.into();
    let QkNormRope { norm, whole, rope, temperature, value_norm } = transform;
    let heads = spec.heads;
    let kv = cache.shape(place);
    let dim = kv.head_dim;
    // A norm of `extent`, over `width` numbers at a time.
    let normalize = |queries: &mut [f32], keys: &mut [f32], extent: NormExtent, widths: [usize; 2]| {
        let Some(norm) = norm.as_ref().filter(|norm| norm.extent == extent) else { return };
        for (v, weight, width) in [(queries, norm.query, widths[0]), (keys, norm.key, widths[1])] {
            if v.is_empty() {
                continue;
            }
            assert_eq!(weight.len(), width);
            let x = v.to_vec();
            super::norm::reference(v, &x, NormWeights { weight, eps: norm.eps, kind: NormKind::Rms });
        }
    };
    // A norm of all heads of a token, of which these are some.
    let normalize_of_whole = |v: &mut [f32], whole: &[f32], weight: &[f32], eps: f32| {
        let squares: f64 = whole.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let divisor = (squares / whole.len() as f64 + f64::from(eps)).sqrt();
        v.iter_mut().zip(weight).for_each(|(v, &weight)| *v = (f64::from(*v) / divisor * f64::from(weight)) as f32);
    };
    let tokens = batch.positions.len();
    let has_keys = qkv.len() != tokens * heads * dim;
    let cols = (heads + if has_keys { kv.values.vectors() * kv.kv_heads } else { 0 }) * dim;
    for (token, row) in qkv.chunks_exact_mut(cols).enumerate() {
        let position = batch.positions[token] as usize;
        let (queries, rest) = row.split_at_mut(heads * dim);
        let (keys, values) = rest.split_at_mut(rest.len() / kv.values.vectors());
        match (&whole, &norm) {
            (Some(whole), Some(norm)) if norm.extent == NormExtent::Whole => {
                for (v, whole, weight) in
                    [(&mut *queries, whole.queries, norm.query), (&mut *keys, whole.keys, norm.key)]
                {
                    let width = whole.len() / tokens;
                    normalize_of_whole(v, &whole[token * width..][..width], weight, norm.eps);
                }
            }
            _ => normalize(queries, keys, NormExtent::Whole, [heads * dim, kv.kv_heads * dim]),
        }
        normalize(queries, keys, NormExtent::Head(NormOrder::BeforeRope), [dim, dim]);
        if let Some(RopeTable { table, rotary, pairing }) = rope {
            let (cos, sin) = table[position * rotary..][..rotary].split_at(rotary / 2);
            for v in queries.chunks_exact_mut(dim).chain(keys.chunks_exact_mut(dim)) {
                for i in 0..rotary / 2 {
                    let (a, b) = match pairing {
                        Pairing::Halves => (i, i + rotary / 2),
                        Pairing::Neighbours => (2 * i, 2 * i + 1),
                    };
                    (v[a], v[b]) = (v[a] * cos[i] - v[b] * sin[i], v[b] * cos[i] + v[a] * sin[i]);
                }
            }
        }
        normalize(queries, keys, NormExtent::Head(NormOrder::AfterRope), [dim, dim]);
        if let Some(temperature) = temperature {
            queries.iter_mut().for_each(|v| *v *= temperature[position]);
        }
        if let Some(eps) = value_norm {
            for v in values.chunks_exact_mut(dim) {
                let mean = v.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / dim as f64;
                let divisor = (mean + f64::from(eps)).sqrt();
                v.iter_mut().for_each(|v| *v = (f64::from(*v) / divisor) as f32);
            }
        }
        if !has_keys {
            continue;
        }
        let slot = batch.slots_of(place.table)[token] as usize;
        for kv_head in 0..kv.kv_heads {
            let key = &row[(heads + kv_head) * dim..][..dim];
            let parts = match kv.values {
                KvValues::Stored => (key, &row[(heads + kv.kv_heads + kv_head) * dim..][..dim]),
                KvValues::InKeys(value) => key.split_at(dim - value),
            };
            match kv.format {
                KvFormat::Plain(DType::F32) => store::<f32>(cache.layer_mut(place), &kv, slot, kv_head, parts),
                KvFormat::Plain(DType::F16) => store::<f16>(cache.layer_mut(place), &kv, slot, kv_head, parts),
                KvFormat::Plain(DType::Bf16) => store::<bf16>(cache.layer_mut(place), &kv, slot, kv_head, parts),
                KvFormat::Int8 => {
                    let numbers = [kv.key_at(slot, kv_head), kv.value_at(slot, kv_head)];
                    let scales = [kv.key_scale_at(slot, kv_head), kv.value_scale_at(slot, kv_head)];
                    for ((at, scale_at), from) in numbers.into_iter().zip(scales).zip([parts.0, parts.1]) {
                        let layer = cache.layer_mut(place);
                        let scale = int8::reference(from, &mut layer[at..at + from.len()]);
                        layer[scale_at..][..int8::SCALE_BYTES].copy_from_slice(&scale);
                    }
                }
            }
        }
    }
}

fn store<T: Number>(layer: &mut [T], kv: &KvShape, slot: usize, kv_head: usize, (key, value): (&[f32], &[f32])) {
    for (at, from) in [(kv.key_at(slot, kv_head), key), (kv.value_at(slot, kv_head), value)] {
        layer[at..at + from.len()].iter_mut().zip(from).for_each(|(to, &v)| *to = T::from_f32(v));
    }
}

pub fn run(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: &mut Tensor,
    transform: QkNormRope<Box<[f32]>, Tensor>,
    cache: &mut KvCache,
    place: KvPlace,
    device_batch: &DeviceBatch,
) {
    let kv = cache.shape(place);
    let (rows, cols) = (qkv.rows(), qkv.cols());
    let queries = spec.heads * kv.head_dim;
    let keys = (cols - queries) / kv.values.vectors();
    let all = Disjoint::new(qkv.values_mut());
    cpu.for_rows(rows, cols, &|rows| {
        let positions = &device_batch.batch.positions[rows.clone()];
        let whole = transform.whole.as_ref().map(|whole| {
            [whole.queries, whole.keys].map(|x| (&x.values()[rows.start * x.cols()..rows.end * x.cols()], x.cols()))
        });
        // SAFETY: the ranges of `for_rows` do not overlap.
        let qkv = unsafe { all.part(rows.start * cols..rows.end * cols) };
        let transform = &transform;
        dispatch(cpu.isa, Transform { qkv, cols, queries, keys, head_dim: kv.head_dim, transform, whole, positions });
    });
    if keys == 0 {
        return;
    }
    let qkv = qkv.values();
    match kv.format {
        KvFormat::Plain(DType::F32) => store_all::<f32>(cpu, qkv, cols, cache, place, device_batch),
        KvFormat::Plain(DType::F16) => store_all::<f16>(cpu, qkv, cols, cache, place, device_batch),
        KvFormat::Plain(DType::Bf16) => store_all::<bf16>(cpu, qkv, cols, cache, place, device_batch),
        KvFormat::Int8 => store_all::<i8>(cpu, qkv, cols, cache, place, device_batch),
    }
}

/// Normalizes and rotates the queries and keys of some tokens, and normalizes their values. `qkv` is `[tokens, cols]`
struct Transform<'a> {
    qkv: &'a mut [f32],
    cols: usize,
    /// Numbers of all query heads of a token.
    queries: usize,
    /// Numbers of all its key heads, and of all its value heads.
    keys: usize,
    head_dim: usize,
    transform: &'a QkNormRope<'a, Box<[f32]>, Tensor>,
    /// The rows of [`QkNormRope::whole`] and their widths, queries first.
    whole: Option<[(&'a [f32], usize); 2]>,
    positions: &'a [u32],
}

impl Kernel for Transform<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let QkNormRope { norm, rope, temperature, value_norm, .. } = self.transform;
        for (token, (row, &position)) in self.qkv.chunks_exact_mut(self.cols).zip(self.positions).enumerate() {
            let position = position as usize;
            let whole = self.whole.map(|parts| parts.map(|(rows, width)| &rows[token * width..][..width]));
            let (queries, rest) = row.split_at_mut(self.queries);
            let (keys, values) = rest.split_at_mut(self.keys);
            if let &Some(eps) = value_norm {
                for v in values.chunks_exact_mut(self.head_dim) {
                    let scale = inverse_rms(lanes, v, eps);
                    v.iter_mut().for_each(|v| *v *= scale);
                }
            }
            let parts = [
                (queries, norm.as_ref().map(|n| &**n.query), whole.map(|[queries, _]| queries)),
                (keys, norm.as_ref().map(|n| &**n.key), whole.map(|[_, keys]| keys)),
            ];
            for (part, weight, whole) in parts {
                let norm = norm.as_ref().zip(weight).map(|(norm, weight)| (norm.extent, weight, norm.eps));
                if let Some((NormExtent::Whole, weight, eps)) = norm {
                    let scale = inverse_rms(lanes, whole.unwrap_or(part), eps);
                    part.iter_mut().zip(weight).for_each(|(v, weight)| *v = *v * scale * weight);
                }
                for v in part.chunks_exact_mut(self.head_dim) {
                    if let Some((NormExtent::Head(NormOrder::BeforeRope), weight, eps)) = norm {
                        normalize(lanes, v, weight, eps);
                    }
                    if let Some(rope) = rope {
                        rotate(v, rope, position);
                    }
                    if let Some((NormExtent::Head(NormOrder::AfterRope), weight, eps)) = norm {
                        normalize(lanes, v, weight, eps);
                    }
                }
            }
            if let Some(temperature) = temperature {
                row[..self.queries].iter_mut().for_each(|v| *v *= temperature[position]);
            }
        }
    }
}

#[inline(always)]
fn normalize<L: Lanes>(lanes: L, v: &mut [f32], weight: &[f32], eps: f32) {
    let scale = inverse_rms(lanes, v, eps);
    v.iter_mut().zip(weight).for_each(|(v, weight)| *v = *v * scale * weight);
}

/// Turns the pairs of a head by the angles of `position`.
#[inline(always)]
fn rotate(v: &mut [f32], rope: &RopeTable<Box<[f32]>>, position: usize) {
    let (cos, sin) = rope.table[position * rope.rotary..][..rope.rotary].split_at(rope.rotary / 2);
    match rope.pairing {
        Pairing::Halves => {
            let (first, second) = v[..rope.rotary].split_at_mut(rope.rotary / 2);
            for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
        Pairing::Neighbours => {
            for (([a, b], &cos), &sin) in v[..rope.rotary].as_chunks_mut().0.iter_mut().zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

/// Stores the keys and values of all tokens. `qkv` is `[tokens, cols]`
fn store_all<T: Stored>(
    cpu: &Cpu,
    qkv: &[f32],
    cols: usize,
    cache: &mut KvCache,
    place: KvPlace,
    device_batch: &DeviceBatch,
) {
    let kv = cache.shape(place);
    let slots = device_batch.batch.slots_of(place.table);
    let layer = Disjoint::new(cache.layer_mut::<T>(place));
    cpu.for_rows(kv.kv_heads, 2 * slots.len() * kv.head_dim, &|kv_heads| {
        for kv_head in kv_heads {
            dispatch(cpu.isa, Store { qkv, cols, layer, kv, kv_head, slots });
        }
    });
}

/// What keys and values are stored as.
trait Stored: KvNumber {
    /// Where the scale that begins at byte `at` of a layer is, as a range of numbers: empty where there is none.
    fn scale(at: usize) -> Range<usize>;
    /// Writes a key or a value, and its scale.
    fn store(from: &[f32], to: &mut [Self], scale: &mut [Self]);
}

impl<T: Number> Stored for T {
    #[inline(always)]
    fn scale(_at: usize) -> Range<usize> {
        0..0
    }

    #[inline(always)]
    fn store(from: &[f32], to: &mut [T], _scale: &mut [T]) {
        to.iter_mut().zip(from).for_each(|(to, &v)| *to = T::from_f32(v));
    }
}

impl Stored for i8 {
    #[inline(always)]
    fn scale(at: usize) -> Range<usize> {
        at..at + int8::SCALE_BYTES
    }

    #[inline(always)]
    fn store(from: &[f32], to: &mut [i8], scale: &mut [i8]) {
        scale.copy_from_slice(&int8::quantize(from, to));
    }
}

/// Stores one head of all tokens.
struct Store<'a, T> {
    qkv: &'a [f32],
    cols: usize,
    layer: Disjoint<'a, T>,
    kv: KvShape,
    kv_head: usize,
    slots: &'a [u32],
}

impl<T: Stored> Kernel for Store<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let Store { qkv, cols, layer, kv, kv_head, slots } = self;
        let dim = kv.head_dim;
        for (row, &slot) in qkv.chunks_exact(cols).zip(slots) {
            let keys = cols - kv.values.vectors() * kv.kv_heads * dim;
            let key = &row[keys + kv_head * dim..][..dim];
            let (key, value) = match kv.values {
                KvValues::Stored => (key, &row[keys + (kv.kv_heads + kv_head) * dim..][..dim]),
                KvValues::InKeys(value) => key.split_at(dim - value),
            };
            let slot = slot as usize;
            let numbers = [kv.key_at(slot, kv_head), kv.value_at(slot, kv_head)];
            let scales = [kv.key_scale_at(slot, kv_head), kv.value_scale_at(slot, kv_head)];
            for ((at, scale_at), from) in numbers.into_iter().zip(scales).zip([key, value]) {
                // SAFETY: the places of different heads never overlap, nor do numbers and scales; `for_rows` gives each head to one
                // call, and the parts before these are dropped.
                let (to, scale) = unsafe { (layer.part(at..at + from.len()), layer.part(T::scale(scale_at))) };
                T::store(from, to, scale);
            }
        }
    }
}
