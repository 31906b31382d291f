//! The product of gates and up with the activation in one launch, and in two.

use super::codings::Mixture;
use super::model::Model;
use super::{Bench, DTYPE, batch_of};
use compute::cuda::Route;
use compute::ops;
use compute::{Activation, Device, KvShape, KvValues, LayerInput};

const TOKENS: [usize; 9] = [9, 16, 32, 64, 96, 128, 144, 192, 256];
/// Rows of steps alone: layers whose weights multiprocessors do not hold have a kernel for gates up to 8.
const FEW: [usize; 4] = [1, 2, 4, 8];
/// Tokens of passes with prompts.
const MANY: [usize; 9] = [320, 384, 512, 768, 1024, 1536, 2048, 4096, 8192];
/// Tokens that each row of a step attends to.
const CONTEXT: usize = 555;
/// Steps over shorter contexts.
const SHORT: [(usize, usize); 4] = [(16, 256), (32, 256), (64, 256), (256, 256)];
const LAUNCHES: [(bool, &str); 2] = [(false, "two launches"), (true, "one launch")];

impl Bench {
    pub fn gated_linears(&mut self) {
        for shape in self.shapes() {
            let (width, k) = (shape.width, shape.hidden);
            let weights = self.weights(2 * width, k, 400 << 20);
            let few = TOKENS.into_iter().flat_map(|m| [Route::Auto, Route::Hopper].map(|route| (m, route)));
            for (m, route) in few.chain(MANY.map(|m| (m, Route::Auto))) {
                let (x, mut gate_up, mut out) = (self.tensor(m, k), self.tensor(m, 2 * width), self.tensor(m, width));
                self.cuda.set_route(route);
                for (is_gated, launches) in LAUNCHES {
                    let us = self.time(weights.len(), |cuda| {
                        for weight in &weights {
                            if is_gated {
                                ops::gated_linear(
                                    cuda,
                                    &mut out,
                                    &mut gate_up,
                                    LayerInput::new(&x, weight, None),
                                    Activation::Silu,
                                );
                            } else {
                                ops::linear(cuda, &mut gate_up, LayerInput::new(&x, weight, None), 0..2 * width);
                                ops::activate_mul(cuda, &mut out, &gate_up, Activation::Silu);
                            }
                        }
                    });
                    let (bytes, flops) = ((2 * (2 * width * k + m * (k + width))) as f64, (4 * m * width * k) as f64);
                    let name = format!("gated linear {} {m} x {width} x {k}, {route:?}, {launches}", shape.name);
                    self.line(&name, us, bytes, flops);
                }
            }
        }
        self.cuda.set_route(Route::Auto);
    }

    /// Steps with gates in two launches and in one, and with the sum with the stream and its norm apart and in the product.
    pub fn gated_steps(&mut self) {
        for shape in self.shapes() {
            let mut model = Model::new(self, shape, Mixture::Bf16);
            let steps = FEW.into_iter().chain(TOKENS).map(|rows| (rows, CONTEXT));
            for (rows, context) in steps.chain(SHORT) {
                let (batch, blocks) = batch_of(rows, 1, context, 64);
                let (layers, kv_heads, head_dim) = (shape.layers, shape.kv_heads, shape.head_dim);
                let kv = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format: DTYPE.into() };
                let mut cache = self.cuda.kv_cache(&kv.layers(layers), blocks).unwrap();
                let mut device_batch = self.staged(&batch);
                let mut tensors = model.tensors(self, rows, rows);
                let bytes = (rows * context * 2 * kv_heads * head_dim * 2 * layers) as f64 + model.bytes;
                for (what, [is_gated, is_added]) in [
                    ("all apart", [false, false]),
                    ("gates in the product", [true, false]),
                    ("gates and norms in products", [true, true]),
                ] {
                    (model.is_gated, model.is_added) = (is_gated, is_added);
                    let us = self.time(1, |cuda| model.launch(cuda, &mut tensors, &mut cache, &mut device_batch));
                    let name = format!("gated step {} {rows} x {context}, {what}", shape.name);
                    self.line(&name, us, bytes, 0.0);
                }
            }
        }
    }
}
