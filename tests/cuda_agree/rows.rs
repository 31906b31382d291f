//! Ops that treat each row by itself: norms, gates and lookups.

use crate::scene::{
    Random, Scene, assert_near, bound, filled, host_matrix, host_vector, numbers, on_device, poisoned, rounded, staged,
};
use nanovllm::backend::Backend;
use nanovllm::ops;

const SHAPES: [(usize, usize); 6] = [(1, 8), (3, 40), (64, 1024), (5, 4096), (2, 12_288), (300, 256)];

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn norms_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let mut random = Random(1);
            let x = numbers(&mut random, tokens * hidden, 3.0, dtype);
            let y = numbers(&mut random, tokens * hidden, 3.0, dtype);
            let w = numbers(&mut random, hidden, 2.0, dtype);
            let weight = cuda.vector(&[host_vector(&w, dtype)]).unwrap();
            let norm = |x: &[f32]| -> Vec<f64> {
                let rows = x.chunks_exact(hidden).flat_map(|row| {
                    let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / hidden as f64;
                    let scale = 1.0 / (mean + 1e-6).sqrt();
                    row.iter().zip(&w).map(move |(&v, &w)| f64::from(v) * scale * f64::from(w))
                });
                rows.collect()
            };
            let (tx, mut out) = (filled(cuda, &x, hidden), poisoned(cuda, tokens, hidden));
            ops::rms_norm(cuda, &mut out, &tx, &weight, 1e-6);
            assert_near(&cuda.read(&out).unwrap(), &norm(&x), bound(dtype), &format!("rms_norm {what}"));

            let mut residual = filled(cuda, &y, hidden);
            let mut out = poisoned(cuda, tokens, hidden);
            ops::add_rms_norm(cuda, &mut out, &mut residual, &tx, &weight, 1e-6);
            let sum: Vec<f32> = x.iter().zip(&y).map(|(a, b)| rounded(a + b, dtype)).collect();
            assert_eq!(cuda.read(&residual).unwrap(), sum, "residual {what}");
            assert_near(&cuda.read(&out).unwrap(), &norm(&sum), bound(dtype), &format!("add_rms_norm {what}"));
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn gates_and_lookups_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let mut random = Random(2);
            let gate_up = numbers(&mut random, tokens * 2 * hidden, 5.0, dtype);
            let (x, mut out) = (filled(cuda, &gate_up, 2 * hidden), poisoned(cuda, tokens, hidden));
            ops::silu_mul(cuda, &mut out, &x);
            let silu = |v: f32| f64::from(v) / (1.0 + (-f64::from(v)).exp());
            let rows = gate_up.chunks_exact(2 * hidden);
            let expected: Vec<f64> =
                rows.flat_map(|row| (0..hidden).map(|i| silu(row[i]) * f64::from(row[hidden + i]))).collect();
            assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &format!("silu_mul {what}"));

            let table = numbers(&mut random, 50 * hidden, 1.0, dtype);
            let matrix = cuda.matrix(&[host_matrix(&table, [50, hidden], dtype)]).unwrap();
            let scene = Scene::new(&[(0, tokens), (3, 2)], 16, &mut random);
            let device_batch = staged(cuda, &scene.batch);
            let mut out = poisoned(cuda, tokens + 2, hidden);
            ops::embedding(cuda, &mut out, &matrix, &device_batch);
            let ids = &scene.batch.token_ids;
            let expected: Vec<f32> =
                ids.iter().flat_map(|&id| &table[id as usize * hidden..][..hidden]).copied().collect();
            assert_eq!(cuda.read(&out).unwrap(), expected, "embedding {what}");

            let mut last = poisoned(cuda, 2, hidden);
            ops::gather(cuda, &mut last, &out, &device_batch);
            let expected = [&expected[(tokens - 1) * hidden..][..hidden], &expected[(tokens + 1) * hidden..]].concat();
            assert_eq!(cuda.read(&last).unwrap(), expected, "gather {what}");
        }
    });
}
