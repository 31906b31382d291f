//! See `ops/rope_and_cache.rs` for the contract.
//!
//! Two loops: over tokens to normalize and rotate, over heads to store. A head belongs to one thread in the second, so
//! that two tokens of one slot, which a correct batch never has, would still not be a race.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::rms_norm::inverse_rms;
use super::{Cpu, DeviceBatch, KvCache, Number, Tensor};
use crate::backend::{AttentionSpec, DType, HeadNorm, KvShape, QkNormRope};
use crate::batch::Batch;
use half::{bf16, f16};

/// The specification.
pub fn reference(
    spec: &AttentionSpec,
    qkv: &mut [f32],
    transform: QkNormRope<Box<[f32]>>,
    cache: &mut KvCache,
    layer: usize,
    batch: &Batch,
) {
    let QkNormRope { norm, rope } = transform;
    let heads = spec.heads;
    let kv = cache.shape();
    let (dim, half) = (kv.head_dim, kv.head_dim / 2);
    for (token, row) in qkv.chunks_exact_mut((heads + 2 * kv.kv_heads) * dim).enumerate() {
        let (cos, sin) = rope[batch.positions[token] as usize * dim..][..dim].split_at(half);
        for (head, v) in row.chunks_exact_mut(dim).enumerate().take(heads + kv.kv_heads) {
            if let Some(norm) = &norm {
                let weight = if head < heads { norm.query } else { norm.key };
                let x = v.to_vec();
                super::rms_norm::reference(v, &x, weight, norm.eps);
            }
            for i in 0..half {
                let (a, b) = (v[i], v[i + half]);
                v[i] = a * cos[i] - b * sin[i];
                v[i + half] = b * cos[i] + a * sin[i];
            }
        }
        let slot = batch.slots[token] as usize;
        for kv_head in 0..kv.kv_heads {
            let key = &row[(heads + kv_head) * dim..][..dim];
            let value = &row[(heads + kv.kv_heads + kv_head) * dim..][..dim];
            match kv.dtype {
                DType::F32 => store::<f32>(cache.layer_mut(layer), &kv, slot, kv_head, key, value),
                DType::F16 => store::<f16>(cache.layer_mut(layer), &kv, slot, kv_head, key, value),
                DType::Bf16 => store::<bf16>(cache.layer_mut(layer), &kv, slot, kv_head, key, value),
            }
        }
    }
}

fn store<T: Number>(layer: &mut [T], kv: &KvShape, slot: usize, kv_head: usize, key: &[f32], value: &[f32]) {
    for (at, from) in [(kv.key_at(slot, kv_head), key), (kv.value_at(slot, kv_head), value)] {
        layer[at..at + kv.head_dim].iter_mut().zip(from).for_each(|(to, &v)| *to = T::from_f32(v));
    }
}

pub fn run(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: &mut Tensor,
    transform: QkNormRope<Box<[f32]>>,
    cache: &mut KvCache,
    layer: usize,
    device_batch: &DeviceBatch,
) {
    let QkNormRope { norm, rope } = transform;
    let heads = spec.heads;
    let kv = cache.shape();
    let (rows, cols) = (qkv.rows(), qkv.cols());
    let all = Disjoint::new(qkv.values_mut());
    cpu.for_rows(rows, cols, &|rows| {
        let positions = &device_batch.batch.positions[rows.clone()];
        // SAFETY: the ranges of `for_rows` do not overlap.
        let qkv = unsafe { all.part(rows.start * cols..rows.end * cols) };
        let norm = norm.as_ref();
        dispatch(
            cpu.isa,
            Rotate { qkv, cols, heads, kv_heads: kv.kv_heads, head_dim: kv.head_dim, norm, rope, positions },
        );
    });
    let qkv = qkv.values();
    match kv.dtype {
        DType::F32 => store_all::<f32>(cpu, qkv, cols, cache, layer, device_batch),
        DType::F16 => store_all::<f16>(cpu, qkv, cols, cache, layer, device_batch),
        DType::Bf16 => store_all::<bf16>(cpu, qkv, cols, cache, layer, device_batch),
    }
}

/// Normalizes and rotates the queries and keys of some tokens. `qkv` is `[tokens, cols]`
struct Rotate<'a> {
    qkv: &'a mut [f32],
    cols: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    norm: Option<&'a HeadNorm<'a, Box<[f32]>>>,
    rope: &'a [f32],
    positions: &'a [u32],
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let dim = self.head_dim;
        for (row, &position) in self.qkv.chunks_exact_mut(self.cols).zip(self.positions) {
            let (cos, sin) = self.rope[position as usize * dim..][..dim].split_at(dim / 2);
            for (head, v) in row.chunks_exact_mut(dim).enumerate().take(self.heads + self.kv_heads) {
                if let Some(norm) = self.norm {
                    let weight = if head < self.heads { norm.query } else { norm.key };
                    let scale = inverse_rms(lanes, v, norm.eps);
                    v.iter_mut().zip(weight).for_each(|(v, weight)| *v = *v * scale * weight);
                }
                let (first, second) = v.split_at_mut(dim / 2);
                for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}

/// Stores the keys and values of all tokens. `qkv` is `[tokens, cols]`
fn store_all<T: Number>(
    cpu: &Cpu,
    qkv: &[f32],
    cols: usize,
    cache: &mut KvCache,
    layer: usize,
    device_batch: &DeviceBatch,
) {
    let kv = cache.shape();
    let dim = kv.head_dim;
    let slots = &device_batch.batch.slots;
    let layer = Disjoint::new(cache.layer_mut::<T>(layer));
    cpu.for_rows(kv.kv_heads, 2 * slots.len() * dim, &|kv_heads| {
        for kv_head in kv_heads {
            dispatch(cpu.isa, Store { qkv, cols, layer, kv, kv_head, slots });
        }
    });
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

impl<T: Number> Kernel for Store<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let dim = self.kv.head_dim;
        for (row, &slot) in self.qkv.chunks_exact(self.cols).zip(self.slots) {
            let keys = self.cols - 2 * self.kv.kv_heads * dim;
            let key = &row[keys + self.kv_head * dim..][..dim];
            let value = &row[keys + (self.kv.kv_heads + self.kv_head) * dim..][..dim];
            let slot = slot as usize;
            for (at, from) in [(self.kv.key_at(slot, self.kv_head), key), (self.kv.value_at(slot, self.kv_head), value)]
            {
                // SAFETY: the places of different heads never overlap, `for_rows` gives each head to one call, and
                // the part before this one is dropped.
                let to = unsafe { self.layer.part(at..at + dim) };
                to.iter_mut().zip(from).for_each(|(to, &v)| *to = T::from_f32(v));
            }
        }
    }
}
