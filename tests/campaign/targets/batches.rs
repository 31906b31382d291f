//! Batches from another process: what the decoder accepts can be computed.

use crate::capi::{Engine, Good};
use crate::case::{self, Bounds, Input, Session, Target, root, violation};
use crate::random::{self, Rng};
use compute::batch::{Batch, BlockCopy, LogitBias, NO_MASK, NO_TOKEN, Sampling};
use compute::cpu::{Cpu, Isa};
use formats::source::Source;
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::wire::{BatchBounds, BatchDecoder, encode};
use runner::{Device, Runner};
use std::ops::ControlFlow;

/// Batches that are well-formed, damaged, or any bytes.
pub struct Batches;

const BYTES: &str = "batch.bin";
const BLOCK_TOKENS: usize = 4;
const ROWS: usize = 4;
/// Blocks of a row.
const WIDTH: usize = 8;
const VOCAB: usize = 97;

/// A batch as a scheduler forms them: each row has blocks of its own.
fn batch(rng: &mut Rng) -> Batch {
    let mut batch = Batch { row_starts: vec![0], table_width: rng.between(1, WIDTH), ..Batch::default() };
    for row in 0..rng.between(1, ROWS) {
        let context = rng.between(1, batch.table_width * BLOCK_TOKENS);
        let new = rng.between(1, context.min(8));
        let first = (row * WIDTH) as u32;
        for position in context - new..context {
            batch.token_ids.push(rng.below(VOCAB) as u32);
            batch.positions.push(position as u32);
            batch.slots.push(first * BLOCK_TOKENS as u32 + position as u32);
        }
        batch.row_starts.push(batch.token_ids.len() as u32);
        batch.context_lens.push(context as u32);
        batch.block_tables.extend(first..first + batch.table_width as u32);
        if rng.one_in(4) {
            batch.pooled_tokens.push(batch.tokens() as u32 - 1);
            continue;
        }
        let adjusted_start = batch.adjustments.len() as u32;
        if rng.one_in(3) {
            batch.adjustments.push(LogitBias::ban(rng.below(VOCAB) as u32));
        }
        let mask = if rng.one_in(3) { batch.masks.len() as u32 } else { NO_MASK };
        if mask != NO_MASK {
            batch.masks.extend((0..VOCAB.div_ceil(32)).map(|_| rng.next() as u32));
        }
        batch.sampled_tokens.push(batch.tokens() as u32 - 1);
        batch.sampling.push(Sampling {
            temperature: rng.below(3) as f32,
            top_k: rng.below(9) as u32,
            seed: rng.next(),
            adjusted_start,
            adjusted_end: batch.adjustments.len() as u32,
            repetition_penalty: rng.between(1, 3) as f32,
            mask,
            forced: if rng.one_in(5) { rng.below(VOCAB) as u32 } else { NO_TOKEN },
            logprobs: rng.below(6) as u32,
            ..Sampling::GREEDY
        });
    }
    if rng.one_in(4) {
        batch.copies.push(BlockCopy { from: 0, to: rng.between(1, ROWS * WIDTH - 1) as u32 });
    }
    batch
}

fn bytes_of(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(batch, &mut bytes);
    bytes
}

impl Target for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 1000, heap_bytes: 8 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        5000
    }

    fn long_cases(&self) -> u64 {
        200_000
    }

    fn corpus(&self) -> Vec<Input> {
        case::hostile("batches", BYTES)
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        let mut bytes = bytes_of(&batch(rng));
        let how = *rng.pick(&["whole", "words", "words", "words", "bytes", "any"]);
        match how {
            "words" => {
                for _ in 0..rng.between(1, 3) {
                    let at = 4 * rng.below(bytes.len() / 4);
                    let word = match rng.below(3) {
                        0 => rng.next() as u32,
                        1 => rng.below(VOCAB + 3) as u32,
                        _ => *rng.pick(&[u32::MAX, 1 << 31, (1 << 31) - 1, f32::NAN.to_bits(), 1e38f32.to_bits()]),
                    };
                    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
            }
            "bytes" => bytes = random::mutate(rng, bytes, &[], &[]),
            "any" => bytes = rng.text(300).into_bytes(),
            _ => {}
        }
        Input::of(how, BYTES, bytes)
    }

    fn open(&self) -> Box<dyn Session> {
        let demo = Engine::demo();
        let config = EngineOptions {
            device: Device::Cpu,
            num_threads: Some(1),
            max_num_seqs: Some(ROWS),
            max_batched_tokens: Some(32),
            kv_block_size: Some(BLOCK_TOKENS),
            kv_cache_bytes: Some(1 << 20),
            ..EngineOptions::new("")
        };
        let source = Source::open(&root().join("tests/golden/qwen3-f32-untied-gqa8")).unwrap();
        let cpu = Cpu::new(1, Isa::detect().unwrap());
        let (runner, info) = runner::cpu::open(&source, &config, cpu, &mut |_| ControlFlow::Continue(())).unwrap();
        let (limits, num_blocks) = (info.limits, info.num_kv_blocks);
        assert!(num_blocks >= ROWS * WIDTH && info.vocab_size >= VOCAB);
        let bounds = BatchBounds { limits, num_blocks, num_states: 0, vocab_size: info.vocab_size, depth: 1 };
        let good = batch(&mut Rng::of_case(1, "good batch", 0));
        let (decoder, decoded) = (BatchDecoder::new(bounds), Batch::with_limits(&limits));
        Box::new(Computer { demo: (Good::of(&demo), demo), runner, decoder, decoded, good })
    }
}

struct Computer {
    demo: (Good, Engine),
    runner: PassRunner<Cpu>,
    decoder: BatchDecoder,
    decoded: Batch,
    good: Batch,
}

impl Session for Computer {
    fn run(&mut self, input: &Input) {
        let bytes = input.bytes(BYTES);
        match self.decoder.decode(bytes, &mut self.decoded) {
            Ok(()) => {
                if bytes_of(&self.decoded) != bytes {
                    violation("a batch that was decoded is encoded otherwise");
                }
                self.runner.submit(&self.decoded).unwrap();
                let sampled = self.runner.collect(None).unwrap().expect("no deadline was given");
                if sampled.tokens.len() != self.decoded.samples() {
                    violation("a sample was not answered");
                }
            }
            Err(reason) if input.origin == "whole" => violation(format!("a good batch was refused: {reason}")),
            Err(_) => {}
        }
    }

    fn probe(&mut self) {
        self.demo.0.check(&self.demo.1);
        if self.decoder.decode(&bytes_of(&self.good), &mut self.decoded).is_err() {
            violation("a good batch is refused after others");
        }
    }
}
