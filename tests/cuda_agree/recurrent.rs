//! `causal_conv`, `gated_delta`, `selective_scan`, `gated_norm` and `copy_states` against obvious loops.

use crate::inputs::recurrent::{self, CONVS, DELTAS, FIRST_GATE, Gate, ROWS, Row, SCANS, SLOTS, place};
use crate::scene::{
    FEW_OPERATIONS, Near, Random, assert_near, bound, filled, launched, numbers, on_device, poisoned, rounded, staged,
    unit,
};
use compute::batch::NO_STATE;
use compute::cuda::Cuda;
use compute::{
    Activated, Activation, ConvForm, Curve, DeltaHeads, DeltaInputs, DeltaLayer, Device, GateOrder, HeadGate, Part,
    Rounding, ScanGate, ScanHeads, ScanInputs, ScanLayer, ScanRows, ShortConv, StateShape, ValueOrder, ops,
};
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
            let weight = numbers(&mut random, case.conv.weight_numbers(case.cols), 0.7, dtype);
            let (state, at, _) = place(case.conv.state_numbers(case.cols));
            let contents = numbers(&mut random, SLOTS * state, 2.0, dtype);
            let (expected, after) = recurrent::convolved(case, &batch, [&x, &weight, &contents]);
            let mut states = recurrent::states(cuda, &contents, state);
            let (device_batch, weight) = (staged(cuda, &batch), cuda.table(&weight).unwrap());
            let (x, mut out) = (filled(cuda, &x, case.width), poisoned(cuda, batch.tokens(), case.cols));
            ops::causal_conv(cuda, &mut out, &x, &weight, case.conv, (&mut states, at), &device_batch);
            // Sums of at most 7 products of 1.4, or 3 of 2.8 times 2, and a power that is off by few units.
            let near = |&value: &f32| Near::stored(f64::from(value), 20.0 * FEW_OPERATIONS, dtype);
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
            let decays = recurrent::decays(&mut random, heads.values);
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

/// Rows of whole chunks and of parts, beside rows of few tokens, with states that are kept in the middle of a chunk and at its end.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn delta_rules_of_prompts_agree_in_chunks() {
    const PROMPTS: &[Row] = &[
        Row { tokens: 150, source: NO_STATE, slot: 0, saves: &[(63, 3), (99, 4)] },
        Row { tokens: 1, source: 8, slot: 8, saves: &[] },
        Row { tokens: 17, source: 1, slot: 2, saves: &[] },
        Row { tokens: 16, source: 6, slot: 6, saves: &[(3, 5)] },
        Row { tokens: 64, source: 7, slot: 7, saves: &[] },
    ];
    on_device(|cuda, dtype| {
        for (order, values) in [(ValueOrder::Grouped, 2), (ValueOrder::Tiled, 6)] {
            for slow in [1.0, 0.01] {
                let heads = DeltaHeads { keys: 2, values, order, key_dim: 128, value_dim: 128 };
                let batch = recurrent::batch(PROMPTS);
                let mut random = Random(12);
                let gate_width = FIRST_GATE + 2 * heads.values + 2;
                let qkv = numbers(&mut random, batch.tokens() * heads.width(), 2.0, dtype);
                let gates = numbers(&mut random, batch.tokens() * gate_width, 3.0, dtype);
                let mut decays = recurrent::decays(&mut random, heads.values);
                decays[..heads.values].iter_mut().for_each(|rate| *rate *= slow);
                let (state, at, _) = place(heads.state_numbers());
                let contents = random.numbers(SLOTS * state, 1.0);
                let (expected, after) = recurrent::delta(heads, &batch, [&qkv, &gates, &decays, &contents]);
                let mut states = recurrent::states(cuda, &contents, state);
                let (device_batch, decays) = (staged(cuda, &batch), cuda.table(&decays).unwrap());
                let (qkv, gates) = (filled(cuda, &qkv, heads.width()), filled(cuda, &gates, gate_width));
                let mut out = poisoned(cuda, batch.tokens(), heads.value_width());
                let inputs = DeltaInputs { qkv: &qkv, gates: &gates, first_gate: FIRST_GATE, decays: &decays };
                let names = launched(cuda, |cuda| {
                    ops::gated_delta(cuda, &mut out, inputs, heads, (&mut states, at), &device_batch);
                });
                let what = format!("{heads:?}, rates {slow}, {dtype:?}");
                assert!(names.iter().any(|name| name.starts_with("gated_delta_chunks")), "{what}: {names:?}");
                assert_eq!(names.len(), 2, "{what}: rows of few tokens have the other kernel");
                // Keys, values and what they change are rounded to the number type.
                let found = [cuda.read(&out).unwrap(), recurrent::contents(cuda, &states)];
                assert_near_in_chunks(found, [&expected, &after], dtype, &what);
            }
        }
    });
}

/// Compares results and states of prompts in chunks, whose operands are rounded to the number type.
fn assert_near_in_chunks([out, states]: [Vec<f32>; 2], [expected, after]: [&[f32]; 2], dtype: DType, what: &str) {
    let greatest = |values: &[f32]| values.iter().fold(0.0, |most: f64, &v| most.max(f64::from(v).abs()));
    let [out_error, state_error] = [expected, after].map(|values| 4.0 * unit(dtype) * greatest(values));
    let near = |&value: &f32| Near::stored(f64::from(value), out_error, dtype);
    let expected: Vec<Near> = expected.iter().map(near).collect();
    assert_near(&out, &expected, 3.0 * bound(dtype), what);
    assert_near(&states, &near_f32(after, state_error), 3.0 * bound(dtype), what);
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn selective_scans_agree() {
    on_device(|cuda, dtype| {
        for &sizes in SCANS {
            let batch = recurrent::batch(ROWS);
            let mut random = Random(6);
            let step_width = FIRST_GATE + sizes.heads + 2;
            let xbc = numbers(&mut random, batch.tokens() * sizes.width(), 1.0, dtype);
            let steps = numbers(&mut random, batch.tokens() * step_width, 3.0, dtype);
            let rates = recurrent::rates(&mut random, sizes);
            let (state, at, _) = place(sizes.state_numbers());
            let contents = random.numbers(SLOTS * state, 1.0);
            let (expected, after) = recurrent::scan(sizes, &batch, [&xbc, &steps, &rates, &contents]);
            let mut states = recurrent::states(cuda, &contents, state);
            let (device_batch, rates) = (staged(cuda, &batch), cuda.table(&rates).unwrap());
            let (xbc, steps) = (filled(cuda, &xbc, sizes.width()), filled(cuda, &steps, step_width));
            let mut out = poisoned(cuda, batch.tokens(), sizes.head_width());
            let step_scale = recurrent::step_scale(sizes);
            let inputs = ScanInputs { xbc: &xbc, steps: &steps, first_step: FIRST_GATE, step_scale, rates: &rates };
            ops::selective_scan(cuda, &mut out, inputs, sizes, (&mut states, at), &device_batch);
            // Sums of `state_dim` products of numbers below 1 and states below 5, through at most nine tokens.
            let error = sizes.state_dim as f64 * 5.0 * FEW_OPERATIONS;
            let near = |&value: &f32| Near::stored(f64::from(value), error, dtype);
            let expected: Vec<Near> = expected.iter().map(near).collect();
            let what = format!("{sizes:?}, {dtype:?}");
            assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &what);
            assert_near(&recurrent::contents(cuda, &states), &near_f32(&after, 45.0 * FEW_OPERATIONS), 1e-4, &what);
        }
    });
}

/// Rows of whole chunks and of parts, new and continued, beside rows of few tokens, with states that are kept in the middle of a chunk and at its end. Heads share
/// groups, slow decays add up over many tokens, and fast ones leave nothing in f32 of what was before, whose logarithms must not take the digits of the others.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn selective_scans_of_prompts_agree_in_chunks() {
    const MIXED: &[Row] = &[
        Row { tokens: 150, source: NO_STATE, slot: 0, saves: &[(63, 3), (99, 4)] },
        Row { tokens: 1, source: 8, slot: 8, saves: &[] },
        Row { tokens: 17, source: 1, slot: 2, saves: &[] },
        Row { tokens: 16, source: 6, slot: 6, saves: &[(3, 5)] },
        Row { tokens: 64, source: 7, slot: 7, saves: &[] },
    ];
    const LONG: &[Row] = &[
        Row { tokens: 63, source: NO_STATE, slot: 0, saves: &[(0, 3)] },
        Row { tokens: 65, source: 8, slot: 8, saves: &[(64, 4)] },
        Row { tokens: 1000, source: 1, slot: 2, saves: &[] },
        Row { tokens: 130, source: 6, slot: 6, saves: &[(126, 5), (127, 7)] },
    ];
    const SIZES: [ScanHeads; 4] = [
        ScanHeads { heads: 4, groups: 2, head_dim: 64, state_dim: 128 },
        ScanHeads { heads: 3, groups: 1, head_dim: 64, state_dim: 64 },
        ScanHeads { heads: 2, groups: 1, head_dim: 128, state_dim: 256 },
        ScanHeads { heads: 2, groups: 2, head_dim: 192, state_dim: 128 },
    ];
    on_device(|cuda, dtype| {
        let rows = [(MIXED, 2), (LONG, 1)];
        let cases = SIZES.iter().flat_map(|sizes| rows.map(|rows| (sizes, rows)));
        for ((&sizes, (rows, launches)), speed) in cases.flat_map(|case| [1.0, 0.01, 1e5].map(|speed| (case, speed))) {
            let batch = recurrent::batch(rows);
            let mut random = Random(13);
            let step_width = FIRST_GATE + sizes.heads + 2;
            let xbc = numbers(&mut random, batch.tokens() * sizes.width(), 1.0, dtype);
            let step_scale = recurrent::step_scale(sizes);
            let mut steps = numbers(&mut random, batch.tokens() * step_width, 9.0, dtype);
            if speed > 1.0 {
                // Few tokens forget all that was before them, and those behind them forget slowly.
                for (token, steps) in steps.chunks_exact_mut(step_width).enumerate() {
                    let slow = |step: &f32| rounded(step / 9.0 - 12.0 / step_scale, dtype);
                    steps.iter_mut().for_each(|step| *step = if token % 32 == 5 { 30.0 } else { slow(step) });
                }
            }
            let mut rates = recurrent::rates(&mut random, sizes);
            rates[..sizes.heads].iter_mut().for_each(|rate| *rate *= speed);
            let (state, at, _) = place(sizes.state_numbers());
            let contents = random.numbers(SLOTS * state, 1.0);
            let (expected, after) = recurrent::scan(sizes, &batch, [&xbc, &steps, &rates, &contents]);
            let mut states = recurrent::states(cuda, &contents, state);
            let (device_batch, rates) = (staged(cuda, &batch), cuda.table(&rates).unwrap());
            let (xbc, steps) = (filled(cuda, &xbc, sizes.width()), filled(cuda, &steps, step_width));
            let mut out = poisoned(cuda, batch.tokens(), sizes.head_width());
            let inputs = ScanInputs { xbc: &xbc, steps: &steps, first_step: FIRST_GATE, step_scale, rates: &rates };
            let names = launched(cuda, |cuda| {
                ops::selective_scan(cuda, &mut out, inputs, sizes, (&mut states, at), &device_batch);
            });
            let what = format!("{sizes:?}, {} rows, rates {speed}, {dtype:?}", rows.len());
            assert!(names[0].starts_with("selective_scan_chunks"), "{what}: {names:?}");
            assert_eq!(names.len(), launches, "{what}: rows of few tokens have the other kernel");
            // The scores of tokens, what they add to the state and the state as it is read are rounded to the number type.
            let found = [cuda.read(&out).unwrap(), recurrent::contents(cuda, &states)];
            assert_near_in_chunks(found, [&expected, &after], dtype, &what);
        }
    });
}

/// In batch-invariant passes, whose rows are computed token by token whatever their length.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn how_a_prompt_is_cut_changes_no_bit_of_a_batch_invariant_scan() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        for sizes in SCANS.iter().filter(|sizes| sizes.state_dim >= 64) {
            const TOKENS: usize = 70;
            let mut random = Random(14);
            let xbc = numbers(&mut random, TOKENS * sizes.width(), 1.0, dtype);
            let steps = numbers(&mut random, TOKENS * sizes.heads, 3.0, dtype);
            let rates = cuda.table(&recurrent::rates(&mut random, *sizes)).unwrap();
            let (state, at, _) = place(sizes.state_numbers());
            let mut run = |cuts: &[usize]| {
                let mut states = recurrent::states(cuda, &vec![0.0; 2 * state], state);
                let (mut outs, mut start) = (Vec::new(), 0);
                for &end in cuts.iter().chain([&TOKENS]) {
                    let source = if start == 0 { NO_STATE } else { 1 };
                    let batch = recurrent::batch(&[Row { tokens: end - start, source, slot: 1, saves: &[] }]);
                    let device_batch = staged(cuda, &batch);
                    let xbc = filled(cuda, &xbc[start * sizes.width()..end * sizes.width()], sizes.width());
                    let steps = filled(cuda, &steps[start * sizes.heads..end * sizes.heads], sizes.heads);
                    let mut out = poisoned(cuda, end - start, sizes.head_width());
                    let inputs = ScanInputs { xbc: &xbc, steps: &steps, first_step: 0, step_scale: 1.0, rates: &rates };
                    ops::selective_scan(cuda, &mut out, inputs, *sizes, (&mut states, at), &device_batch);
                    outs.extend(cuda.read(&out).unwrap());
                    start = end;
                }
                (outs, recurrent::contents(cuda, &states))
            };
            let whole = run(&[]);
            for cuts in [&[1][..], &[17], &[64], &[3, 40, 41]] {
                assert!(run(cuts) == whole, "{sizes:?}, {dtype:?}, cut at {cuts:?}");
            }
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
            let decays = recurrent::decays(&mut random, heads.values);
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

/// For rows of one token, in the middle of a prompt, and where there are more rows than the kernel for a whole layer takes.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_layer_has_the_bits_of_its_three_ops() {
    const DECODE: &[Row] = &[
        Row { tokens: 1, source: NO_STATE, slot: 0, saves: &[] },
        Row { tokens: 1, source: 8, slot: 8, saves: &[(0, 5)] },
        Row { tokens: 1, source: 1, slot: 2, saves: &[] },
        Row { tokens: 1, source: 6, slot: NO_STATE, saves: &[] },
    ];
    let conv = ShortConv { taps: 4, form: ConvForm::Silu, has_bias: false };
    let wide = |keys, values, order| DeltaHeads { keys, values, order, key_dim: 128, value_dim: 128 };
    on_device(|cuda, dtype| {
        for (heads, rows, is_one) in [
            (wide(2, 2, ValueOrder::Grouped), DECODE, true),
            (wide(2, 4, ValueOrder::Tiled), DECODE, true),
            (wide(1, 3, ValueOrder::Grouped), &DECODE[..1], true),
            (wide(2, 8, ValueOrder::Tiled), DECODE, true),
            (wide(1, 5, ValueOrder::Grouped), DECODE, false),
            (wide(2, 4, ValueOrder::Grouped), ROWS, false),
            (DeltaHeads { key_dim: 64, ..wide(2, 4, ValueOrder::Grouped) }, DECODE, false),
        ] {
            let batch = recurrent::batch(rows);
            let (mut random, tokens) = (Random(9), batch.tokens());
            let width = heads.width() + heads.value_width() + 2 * heads.values + 6;
            let projected = filled(cuda, &numbers(&mut random, tokens * width, 2.0, dtype), width);
            let conv_weight =
                cuda.table(&numbers(&mut random, conv.weight_numbers(heads.width()), 0.7, dtype)).unwrap();
            let decays = cuda.table(&recurrent::decays(&mut random, heads.values)).unwrap();
            let norm = cuda.table(&random.numbers(heads.value_dim, 1.0)).unwrap();
            let layer = DeltaLayer {
                projected: &projected,
                conv_weight: &conv_weight,
                conv,
                decays: &decays,
                heads,
                norm: &norm,
                eps: 1e-6,
            };
            let (state, at, _) = place(conv.state_numbers(heads.width()) + heads.state_numbers());
            let contents = random.numbers(SLOTS * state, 1.0);
            let device_batch = staged(cuda, &batch);
            let mut mixed = poisoned(cuda, tokens, heads.width());
            let mut run = |cuda: &mut Cuda, apart: bool| {
                let mut states = recurrent::states(cuda, &contents, state);
                let mut out = filled(cuda, &vec![0.0; tokens * heads.value_width()], heads.value_width());
                let names = launched(cuda, |cuda| {
                    if !apart {
                        ops::delta_layer(cuda, &mut out, &mut mixed, layer, (&mut states, at), &device_batch);
                        return;
                    }
                    ops::causal_conv(
                        cuda,
                        &mut mixed,
                        &projected,
                        &conv_weight,
                        conv,
                        (&mut states, at),
                        &device_batch,
                    );
                    let (first_gate, place) = (layer.first_gate(), (&mut states, layer.rule_at(at)));
                    let inputs = DeltaInputs { qkv: &mixed, gates: &projected, first_gate, decays: &decays };
                    ops::gated_delta(cuda, &mut out, inputs, heads, place, &device_batch);
                    ops::gated_norm(cuda, &mut out, layer.gate());
                });
                (names, cuda.read(&out).unwrap(), recurrent::contents(cuda, &states))
            };
            let (names, out, after) = run(cuda, false);
            let (_, wanted, wanted_after) = run(cuda, true);
            let what = format!("{heads:?}, {tokens} tokens, {dtype:?}");
            assert_eq!(names.iter().any(|name| name.starts_with("delta_step")), is_one, "{what}: {names:?}");
            // The results of rows that pad the batch are not read.
            let own = |out: Vec<f32>| -> Vec<f32> {
                let rows = out.chunks(heads.value_width()).zip(&batch.state_slots);
                let is_own = |(_, slot): &(&[f32], &u32)| tokens != batch.rows() || **slot != NO_STATE;
                rows.filter(is_own).flat_map(|(row, _)| row.to_vec()).collect()
            };
            assert!(own(out) == own(wanted), "{what}: results");
            assert!(after == wanted_after, "{what}: states");
        }
    });
}

/// For rows of one token, in the middle of a prompt, and where there are more rows than the kernel for a whole layer takes. Twice, so that counts of thread blocks are
/// those of the beginning again.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_layer_of_mamba_has_the_bits_of_its_ops() {
    const ONE: Row = Row { tokens: 1, source: NO_STATE, slot: NO_STATE, saves: &[] };
    const DECODE: &[Row] = &[
        Row { slot: 0, ..ONE },
        Row { source: 8, slot: 8, saves: &[(0, 5)], ..ONE },
        Row { source: 1, slot: 2, ..ONE },
        Row { source: 6, ..ONE },
    ];
    const MANY: &[Row] = &[ONE; 16];
    let conv = |taps, has_bias| ShortConv { taps, form: ConvForm::Silu, has_bias };
    let sizes = |heads, groups, head_dim, state_dim| ScanHeads { heads, groups, head_dim, state_dim };
    on_device(|cuda, dtype| {
        for (heads, conv, rows, is_one) in [
            (sizes(48, 1, 64, 128), conv(4, true), DECODE, true),
            (sizes(16, 8, 64, 128), conv(4, true), DECODE, true),
            (sizes(6, 2, 128, 256), conv(4, false), DECODE, true),
            (sizes(4, 4, 64, 64), conv(4, true), &DECODE[1..2], true),
            (sizes(4, 2, 64, 128), conv(4, true), MANY, false),
            (sizes(4, 2, 64, 128), conv(4, true), ROWS, false),
            (sizes(4, 2, 64, 128), conv(3, true), DECODE, false),
            (sizes(4, 2, 48, 128), conv(4, true), DECODE, false),
            (sizes(4, 2, 64, 32), conv(4, true), DECODE, false),
        ] {
            let batch = recurrent::batch(rows);
            let (mut random, tokens, group_width) = (Random(15), batch.tokens(), heads.head_width() / heads.groups);
            let width = heads.width() + heads.head_width() + heads.heads + 3;
            let projected = filled(cuda, &numbers(&mut random, tokens * width, 2.0, dtype), width);
            let conv_weight =
                cuda.table(&numbers(&mut random, conv.weight_numbers(heads.width()), 0.7, dtype)).unwrap();
            let rates = cuda.table(&recurrent::rates(&mut random, heads)).unwrap();
            let norm = cuda.table(&random.numbers(heads.head_width(), 1.0)).unwrap();
            let (state, at, _) = place(conv.state_numbers(heads.width()) + heads.state_numbers());
            let contents = random.numbers(SLOTS * state, 1.0);
            let device_batch = staged(cuda, &batch);
            let norm = |order| HeadGate {
                gate: &projected,
                first: heads.width(),
                scale: 0.8,
                order,
                head_dim: group_width,
                weight: &norm,
                eps: 1e-5,
            };
            for gate in [
                ScanGate::Nothing,
                ScanGate::Silu { scale: 0.8 },
                ScanGate::Norm(norm(GateOrder::BeforeNorm)),
                ScanGate::Norm(norm(GateOrder::AfterNorm)),
            ] {
                let layer = ScanLayer {
                    projected: &projected,
                    conv_weight: &conv_weight,
                    conv,
                    rates: &rates,
                    step_scale: 0.6,
                    heads,
                    gate,
                };
                let run = |cuda: &mut Cuda, apart: bool| {
                    let mut states = recurrent::states(cuda, &contents, state);
                    let mut out = filled(cuda, &vec![0.0; tokens * heads.head_width()], heads.head_width());
                    let mut read = poisoned(cuda, tokens, heads.head_width());
                    let mut mixed = poisoned(cuda, tokens, heads.width());
                    let names = launched(cuda, |cuda| {
                        if !apart {
                            let read = matches!(gate, ScanGate::Silu { .. }).then_some(&mut read);
                            let rows = ScanRows { mixed: &mut mixed, read };
                            ops::scan_layer(cuda, &mut out, rows, layer, (&mut states, at), &device_batch);
                            return;
                        }
                        let place = (&mut states, at);
                        ops::causal_conv(cuda, &mut mixed, &projected, &conv_weight, conv, place, &device_batch);
                        let inputs = ScanInputs {
                            xbc: &mixed,
                            steps: &projected,
                            first_step: layer.first_step(),
                            step_scale: layer.step_scale,
                            rates: &rates,
                        };
                        let place = (&mut states, layer.scan_at(at));
                        ops::selective_scan(cuda, &mut read, inputs, heads, place, &device_batch);
                        match gate {
                            ScanGate::Nothing => std::mem::swap(&mut out, &mut read),
                            ScanGate::Silu { scale } => {
                                let (of, first) = (Part { x: &projected, first: layer.first_gate() }, 0);
                                let times = Some(Part { x: &read, first });
                                let curve = Curve::Gate(Activation::Silu);
                                ops::activate(cuda, &mut out, Activated { of, scale, curve, times });
                            }
                            ScanGate::Norm(gate) => {
                                std::mem::swap(&mut out, &mut read);
                                ops::gated_norm(cuda, &mut out, gate);
                            }
                        }
                    });
                    (names, cuda.read(&out).unwrap(), recurrent::contents(cuda, &states))
                };
                let (_, wanted, wanted_after) = run(cuda, true);
                for round in 0..2 {
                    let (names, out, after) = run(cuda, false);
                    let what = format!("{heads:?}, {conv:?}, {tokens} tokens, {dtype:?}, round {round}");
                    assert_eq!(names[0].starts_with("scan_step"), is_one, "{what}: {names:?}");
                    let leaves_norm = matches!(gate, ScanGate::Norm(_)) && group_width > 1024;
                    assert!(!is_one || names.len() == 1 + usize::from(leaves_norm), "{what}: {names:?}");
                    // The results of rows that pad the batch are not read.
                    let own = |out: &[f32]| -> Vec<f32> {
                        let rows = out.chunks(heads.head_width()).zip(&batch.state_slots);
                        let is_own = |(_, slot): &(&[f32], &u32)| tokens != batch.rows() || **slot != NO_STATE;
                        rows.filter(is_own).flat_map(|(row, _)| row.to_vec()).collect()
                    };
                    assert!(own(&out) == own(&wanted), "{what}: results");
                    assert!(after == wanted_after, "{what}: states");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn gated_norms_agree() {
    on_device(|cuda, dtype| {
        let cases = [
            (1, 1, 16, 0, GateOrder::AfterNorm, true),
            (3, 3, 48, 8, GateOrder::AfterNorm, true),
            (16, 32, 128, 8192, GateOrder::AfterNorm, true),
            (2, 1, 1536, 0, GateOrder::BeforeNorm, true),
            (3, 2, 520, 16, GateOrder::AfterNorm, false),
            (2, 1, 8192, 0, GateOrder::BeforeNorm, true),
            (3, 8, 104, 8, GateOrder::BeforeNorm, false),
        ];
        for (tokens, heads, head_dim, first, order, shares_weights) in cases {
            let case = Gate { tokens, heads, head_dim, first, order, shares_weights };
            let (mut random, cols) = (Random(4), heads * head_dim);
            let width = first + cols + 8;
            let x = numbers(&mut random, tokens * cols, 0.3, dtype);
            let gates = numbers(&mut random, tokens * width, 5.0, dtype);
            let weight = numbers(&mut random, case.weights(), 2.0, dtype);
            let expected = case.expected(&x, &gates, &weight, 1e-5);
            // The kernels of recurrent layers are loaded with the first states.
            cuda.states(&StateShape { numbers: 1, slots: 1 }).unwrap();
            let (mut x, gate) = (filled(cuda, &x, cols), filled(cuda, &gates, width));
            let weight = cuda.table(&weight).unwrap();
            let scale = case.scale();
            let gate = HeadGate { gate: &gate, first, scale, order, head_dim, weight: &weight, eps: 1e-5 };
            ops::gated_norm(cuda, &mut x, gate);
            let near = |&v: &f32| Near::stored(f64::from(v), 3.0 * FEW_OPERATIONS * f64::from(v.abs()), dtype);
            let expected: Vec<Near> = expected.iter().map(near).collect();
            let what = format!("{tokens} x {heads} x {head_dim}, {order:?}, {dtype:?}");
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
