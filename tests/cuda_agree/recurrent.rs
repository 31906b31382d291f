//! `causal_conv`, `gated_delta`, `gated_norm` and `copy_states` against obvious loops.

use crate::inputs::recurrent::{self, CONVS, DELTAS, FIRST_GATE, ROWS, Row, SLOTS, place};
use crate::scene::{FEW_OPERATIONS, Near, Random, assert_near, bound, filled, numbers, on_device, poisoned, staged};
use compute::batch::NO_STATE;
use compute::cpu::reference;
use compute::{Backend, DeltaInputs, HeadGate, StateShape, ops};
use formats::DType;

/// Results in f32, of which each is off by at most `error`.
fn near_f32(values: &[f32], error: f64) -> Vec<Near> {
    values.iter().map(|&value| Near::stored(f64::from(value), error, DType::F32)).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn short_convolutions_agree() {
    on_device(|cuda, dtype| {
        for case in CONVS {
            let batch = recurrent::batch(ROWS);
            let mut random = Random(1);
            let x = numbers(&mut random, batch.tokens() * case.width, 2.0, dtype);
            let weight = numbers(&mut random, case.conv.taps * case.cols, 0.7, dtype);
            let (state, at, _) = place(case.conv.state_numbers(case.cols));
            let contents = numbers(&mut random, SLOTS * state, 2.0, dtype);
            let (expected, after) = recurrent::convolved(case, &batch, [&x, &weight, &contents]);
            let mut states = recurrent::states(cuda, &contents, state);
            let (device_batch, weight) = (staged(cuda, &batch), cuda.table(&weight).unwrap());
            let (x, mut out) = (filled(cuda, &x, case.width), poisoned(cuda, batch.tokens(), case.cols));
            ops::causal_conv(cuda, &mut out, &x, &weight, case.conv, (&mut states, at), &device_batch);
            // Sums of at most 7 products of 1.4, and a power that is off by few units.
            let near = |&value: &f32| Near::stored(f64::from(value), 12.0 * FEW_OPERATIONS, dtype);
            let expected: Vec<Near> = expected.iter().map(near).collect();
            let what = format!("{:?} of {} columns, {dtype:?}", case.conv, case.cols);
            assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &what);
            assert_eq!(recurrent::contents(cuda, &states), after, "{what}: inputs are kept as they are");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn gated_delta_rules_agree() {
    on_device(|cuda, dtype| {
        for &heads in DELTAS {
            let batch = recurrent::batch(ROWS);
            let mut random = Random(2);
            let gate_width = FIRST_GATE + 2 * heads.values + 2;
            let qkv = numbers(&mut random, batch.tokens() * heads.width(), 2.0, dtype);
            let gates = numbers(&mut random, batch.tokens() * gate_width, 3.0, dtype);
            let decays = recurrent::decays(&mut random, heads);
            let (state, at, _) = place(heads.state_numbers());
            let contents = random.numbers(SLOTS * state, 1.0);
            let (expected, after) = recurrent::delta(heads, &batch, [&qkv, &gates, &decays, &contents]);
            let mut states = recurrent::states(cuda, &contents, state);
            let (device_batch, decays) = (staged(cuda, &batch), cuda.table(&decays).unwrap());
            let (qkv, gates) = (filled(cuda, &qkv, heads.width()), filled(cuda, &gates, gate_width));
            let mut out = poisoned(cuda, batch.tokens(), heads.value_width());
            let inputs = DeltaInputs { qkv: &qkv, gates: &gates, first_gate: FIRST_GATE, decays: &decays };
            ops::gated_delta(cuda, &mut out, inputs, heads, (&mut states, at), &device_batch);
            // Numbers of about 1, through at most nine tokens of a dozen operations each, with sums of `key_dim` products of unit vectors.
            let error = 9.0 * 8.0 * FEW_OPERATIONS;
            let near = |&value: &f32| Near::stored(f64::from(value), error, dtype);
            let expected: Vec<Near> = expected.iter().map(near).collect();
            let what = format!("{heads:?}, {dtype:?}");
            assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &what);
            assert_near(&recurrent::contents(cuda, &states), &near_f32(&after, error), 1e-4, &what);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn how_a_prompt_is_cut_changes_no_bit_of_a_delta_rule() {
    on_device(|cuda, dtype| {
        for &heads in DELTAS {
            const TOKENS: usize = 7;
            let mut random = Random(5);
            let gate_width = FIRST_GATE + 2 * heads.values;
            let qkv = numbers(&mut random, TOKENS * heads.width(), 2.0, dtype);
            let gates = numbers(&mut random, TOKENS * gate_width, 3.0, dtype);
            let decays = recurrent::decays(&mut random, heads);
            let decays = cuda.table(&decays).unwrap();
            let (state, at, _) = place(heads.state_numbers());
            let mut run = |cuts: &[usize]| {
                let mut states = recurrent::states(cuda, &vec![0.0; 2 * state], state);
                let (mut outs, mut start) = (Vec::new(), 0);
                for &end in cuts.iter().chain([&TOKENS]) {
                    let source = if start == 0 { NO_STATE } else { 1 };
                    let batch = recurrent::batch(&[Row { tokens: end - start, source, slot: 1, saves: &[] }]);
                    let device_batch = staged(cuda, &batch);
                    let qkv = filled(cuda, &qkv[start * heads.width()..end * heads.width()], heads.width());
                    let gates = filled(cuda, &gates[start * gate_width..end * gate_width], gate_width);
                    let mut out = poisoned(cuda, end - start, heads.value_width());
                    let inputs = DeltaInputs { qkv: &qkv, gates: &gates, first_gate: FIRST_GATE, decays: &decays };
                    ops::gated_delta(cuda, &mut out, inputs, heads, (&mut states, at), &device_batch);
                    outs.extend(cuda.read(&out).unwrap());
                    start = end;
                }
                (outs, recurrent::contents(cuda, &states))
            };
            let whole = run(&[]);
            for cuts in [&[1][..], &[2], &[3, 4], &[1, 2, 3, 4, 5, 6], &[6]] {
                assert!(run(cuts) == whole, "{heads:?}, {dtype:?}, cut at {cuts:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn gated_norms_agree() {
    on_device(|cuda, dtype| {
        for (tokens, heads, dim, first) in [(1, 1, 16, 0), (3, 3, 48, 8), (16, 32, 128, 8192)] {
            let (mut random, width) = (Random(4), first + heads * dim + 8);
            let x = numbers(&mut random, tokens * heads * dim, 0.3, dtype);
            let gates = numbers(&mut random, tokens * width, 5.0, dtype);
            let weight = numbers(&mut random, dim, 2.0, dtype);
            let mut expected = x.clone();
            for (x, gates) in expected.chunks_exact_mut(heads * dim).zip(gates.chunks_exact(width)) {
                reference::gated_norm(x, &gates[first..][..heads * dim], &weight, 1e-5);
            }
            // The kernels of recurrent layers are loaded with the first states.
            cuda.states(&StateShape { numbers: 1, slots: 1 }).unwrap();
            let (mut x, gate) = (filled(cuda, &x, heads * dim), filled(cuda, &gates, width));
            let weight = cuda.table(&weight).unwrap();
            ops::gated_norm(cuda, &mut x, HeadGate { gate: &gate, first, weight: &weight, eps: 1e-5 });
            let near = |&v: &f32| Near::stored(f64::from(v), 2.0 * FEW_OPERATIONS * f64::from(v.abs()), dtype);
            let expected: Vec<Near> = expected.iter().map(near).collect();
            let what = format!("{tokens} x {heads} x {dim}, {dtype:?}");
            assert_near(&cuda.read(&x).unwrap(), &expected, bound(dtype), &what);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn states_are_copied_one_after_another() {
    on_device(|cuda, dtype| {
        let contents: Vec<f32> = (0..SLOTS * 1000).map(|i| i as f32).collect();
        let [copied, expected] = recurrent::copied(cuda, &contents, 1000);
        assert_eq!(copied, expected, "{dtype:?}");
    });
}
