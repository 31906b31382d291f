//! `copy_blocks`: bits must be equal, in every layer.

use crate::column::{Column, Op, agrees};
use crate::scene::uploaded;
use compute::batch::{Batch, BlockCopy};
use compute::cpu::reference;
use compute::ops;
use compute::{KvFormat, KvHeads, KvLayout, KvShape, KvValues};
use formats::DType;

struct Copies {
    format: KvFormat,
    /// Of each layer.
    layers: &'static [KvHeads],
    blocks: usize,
    /// From and to.
    pairs: &'static [(u32, u32)],
}

const F32: KvFormat = KvFormat::Plain(DType::F32);

const EQUAL: [KvHeads; 3] = [KvHeads { kv_heads: 2, head_dim: 6, values: KvValues::Stored }; 3];
const ONE: [KvHeads; 1] = [KvHeads { kv_heads: 2, head_dim: 6, values: KvValues::Stored }];
const SEVERAL: [KvHeads; 5] = {
    let (wide, narrow) = (
        KvHeads { kv_heads: 1, head_dim: 16, values: KvValues::Stored },
        KvHeads { kv_heads: 2, head_dim: 6, values: KvValues::Stored },
    );
    [narrow, narrow, wide, narrow, wide]
};

impl Copies {
    fn layout(&self) -> KvLayout {
        KvLayout { layers: self.layers.to_vec(), split: None, block_size: 5, format: self.format }
    }
}

struct CopyBlocks;

impl Op for CopyBlocks {
    type Case = Copies;
    const CASES: &'static [(&'static str, Copies)] = &[
        ("one block", Copies { format: F32, layers: &EQUAL, blocks: 2, pairs: &[(1, 0)] }),
        ("to several places", Copies { format: F32, layers: &EQUAL, blocks: 7, pairs: &[(2, 6), (2, 0), (5, 1)] }),
        ("nothing", Copies { format: F32, layers: &EQUAL, blocks: 2, pairs: &[] }),
        ("bf16", Copies { format: KvFormat::Plain(DType::Bf16), layers: &EQUAL, blocks: 4, pairs: &[(0, 3), (1, 2)] }),
        ("f16, one layer", Copies { format: KvFormat::Plain(DType::F16), layers: &ONE, blocks: 3, pairs: &[(2, 1)] }),
        ("int8", Copies { format: KvFormat::Int8, layers: &EQUAL, blocks: 4, pairs: &[(0, 3), (1, 2)] }),
        ("layers of several shapes", Copies { format: F32, layers: &SEVERAL, blocks: 7, pairs: &[(2, 6), (5, 1)] }),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Copies) -> Vec<f32> {
        let mut all = Vec::new();
        for (layer, shape) in case.layout().shapes().enumerate() {
            let block = block_numbers(&shape);
            let mut numbers: Vec<f32> = (0..case.blocks * block).map(|at| number(layer, at)).collect();
            reference::copy_blocks(&mut numbers, block, &copies(case));
            all.extend(numbers);
        }
        all
    }

    fn computed<B: Column>(backend: &mut B, case: &Copies) -> Vec<f32> {
        let layout = case.layout();
        let mut cache = backend.kv_cache(&layout, case.blocks).unwrap();
        for (layer, shape) in layout.shapes().enumerate() {
            let numbers: Vec<f32> = (0..case.blocks * block_numbers(&shape)).map(|at| number(layer, at)).collect();
            backend.write_cache(&mut cache, layer, &numbers);
        }
        let batch = Batch { copies: copies(case), ..Batch::default() };
        let device_batch = uploaded(backend, &batch);
        ops::copy_blocks(backend, &mut cache, &device_batch);
        (0..layout.layers.len()).flat_map(|layer| backend.read_cache(&cache, layer)).collect()
    }
}

fn block_numbers(shape: &KvShape) -> usize {
    shape.block_bytes() / shape.format.number_bytes()
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
