//! Sampling over Qwen3's vocabulary: microseconds per row, greedy and with each filter.
//!
//! `cargo bench --bench sample`. The minimum of many calls on one thread, for logits of a confident model, where a few are far
//! above the rest, and for logits that are so flat that every token needs its random number.

use compute::Device;
use compute::batch::{Batch, BatchLimits, Sampling};
use compute::cpu::{Cpu, Isa};
use compute::ops;
use std::time::Instant;

const VOCAB: usize = 151_936;
const ROWS: usize = 16;
const WARM: Sampling = Sampling { temperature: 0.6, ..Sampling::GREEDY };

const CASES: &[(&str, Sampling)] = &[
    ("greedy", Sampling::GREEDY),
    ("temperature", WARM),
    ("top_k=20", Sampling { top_k: 20, ..WARM }),
    ("top_p=0.95", Sampling { top_p: 0.95, ..WARM }),
    ("min_p=0.05", Sampling { min_p: 0.05, ..WARM }),
    ("top_n_sigma=1", Sampling { top_n_sigma: 1.0, ..WARM }),
    ("min_p=0.05 xtc_threshold=0.1", Sampling { min_p: 0.05, xtc_threshold: 0.1, ..WARM }),
    ("top_k=20 top_p=0.95", Sampling { top_k: 20, top_p: 0.95, ..WARM }),
];

fn main() {
    println!("isa,logits,sampling,us_a_row");
    let limits = BatchLimits { tokens: ROWS, rows: ROWS, model_len: 1, block_size: 1, ..BatchLimits::NONE };
    for isa in Isa::available() {
        let mut cpu = Cpu::new(1, *isa);
        for (logits_name, spread) in [("peaked", 4.0), ("flat", 0.5)] {
            let mut logits = cpu.tensor(ROWS, VOCAB).unwrap();
            logits.set_rows(ROWS);
            for (i, logit) in logits.values_mut().iter_mut().enumerate() {
                // The sum of four uniform numbers, not far from a normal one.
                let bits = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                *logit = bits[4..].iter().map(|&b| f32::from(b) / 128.0 - 1.0).sum::<f32>() * spread;
            }
            for (name, sampling) in CASES {
                let mut batch = Batch::with_limits(&limits);
                for row in 0..ROWS as u32 {
                    batch.sampled_tokens.push(row);
                    batch.sampling.push(Sampling { position: row, ..*sampling });
                }
                let mut device_batch = cpu.device_batch(&limits).unwrap();
                cpu.upload(&mut device_batch, &batch).unwrap();
                let least = (0..30)
                    .map(|_| {
                        let begin = Instant::now();
                        ops::sample(&mut cpu, &mut device_batch, &logits);
                        begin.elapsed().as_secs_f64() * 1e6 / ROWS as f64
                    })
                    .fold(f64::INFINITY, f64::min);
                println!("{},{logits_name},{name},{least:.0}", isa.name());
            }
        }
    }
}
