//! The experts of a layer of Qwen3-30B-A3B: both products, of routers that choose at random.

use super::codings;
use super::{Bench, random_matrix};
use compute::ops;
use compute::{Activation, Device, ExpertRows, HostMatrix, LayerInput, Router, RouterVectors, Scores};
use formats::WeightFormat;
use std::collections::HashSet;

const HIDDEN: usize = 2048;
const WIDTH: usize = 768;
const EXPERTS: usize = 128;
const CHOSEN: usize = 8;
/// Passes over other tokens, whose experts the second-level cache does not hold.
const PASSES: usize = 4;
const TOKENS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 512, 8192];

impl Bench {
    pub fn expert_linears(&mut self) {
        let router = Router {
            experts: EXPERTS,
            chosen: CHOSEN,
            scores: Scores::Softmax,
            groups: None,
            norm: Some(0.0),
            scale: 1.0,
        };
        for mixture in super::mixtures() {
            let coding = mixture.coding();
            let matrices = |shape: [usize; 2]| -> Vec<Vec<HostMatrix>> {
                let one = |seed| match coding {
                    WeightFormat::Bf16 => random_matrix(shape, seed),
                    _ => codings::matrix(coding, shape, seed),
                };
                // Kernels do not see that some experts have the numbers of others.
                let few: Vec<HostMatrix> = (0..8).map(one).collect();
                (0..EXPERTS).map(|expert| vec![few[expert % few.len()].clone()]).collect()
            };
            let gate_up = self.cuda.experts(0, &matrices([2 * WIDTH, HIDDEN])).unwrap();
            let down = self.cuda.experts(0, &matrices([HIDDEN, WIDTH])).unwrap();
            let expert_bytes = (2 * WIDTH * coding.row_bytes(HIDDEN) + HIDDEN * coding.row_bytes(WIDTH)) as f64;
            for tokens in TOKENS {
                let mut random = 1u64;
                let mut read = 0;
                let routes: Vec<_> = (0..PASSES)
                    .map(|_| {
                        let logits: Vec<f32> = (0..tokens * EXPERTS)
                            .map(|_| {
                                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                                (random >> 40) as f32 / (1 << 24) as f32
                            })
                            .collect();
                        let mut tensor = self.tensor(tokens, EXPERTS);
                        self.cuda.write(&mut tensor, &logits).unwrap();
                        let mut routes = self.cuda.routes(&router, tokens).unwrap();
                        ops::route(&mut self.cuda, &mut routes, &mut tensor, RouterVectors::from(None), &router);
                        let (chosen, _) = self.cuda.read_routes(&routes).unwrap();
                        read += chosen.into_iter().collect::<HashSet<_>>().len();
                        routes
                    })
                    .collect();
                let x = self.tensor(tokens, HIDDEN);
                let slots = tokens * CHOSEN;
                let mut gated = self.tensor(slots, WIDTH);
                let (mut rows, mut out) = (self.tensor(slots, HIDDEN), self.tensor(tokens, HIDDEN));
                let us = self.time(PASSES, |cuda| {
                    for routes in &routes {
                        let layer = LayerInput::new(&x, &gate_up, None);
                        ops::gated_expert_linear(cuda, &mut gated, None, layer, Activation::Silu, routes);
                        let layer = LayerInput::new(&gated, &down, None);
                        ops::expert_linear(cuda, &mut rows, layer, ExpertRows::Slots, routes);
                        ops::combine(cuda, &mut out, &rows, None, routes, 0..EXPERTS);
                    }
                });
                let bytes = expert_bytes * read as f64 / PASSES as f64;
                let flops = (6 * slots * HIDDEN * WIDTH) as f64;
                self.line(&format!("experts {mixture:?} {tokens} tokens, {} read", read / PASSES), us, bytes, flops);
            }
        }
    }
}
