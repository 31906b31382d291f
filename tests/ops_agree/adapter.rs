//! What an adapter adds to a linear layer.

use crate::column::{Column, assert_near};
use crate::linear::matrix;
use crate::scene::Random;
use compute::cpu::{Cpu, Isa};
use compute::ops;
use compute::{Activation, Adapter, Device, LayerInput};
use formats::WeightFormat;

const TOKENS: usize = 5;
const INPUTS: usize = 64;
const WIDTH: usize = 24;
const SCALE: f32 = 0.5;

/// The gates and ups of `weight`, activated, with two adapters of rank 3 stacked: the first rows have one, the last the other.
fn gated(cpu: &mut Cpu, weight: &[f32], x: &[f32], adapters: Option<(&[f32], &[f32])>) -> Vec<f32> {
    let weight = cpu.matrix(&[matrix(weight, WeightFormat::F32, 2 * WIDTH)]).unwrap();
    let x = cpu.filled(x, INPUTS);
    let (mut out, mut gate_up) = (cpu.poisoned(TOKENS, WIDTH), cpu.poisoned(TOKENS, 2 * WIDTH));
    let adapters = adapters.map(|(projected, up)| (cpu.filled(projected, RANKS), cpu.table(up).unwrap()));
    let adapter = adapters.as_ref().map(|(projected, up)| Adapter { projected, up, scale: SCALE });
    let layer = LayerInput { adapter, ..LayerInput::new(&x, &weight, None) };
    ops::gated_linear(cpu, &mut out, &mut gate_up, layer, Activation::Silu);
    cpu.read(&out)
}

/// Of both adapters together.
const RANKS: usize = 6;

#[test]
fn an_adapter_adds_before_the_activation_what_merged_weights_add() {
    let mut random = Random(3);
    let (weight, x) = (random.numbers(2 * WIDTH * INPUTS, 0.3), random.numbers(TOKENS * INPUTS, 1.0));
    let (down, up) = (random.numbers(RANKS * INPUTS, 0.3), random.numbers(RANKS * 2 * WIDTH, 0.3));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    // A row with one adapter has zeros where the other one is.
    let ranks = |token: usize| if token < 2 { 0..3 } else { 3..6 };
    let rows = x.chunks_exact(INPUTS).enumerate().flat_map(|(token, x)| {
        let of_rank = move |(rank, down)| if ranks(token).contains(&rank) { dot(x, down) } else { 0.0 };
        down.chunks_exact(INPUTS).enumerate().map(of_rank)
    });
    let projected: Vec<f32> = rows.collect();
    let merged = |ranks: std::ops::Range<usize>| -> Vec<f32> {
        let at = |n: usize, k: usize| {
            let delta: f32 = ranks.clone().map(|rank| up[rank * 2 * WIDTH + n] * down[rank * INPUTS + k]).sum();
            weight[n * INPUTS + k] + SCALE * delta
        };
        (0..2 * WIDTH).flat_map(|n| (0..INPUTS).map(move |k| (n, k))).map(|(n, k)| at(n, k)).collect()
    };
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(2, *isa);
        let [first, second] = [0..3, 3..6].map(|ranks| gated(cpu, &merged(ranks), &x, None));
        let wanted = [&first[..2 * WIDTH], &second[2 * WIDTH..]].concat();
        let adapted = gated(cpu, &weight, &x, Some((&projected, &up)));
        // Where an instruction set rounds x and weights, merged weights are rounded otherwise.
        let bound = if *isa == Isa::Portable { 1e-5 } else { 2e-2 };
        assert_near(&adapted, &wanted, bound, &format!("{isa:?}"));
        let plain = gated(cpu, &weight, &x, None);
        assert!(adapted.iter().zip(&plain).all(|(a, b)| a != b), "{isa:?}: a number without its part");
    }
}
