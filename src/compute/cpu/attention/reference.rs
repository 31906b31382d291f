//! The specification of attention: loops in f64, so that their own rounding stays out of comparisons.

use crate::batch::Batch;
use crate::cpu::{KvCache, KvNumber, int8};
use crate::{KvFormat, KvPlace, KvShape, Scoring};
use formats::DType;
use half::{bf16, f16};

/// `out` is `[tokens, heads * value_dim]`, `qkv` `[tokens, (heads + 2 kv_heads) * head_dim]`, or of queries alone.
pub fn reference<'a>(
    scoring: impl Into<Scoring<'a, Box<[f32]>>>,
    out: &mut [f32],
    qkv: &[f32],
    cache: &KvCache,
    place: impl Into<KvPlace>,
    batch: &Batch,
) {
    let (scoring, place) = (scoring.into(), place.into());
    let shape = cache.shape(place);
    match shape.format {
        KvFormat::Plain(DType::F32) => {
            attend::<f32>(scoring, out, qkv, cache.layer(place), (shape, place.table), batch)
        }
        KvFormat::Plain(DType::F16) => {
            attend::<f16>(scoring, out, qkv, cache.layer(place), (shape, place.table), batch)
        }
        KvFormat::Plain(DType::Bf16) => {
            attend::<bf16>(scoring, out, qkv, cache.layer(place), (shape, place.table), batch)
        }
        KvFormat::Int8 => attend::<i8>(scoring, out, qkv, cache.layer(place), (shape, place.table), batch),
    }
}

fn attend<T: KvNumber>(
    Scoring { spec, sinks }: Scoring<Box<[f32]>>,
    out: &mut [f32],
    qkv: &[f32],
    layer: &[T],
    (kv, table): (KvShape, usize),
    batch: &Batch,
) {
    let heads = spec.heads;
    let scale_at = |at: usize| match bytemuck::cast_slice(layer)[at..].first_chunk() {
        Some(&stored) if T::IS_SCALED => f64::from(int8::scale_of(stored)),
        _ => 1.0,
    };
    let (dim, value_dim, split) = (kv.head_dim, kv.value_dim(), kv.scaled_as_key());
    let cols = qkv.len() / batch.positions.len().max(1);
    for row in 0..batch.rows() {
        for token in batch.row(row) {
            let position = batch.positions[token] as usize;
            let slots: Vec<usize> = (spec.window_start(position)
                ..spec.window_end(position, batch.context_lens[row] as usize))
                .map(|j| {
                    batch.block_table_of(table, row)[j / kv.block_size] as usize * kv.block_size + j % kv.block_size
                })
                .collect();
            for head in 0..heads {
                let kv_head = head / (heads / kv.kv_heads);
                let query = &qkv[token * cols + head * dim..][..dim];
                let scores: Vec<f64> = slots
                    .iter()
                    .map(|&slot| {
                        let (own, of_value) = layer[kv.key_at(slot, kv_head)..][..dim].split_at(split);
                        let score = scale_at(kv.key_scale_at(slot, kv_head)) * dot(&query[..split], own)
                            + scale_at(kv.value_scale_at(slot, kv_head)) * dot(&query[split..], of_value);
                        f64::from(spec.scale) * score
                    })
                    .map(|score| spec.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()))
                    .collect();
                let sink = sinks.map(|sinks| f64::from(sinks[head]));
                let greatest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
                let total: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - greatest).exp());
                for i in 0..value_dim {
                    let value = |slot: usize| {
                        let number = layer[kv.value_at(slot, kv_head) + i].to_f32();
                        f64::from(number) * scale_at(kv.value_scale_at(slot, kv_head))
                    };
                    let sum: f64 = weights.iter().zip(&slots).map(|(w, &slot)| w * value(slot)).sum();
                    out[(token * heads + head) * value_dim + i] = (sum / total) as f32;
                }
            }
        }
    }
}

fn dot<T: KvNumber>(a: &[f32], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b.to_f32())).sum()
}
