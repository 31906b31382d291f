//! Decode steps: attention with what prepares it in one launch, and in two, of any bits and of batch-invariant ones.

use super::codings::Mixture;
use super::model::Model;
use super::{Bench, DTYPE, batch_of};
use compute::{Device, KvShape, KvValues, Rounding};

/// Rows, and tokens that each attends to.
const STEPS: [(usize, usize); 23] = [
    (1, 256),
    (1, 547),
    (1, 2048),
    (1, 8192),
    (1, 32_000),
    (2, 547),
    (2, 8192),
    (3, 547),
    (4, 547),
    (4, 8192),
    (8, 256),
    (8, 547),
    (8, 8192),
    (16, 256),
    (16, 555),
    (32, 256),
    (32, 555),
    (64, 256),
    (64, 555),
    (128, 256),
    (128, 555),
    (256, 256),
    (256, 555),
];

impl Bench {
    pub fn attention_steps(&mut self) {
        for shape in self.shapes() {
            let mut model = Model::new(self, shape, Mixture::Bf16);
            for (rows, context) in STEPS {
                let (batch, blocks) = batch_of(rows, 1, context, 64);
                let (layers, kv_heads, head_dim) = (shape.layers, shape.kv_heads, shape.head_dim);
                let kv = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format: DTYPE.into() };
                let bytes = (rows * context * 2 * kv_heads * head_dim * 2 * layers) as f64 + model.bytes;
                for (rounding, kind) in [(Rounding::Fastest, ""), (Rounding::BatchInvariant, ", batch-invariant")] {
                    self.cuda.set_rounding(rounding);
                    let mut cache = self.cuda.kv_cache(&kv.layers(layers), blocks).unwrap();
                    let mut device_batch = self.staged(&batch);
                    let mut tensors = model.tensors(self, rows, rows);
                    for (is_fused, launches) in [(false, "two launches"), (true, "one launch")] {
                        model.is_fused = is_fused;
                        let us = self.time(1, |cuda| model.launch(cuda, &mut tensors, &mut cache, &mut device_batch));
                        let name = format!("attention step {} {rows} x {context} in {launches}{kind}", shape.name);
                        self.line(&name, us, bytes, 0.0);
                    }
                }
                self.cuda.set_rounding(Rounding::Fastest);
            }
        }
    }
}
