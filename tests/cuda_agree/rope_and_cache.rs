//! `rope_and_cache`, and the copies of blocks.

use crate::scene::{Random, Scene, assert_near, bound, filled, host_vector, numbers, on_device, staged, wide};
use half::{bf16, f16};
use nanovllm::backend::cuda::{Cuda, KvCache};
use nanovllm::backend::{
    AttentionSpec, Backend, DType, KvShape, NormExtent, NormOrder, Pairing, QkNormRope, QkNormWeights, RopeTable,
};
use nanovllm::batch::{Batch, BlockCopy};
use nanovllm::ops;

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn heads_are_normalized_rotated_and_cached() {
    on_device(|cuda, dtype| {
        for (heads, kv_heads, d, block_size) in
            [(2, 1, 64, 16), (4, 2, 80, 32), (3, 3, 96, 64), (16, 8, 128, 64), (5, 1, 256, 256)]
        {
            for has_norm in [false, true] {
                let what = format!("{heads} heads, {kv_heads} kv heads of {d}, norm {has_norm}, {dtype:?}");
                let mut random = Random(4);
                let scene = Scene::new(&[(0, 40), (17, 1), (63, 3)], block_size, &mut random);
                let (tokens, cols) = (scene.batch.tokens(), (heads + 2 * kv_heads) * d);
                let values = numbers(&mut random, tokens * cols, 2.0, dtype);
                let rope: Vec<f32> = (0..80)
                    .flat_map(|p| {
                        let angles = (0..d / 2).map(move |i| p as f64 / 10_000f64.powf(i as f64 / (d / 2) as f64));
                        let (c, s): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
                        [c, s].concat()
                    })
                    .collect();
                let norms = [numbers(&mut random, d, 1.5, dtype), numbers(&mut random, d, 1.5, dtype)];
                let [query, key] = [0, 1].map(|i| cuda.vector(&[host_vector(&norms[i], dtype)]).unwrap());
                let extent = NormExtent::Head(NormOrder::BeforeRope);
                let norm = has_norm.then_some(QkNormWeights { query: &query, key: &key, eps: 1e-6, extent });
                let shape = KvShape { layers: 2, kv_heads, head_dim: d, block_size, dtype };
                let mut cache = cuda.kv_cache(&shape, scene.blocks).unwrap();
                let size = scene.blocks * shape.block_bytes();
                cache.fill(&vec![0xff; size]).unwrap();
                let device_batch = staged(cuda, &scene.batch);
                let mut qkv = filled(cuda, &values, cols);
                let table = cuda.table(&rope).unwrap();
                let spec = AttentionSpec { heads, scale: 1.0, window: None, softcap: None };
                let rope_table = RopeTable { table: &table, rotary: d, pairing: Pairing::Halves };
                let transform = QkNormRope { norm, rope: Some(rope_table), temperature: None };
                ops::rope_and_cache(cuda, &spec, &mut qkv, transform, &mut cache, 1, &device_batch);
                let (qkv, cached) = (cuda.read(&qkv).unwrap(), layer_values(&cache, 1));

                let head_of = |token: usize, head: usize| -> Vec<f64> {
                    let v = wide(&values[token * cols + head * d..][..d]);
                    if head >= heads + kv_heads {
                        return v;
                    }
                    let weights = if head < heads { &norms[0] } else { &norms[1] };
                    let scale = 1.0 / (v.iter().map(|v| v * v).sum::<f64>() / d as f64 + 1e-6).sqrt();
                    let v: Vec<f64> = match has_norm {
                        true => v.iter().zip(weights).map(|(v, &w)| v * scale * f64::from(w)).collect(),
                        false => v,
                    };
                    let table = &rope[scene.batch.positions[token] as usize * d..][..d];
                    let (half, at) = (d / 2, |i: usize| f64::from(table[i]));
                    let low = (0..half).map(|i| v[i] * at(i) - v[i + half] * at(i + half));
                    low.chain((0..half).map(|i| v[i + half] * at(i) + v[i] * at(i + half))).collect()
                };
                let (mut computed, mut expected) = (Vec::new(), Vec::new());
                let mut written = vec![false; cached.len()];
                for token in 0..tokens {
                    for head in 0..heads + 2 * kv_heads {
                        expected.extend(head_of(token, head));
                        if head < heads {
                            computed.extend_from_slice(&qkv[token * cols + head * d..][..d]);
                            continue;
                        }
                        let (kv, part) = ((head - heads) % kv_heads, (head - heads) / kv_heads);
                        let slot = scene.batch.slots[token] as usize;
                        let place = ((slot / block_size * kv_heads + kv) * 2 + part) * block_size + slot % block_size;
                        computed.extend_from_slice(&cached[place * d..][..d]);
                        written[place * d..][..d].fill(true);
                    }
                }
                assert_near(&computed, &expected, bound(dtype), &what);
                assert!(cached.iter().zip(written).all(|(v, w)| w || v.is_nan()), "{what}: a foreign slot was written");
                assert!(layer_values(&cache, 0).iter().all(|v| v.is_nan()), "{what}: a foreign layer was written");
            }
        }
    });
}

fn layer_values(cache: &KvCache, layer: usize) -> Vec<f32> {
    let (bytes, shape) = (cache.bytes().unwrap(), Cuda::kv_shape(cache));
    let layer_bytes = bytes.len() / shape.layers;
    let numbers = bytes[layer * layer_bytes..][..layer_bytes].chunks_exact(2);
    numbers
        .map(|b| match shape.dtype {
            DType::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            _ => f16::from_le_bytes([b[0], b[1]]).to_f32(),
        })
        .collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn blocks_are_copied_in_every_layer() {
    on_device(|cuda, dtype| {
        let shape = KvShape { layers: 3, kv_heads: 2, head_dim: 64, block_size: 16, dtype };
        let mut cache = cuda.kv_cache(&shape, 8).unwrap();
        let bytes: Vec<u8> = (0..8 * shape.block_bytes()).map(|i| (i * 7 + i / 251) as u8).collect();
        cache.fill(&bytes).unwrap();
        let copies = [(1, 5), (2, 7)].map(|(from, to)| BlockCopy { from, to }).to_vec();
        let device_batch = staged(cuda, &Batch { row_starts: vec![0], copies, ..Batch::default() });
        ops::copy_blocks(cuda, &mut cache, &device_batch);
        let block = shape.block_bytes() / 3;
        let mut expected = bytes;
        for layer in 0..3 {
            for (from, to) in [(1, 5), (2, 7)] {
                let from = (layer * 8 + from) * block;
                expected.copy_within(from..from + block, (layer * 8 + to) * block);
            }
        }
        assert!(cache.bytes().unwrap() == expected);
    });
}
