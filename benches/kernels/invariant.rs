//! Whole decode steps and prompts as `batch_invariant` computes them, and by default; and without attention, which leaves products and norms.

use super::codings::Mixture;
use super::model::Model;
use super::{Bench, DTYPE, batch_of};
use compute::{Device, KvShape, KvValues, Rounding};

/// Rows, new tokens of each, and tokens that it attends to.
const PASSES: [[usize; 3]; 15] = [
    [1, 1, 555],
    [2, 1, 555],
    [3, 1, 555],
    [4, 1, 555],
    [6, 1, 555],
    [8, 1, 555],
    [9, 1, 555],
    [16, 1, 555],
    [32, 1, 555],
    [64, 1, 555],
    [128, 1, 555],
    [192, 1, 555],
    [256, 1, 555],
    [1, 1024, 1024],
    [16, 1024, 1024],
];

impl Bench {
    pub fn invariant_steps(&mut self) {
        for shape in self.shapes() {
            let mut model = Model::new(self, shape, Mixture::Bf16);
            for [rows, new, context] in PASSES {
                let (batch, blocks) = batch_of(rows, new, context, 64);
                let (layers, kv_heads, head_dim) = (shape.layers, shape.kv_heads, shape.head_dim);
                let kv = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format: DTYPE.into() };
                let mut tensors = model.tensors(self, rows, rows * new);
                let bytes = (rows * context * 2 * kv_heads * head_dim * 2 * layers) as f64 + model.bytes;
                for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                    self.cuda.set_rounding(rounding);
                    let mut cache = self.cuda.kv_cache(&kv.layers(layers), blocks).unwrap();
                    let mut device_batch = self.staged(&batch);
                    for attends in [false, true] {
                        model.attends = attends;
                        let us = self.time(1, |cuda| model.launch(cuda, &mut tensors, &mut cache, &mut device_batch));
                        let what = if attends { "" } else { ", products and norms alone" };
                        let name = format!("{} {rows} x {new} of {context}, {rounding:?}{what}", shape.name);
                        self.line(&format!("invariant step {name}"), us, bytes, 0.0);
                    }
                }
                self.cuda.set_rounding(Rounding::Fastest);
            }
        }
    }
}
