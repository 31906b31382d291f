//! `causal_conv`, `gated_delta`, `selective_scan`, `gated_norm` and `copy_states`.

use crate::column::{Column, Op, agrees, assert_near};
use crate::inputs::recurrent::{self, CONVS, Conv, DELTAS, FIRST_GATE, Gate, ROWS, Row, SCANS, SLOTS, place};
use crate::inputs::{Random, uploaded};
use compute::batch::{Batch, NO_STATE};
use compute::cpu::{Cpu, Isa};
use compute::{ConvForm, DeltaHeads, DeltaInputs, Device, GateOrder, HeadGate, ScanHeads, ScanInputs, ShortConv, ops};

fn on_each_cpu(test: impl Fn(&mut Cpu, &str)) {
    for isa in Isa::available() {
        for threads in [1, 2] {
            test(&mut Cpu::new(threads, *isa), &format!("{isa:?}, {threads} threads"));
        }
    }
}

/// A convolution over `batch`: output, and the states afterwards.
fn convolve(cpu: &mut Cpu, case: &Conv, batch: &Batch, [x, weight, contents]: [&[f32]; 3]) -> (Vec<f32>, Vec<f32>) {
    let (numbers, at, _) = place(case.conv.state_numbers(case.cols));
    let mut states = recurrent::states(cpu, contents, numbers);
    let (device_batch, weight) = (uploaded(cpu, batch), cpu.table(weight).unwrap());
    let (x, mut out) = (cpu.filled(x, case.width), cpu.poisoned(batch.tokens(), case.cols));
    ops::causal_conv(cpu, &mut out, &x, &weight, case.conv, (&mut states, at), &device_batch);
    (cpu.read(&out), recurrent::contents(cpu, &states))
}

#[test]
fn causal_conv_agrees_with_its_specification() {
    for case in CONVS {
        let batch = recurrent::batch(ROWS);
        let mut random = Random(1);
        let x = random.numbers(batch.tokens() * case.width, 2.0);
        let weight = random.numbers(case.conv.weight_numbers(case.cols), 0.7);
        let contents = random.numbers(SLOTS * place(case.conv.state_numbers(case.cols)).0, 2.0);
        let inputs = [&x[..], &weight, &contents];
        let (expected, states) = recurrent::convolved(case, &batch, inputs);
        on_each_cpu(|cpu, what| {
            let (out, after) = convolve(cpu, case, &batch, inputs);
            assert_near(&out, &expected, 1e-6, what);
            assert_eq!(after, states, "{what}: inputs are kept as they are");
        });
    }
}

/// A delta rule over `batch`: output, and the states afterwards.
fn delta(cpu: &mut Cpu, heads: DeltaHeads, batch: &Batch, inputs: [&[f32]; 4]) -> (Vec<f32>, Vec<f32>) {
    let [qkv, gates, decays, contents] = inputs;
    let (numbers, at, _) = place(heads.state_numbers());
    let mut states = recurrent::states(cpu, contents, numbers);
    let (device_batch, decays) = (uploaded(cpu, batch), cpu.table(decays).unwrap());
    let (qkv, gates) = (cpu.filled(qkv, heads.width()), cpu.filled(gates, gates.len() / batch.tokens()));
    let mut out = cpu.poisoned(batch.tokens(), heads.value_width());
    let inputs = DeltaInputs { qkv: &qkv, gates: &gates, first_gate: FIRST_GATE, decays: &decays };
    ops::gated_delta(cpu, &mut out, inputs, heads, (&mut states, at), &device_batch);
    (cpu.read(&out), recurrent::contents(cpu, &states))
}

/// Inputs of a delta rule over `tokens` tokens.
fn delta_inputs(heads: DeltaHeads, tokens: usize) -> [Vec<f32>; 4] {
    let mut random = Random(2);
    let qkv = random.numbers(tokens * heads.width(), 2.0);
    let gates = random.numbers(tokens * (FIRST_GATE + 2 * heads.values + 2), 3.0);
    let decays = recurrent::decays(&mut random, heads.values);
    [qkv, gates, decays, random.numbers(SLOTS * place(heads.state_numbers()).0, 1.0)]
}

#[test]
fn gated_delta_agrees_with_its_specification() {
    for &heads in DELTAS {
        let batch = recurrent::batch(ROWS);
        let inputs = delta_inputs(heads, batch.tokens());
        let inputs = inputs.each_ref().map(|numbers| &numbers[..]);
        let (expected, states) = recurrent::delta(heads, &batch, inputs);
        on_each_cpu(|cpu, what| {
            let (out, after) = delta(cpu, heads, &batch, inputs);
            assert_near(&out, &expected, 2e-6, what);
            assert_near(&after, &states, 1e-6, what);
        });
    }
}

/// A selective scan over `batch`: output, and the states afterwards.
fn scan(cpu: &mut Cpu, sizes: ScanHeads, batch: &Batch, inputs: [&[f32]; 4]) -> (Vec<f32>, Vec<f32>) {
    let [xbc, steps, rates, contents] = inputs;
    let (numbers, at, _) = place(sizes.state_numbers());
    let mut states = recurrent::states(cpu, contents, numbers);
    let (device_batch, rates) = (uploaded(cpu, batch), cpu.table(rates).unwrap());
    let (xbc, steps) = (cpu.filled(xbc, sizes.width()), cpu.filled(steps, steps.len() / batch.tokens()));
    let mut out = cpu.poisoned(batch.tokens(), sizes.head_width());
    let step_scale = recurrent::step_scale(sizes);
    let inputs = ScanInputs { xbc: &xbc, steps: &steps, first_step: FIRST_GATE, step_scale, rates: &rates };
    ops::selective_scan(cpu, &mut out, inputs, sizes, (&mut states, at), &device_batch);
    (cpu.read(&out), recurrent::contents(cpu, &states))
}

/// Inputs of a selective scan over `tokens` tokens.
fn scan_inputs(sizes: ScanHeads, tokens: usize) -> [Vec<f32>; 4] {
    let mut random = Random(6);
    let xbc = random.numbers(tokens * sizes.width(), 1.0);
    let steps = random.numbers(tokens * (FIRST_GATE + sizes.heads + 2), 3.0);
    let rates = recurrent::rates(&mut random, sizes);
    [xbc, steps, rates, random.numbers(SLOTS * place(sizes.state_numbers()).0, 1.0)]
}

#[test]
fn selective_scan_agrees_with_its_specification() {
    for &sizes in SCANS {
        let batch = recurrent::batch(ROWS);
        let inputs = scan_inputs(sizes, batch.tokens());
        let inputs = inputs.each_ref().map(|numbers| &numbers[..]);
        let (expected, states) = recurrent::scan(sizes, &batch, inputs);
        on_each_cpu(|cpu, what| {
            let (out, after) = scan(cpu, sizes, &batch, inputs);
            assert_near(&out, &expected, 2e-6, what);
            assert_near(&after, &states, 1e-6, what);
        });
    }
}

#[test]
fn how_a_prompt_is_cut_changes_no_bit() {
    let conv = Conv { conv: ShortConv { taps: 4, form: ConvForm::Gated, has_bias: false }, cols: 48, width: 150 };
    let heads = DELTAS[0];
    const TOKENS: usize = 7;
    let mut random = Random(3);
    let x = random.numbers(TOKENS * conv.width, 2.0);
    let weight = random.numbers(4 * conv.cols, 0.7);
    let [qkv, gates, decays, _] = delta_inputs(heads, TOKENS);
    let sizes = SCANS[0];
    let [xbc, steps, rates, _] = scan_inputs(sizes, TOKENS);
    let zeros = |len: usize| vec![0.0; 2 * place(len).0];
    on_each_cpu(|cpu, what| {
        let run = |cpu: &mut Cpu, cuts: &[usize]| {
            let numbers = [conv.conv.state_numbers(conv.cols), heads.state_numbers(), sizes.state_numbers()];
            let mut states = numbers.map(zeros);
            let (mut outs, mut start) = ([const { Vec::new() }; 3], 0);
            for &end in cuts.iter().chain([&TOKENS]) {
                let source = if start == 0 { NO_STATE } else { 1 };
                let batch = recurrent::batch(&[Row { tokens: end - start, source, slot: 1, saves: &[] }]);
                let part = |numbers: &[f32]| {
                    let width = numbers.len() / TOKENS;
                    numbers[start * width..end * width].to_vec()
                };
                let (out, after) = convolve(cpu, &conv, &batch, [&part(&x), &weight, &states[0]]);
                outs[0].extend(out);
                let (out, delta_after) = delta(cpu, heads, &batch, [&part(&qkv), &part(&gates), &decays, &states[1]]);
                outs[1].extend(out);
                let (out, scan_after) = scan(cpu, sizes, &batch, [&part(&xbc), &part(&steps), &rates, &states[2]]);
                outs[2].extend(out);
                states = [after, delta_after, scan_after];
                start = end;
            }
            (outs, states)
        };
        let whole = run(cpu, &[]);
        for cuts in [&[1][..], &[2], &[3, 4], &[1, 2, 3, 4, 5, 6], &[6]] {
            assert!(run(cpu, cuts) == whole, "{what}, cut at {cuts:?}");
        }
    });
}

struct GatedNorm;

impl Op for GatedNorm {
    type Case = Gate;
    const CASES: &'static [(&'static str, Self::Case)] = &[
        ("one head", gate([1, 1, 16, 0], GateOrder::AfterNorm, true)),
        ("an odd head", gate([3, 2, 37, 5], GateOrder::AfterNorm, true)),
        ("decode batch of Qwen3.5", gate([16, 32, 128, 8192], GateOrder::AfterNorm, true)),
        ("one group of Mamba-2", gate([2, 1, 1536, 0], GateOrder::BeforeNorm, true)),
        ("groups of Mamba-2, each with weights", gate([3, 8, 100, 7], GateOrder::BeforeNorm, false)),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(case: &Gate) -> Vec<f32> {
        let [x, gates, weight] = norm_inputs(case);
        case.expected(&x, &gates, &weight, 1e-5)
    }

    fn computed<B: Column>(backend: &mut B, case: &Gate) -> Vec<f32> {
        let [x, gates, weight] = norm_inputs(case);
        let gates = backend.filled(&gates, gates.len() / case.tokens);
        let (mut x, weight) = (backend.filled(&x, case.heads * case.head_dim), backend.table(&weight).unwrap());
        let &Gate { first, order, head_dim, .. } = case;
        let scale = case.scale();
        let gate = HeadGate { gate: &gates, first, scale, order, head_dim, weight: &weight, eps: 1e-5 };
        ops::gated_norm(backend, &mut x, gate);
        backend.read(&x)
    }
}

const fn gate([tokens, heads, head_dim, first]: [usize; 4], order: GateOrder, shares_weights: bool) -> Gate {
    Gate { tokens, heads, head_dim, first, order, shares_weights }
}

fn norm_inputs(case: &Gate) -> [Vec<f32>; 3] {
    let (mut random, cols) = (Random(4), case.heads * case.head_dim);
    let x = random.numbers(case.tokens * cols, 0.3);
    let gates = random.numbers(case.tokens * (case.first + cols + 3), 5.0);
    [x, gates, random.numbers(case.weights(), 2.0)]
}

#[test]
fn gated_norm_agrees_with_its_specification() {
    agrees::<GatedNorm>();
}

#[test]
fn states_are_copied_one_after_another() {
    on_each_cpu(|cpu, what| {
        let contents: Vec<f32> = (0..SLOTS * 7).map(|i| i as f32).collect();
        let [copied, expected] = recurrent::copied(cpu, &contents, 7);
        assert_eq!(copied, expected, "{what}");
    });
}
