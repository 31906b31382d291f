//! Host time of a decode step: scheduling, the batch, outputs and polling, with a runner that computes nothing.
//!
//! Prints the median of many steps for several batch sizes. The goal is 100 us at 256 rows.

use base::TokenId;
use base::error::Result;
use compute::batch::{Batch, BatchLimits, BlockId, Sampled};
use compute::{KvFormat, KvShape, KvValues};
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use formats::DType;
use runner::{Device, Loaded, ModelInfo, Runner, StateInfo};
use std::time::{Duration, Instant};

const STEPS: usize = 500;
const PROMPT: usize = 500;

/// Answers every sample with token 1, at once.
struct IdleRunner {
    sampled: Vec<TokenId>,
}

impl Runner for IdleRunner {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        self.sampled.clear();
        self.sampled.resize(batch.samples(), 1);
        Ok(())
    }

    fn collect(&mut self, _: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        Ok(Some(Sampled { tokens: &self.sampled, ..Sampled::default() }))
    }

    fn depth(&self) -> usize {
        1
    }

    fn stages(&self) -> usize {
        1
    }

    fn pass_time(&self) -> Duration {
        Duration::ZERO
    }

    fn read_blocks(&mut self, _: &[BlockId], _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn write_blocks(&mut self, _: &[BlockId], _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn engine(rows: usize) -> Engine {
    let limits = BatchLimits { tokens: 8192, rows, model_len: 40960, block_size: 16, ..BatchLimits::NONE };
    let info = ModelInfo {
        states: StateInfo::default(),
        host_experts: Default::default(),
        num_ranks: 1,
        process: 0,
        device: Device::Cpu,
        vocab_size: 1000,
        num_layers: 1,
        hidden_size: 1,
        has_head: true,
        bos_token: None,
        eos_tokens: vec![0],
        num_parameters: 0,
        weight_bytes: 0,
        kv_cache_bytes: 0,
        num_kv_blocks: 40_000,
        gpu_bytes: 0,
        limits,
        kv_layout: KvShape {
            kv_heads: 1,
            head_dim: 1,
            values: KvValues::Stored,
            block_size: 16,
            format: KvFormat::Plain(DType::F32),
        }
        .layers(1),
        window: None,
        windowed: None,
        fingerprint: 0,
        pooled: Default::default(),
        pooled_width: 1,
        parts: [(None, 0); 4],
    };
    let settings = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: 1 };
    Engine::with_runner(Loaded { runner: Box::new(IdleRunner { sampled: Vec::new() }), info }, settings)
}

fn main() {
    println!("rows,median_us,p99_us");
    for rows in [1, 8, 32, 64, 128, 256] {
        let mut engine = engine(rows);
        for request in 0..rows as u32 {
            let prompt: Vec<TokenId> = (0..PROMPT as u32).map(|i| 1 + (request * 31 + i * 7) % 999).collect();
            let params = SamplingParams { eos: Eos::Ignored, temperature: 0.6, ..SamplingParams::default() };
            engine.handle().add_request(Prompt::Tokens(&prompt), params).expect("a good request");
        }
        while engine.step(Budget::OnePass).expect("it steps").prefill_tokens > 0 {
            while engine.next_output().is_some() {}
        }
        let mut times: Vec<f64> = (0..STEPS)
            .map(|_| {
                let begun = Instant::now();
                engine.step(Budget::OnePass).expect("it steps");
                while engine.next_output().is_some() {}
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{rows},{:.1},{:.1}", times[STEPS / 2], times[STEPS * 99 / 100]);
    }
}
