//! `copy_blocks`: bits must be equal, in every layer.

use crate::column::{Column, Op, agrees};
use crate::scene::uploaded;
use compute::batch::{Batch, BlockCopy};
use compute::cpu::reference;
use compute::ops;
use compute::{KvFormat, KvShape};
use formats::DType;

struct Copies {
    shape: KvShape,
    blocks: usize,
    /// From and to.
    pairs: &'static [(u32, u32)],
}

const SHAPE: KvShape =
    KvShape { layers: 3, kv_heads: 2, head_dim: 6, block_size: 5, format: KvFormat::Plain(DType::F32) };

struct CopyBlocks;

impl Op for CopyBlocks {
    type Case = Copies;
    const CASES: &'static [(&'static str, Copies)] = &[
        ("one block", Copies { shape: SHAPE, blocks: 2, pairs: &[(1, 0)] }),
        ("to several places", Copies { shape: SHAPE, blocks: 7, pairs: &[(2, 6), (2, 0), (5, 1)] }),
        ("nothing", Copies { shape: SHAPE, blocks: 2, pairs: &[] }),
        (
            "bf16",
            Copies {
                shape: KvShape { format: KvFormat::Plain(DType::Bf16), ..SHAPE },
                blocks: 4,
                pairs: &[(0, 3), (1, 2)],
            },
        ),
        (
            "f16, one layer",
            Copies {
                shape: KvShape { format: KvFormat::Plain(DType::F16), layers: 1, ..SHAPE },
                blocks: 3,
                pairs: &[(2, 1)],
            },
        ),
        ("int8", Copies { shape: KvShape { format: KvFormat::Int8, ..SHAPE }, blocks: 4, pairs: &[(0, 3), (1, 2)] }),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Copies) -> Vec<f32> {
        let block = block_numbers(&case.shape);
        let mut all = Vec::new();
        for layer in 0..case.shape.layers {
            let mut numbers: Vec<f32> = (0..case.blocks * block).map(|at| number(layer, at)).collect();
            reference::copy_blocks(&mut numbers, block, &copies(case));
            all.extend(numbers);
        }
        all
    }

    fn computed<B: Column>(backend: &mut B, case: &Copies) -> Vec<f32> {
        let block = block_numbers(&case.shape);
        let mut cache = backend.kv_cache(&case.shape, case.blocks).unwrap();
        for layer in 0..case.shape.layers {
            let numbers: Vec<f32> = (0..case.blocks * block).map(|at| number(layer, at)).collect();
            backend.write_cache(&mut cache, layer, &numbers);
        }
        let batch = Batch { copies: copies(case), ..Batch::default() };
        let device_batch = uploaded(backend, &batch);
        ops::copy_blocks(backend, &mut cache, &device_batch);
        (0..case.shape.layers).flat_map(|layer| backend.read_cache(&cache, layer)).collect()
    }
}

fn block_numbers(shape: &KvShape) -> usize {
    shape.block_bytes() / shape.layers / shape.format.number_bytes()
}

/// A whole number that bf16 and int8 hold.
fn number(layer: usize, at: usize) -> f32 {
    ((layer * 101 + at * 7) % 127) as f32
}

fn copies(case: &Copies) -> Vec<BlockCopy> {
    case.pairs.iter().map(|&(from, to)| BlockCopy { from, to }).collect()
}

#[test]
fn copy_blocks_agrees_with_its_specification() {
    agrees::<CopyBlocks>();
}
