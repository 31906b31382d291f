//! `route`, `gated_expert_linear`, `expert_linear` and `combine`.

use crate::coded::{codings, random_matrix};
use crate::column::{Column, assert_near};
use crate::inputs::experts::{self, CASES, Case, Inputs, ROUTER, ROUTERS, Shared};
use crate::inputs::{Random, uploaded};
use crate::linear::{assert_same_bits, matrix};
use compute::batch::{Batch, BatchLimits};
use compute::cpu::{Cpu, Isa, Routes, reference};
use compute::{
    Device, ExpertForm, ExpertRows, HostExpertWeights, HostMatrix, LayerInput, Router, RouterVectors, Scores,
    SharedExpert, ops,
};
use formats::WeightFormat;

fn on_each_cpu(test: impl Fn(&mut Cpu, &str)) {
    for isa in Isa::available() {
        for threads in [1, 2, 5] {
            test(&mut Cpu::new(threads, *isa), &format!("{isa:?}, {threads} threads"));
        }
    }
}

/// What `router` chooses.
pub fn routed(cpu: &mut Cpu, logits: &[f32], bias: Option<&[f32]>, router: &Router) -> Routes {
    routed_by(cpu, logits, [bias, None], router)
}

/// The same with the factors of weights.
fn routed_by(cpu: &mut Cpu, logits: &[f32], vectors: [Option<&[f32]>; 2], router: &Router) -> Routes {
    let mut routes = cpu.routes(router, logits.len() / router.experts).unwrap();
    let [bias, scales] = vectors.map(|vector| vector.map(|vector| cpu.table(vector).unwrap()));
    let mut logits = cpu.filled(logits, router.experts);
    let vectors = RouterVectors { bias: bias.as_ref(), scales: scales.as_ref() };
    ops::route(cpu, &mut routes, &mut logits, vectors, router);
    routes
}

#[test]
fn route_agrees_with_its_specification() {
    for (name, router, has_bias) in ROUTERS {
        for tokens in [1, 2, 40] {
            let mut random = Random(7);
            let logits = experts::logits(&mut random, tokens, router.experts);
            let bias = has_bias.then(|| experts::bias(&mut random, router.experts));
            let scales = (tokens == 2).then(|| random.numbers(router.experts, 2.0));
            let (indices, weights) = reference::route(&logits, bias.as_deref(), scales.as_deref(), router);
            on_each_cpu(|cpu, what| {
                let routes = routed_by(cpu, &logits, [bias.as_deref(), scales.as_deref()], router);
                let (found, found_weights) = routes.choices();
                assert_eq!(found, indices, "{name}, {tokens} tokens, {what}");
                assert_near(found_weights, &weights, 1e-6, &format!("{name}, {tokens} tokens, {what}"));
            });
        }
    }
}

#[test]
fn of_equal_experts_the_first_ones_are_chosen_and_a_nan_comes_last() {
    for scores in [Scores::Softmax, Scores::Sigmoid] {
        for bias in [None, Some(&[0.0; 8][..])] {
            let router = Router { chosen: 5, scores, ..ROUTER };
            let logits = [1.0, 2.0, 1.0, 2.0, f32::NEG_INFINITY, 2.0, -0.0, 0.0];
            on_each_cpu(|cpu, what| {
                let routes = routed(cpu, &logits, bias, &router);
                assert_eq!(routes.choices().0, [1, 3, 5, 0, 2], "{scores:?}, {what}");
                let zeros = routed(cpu, &[0.0; 16], bias, &router);
                assert_eq!(zeros.choices().0, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], "{scores:?}, {what}");
            });
        }
        // A sigmoid of a NaN leaves the others as they are.
        let router = Router { chosen: 3, scores: Scores::Sigmoid, ..ROUTER };
        let mut logits = [f32::NAN; 8];
        (logits[3], logits[6]) = (-50.0, 2.0);
        on_each_cpu(|cpu, what| assert_eq!(routed(cpu, &logits, None, &router).choices().0, [6, 3, 0], "{what}"));
    }
}

/// A mixture of experts over some tokens.
pub fn mixed(cpu: &mut Cpu, case: &Case, inputs: &Inputs) -> Vec<f32> {
    let Case { hidden, width, chosen, .. } = *case;
    let tokens = inputs.x.len() / hidden;
    let routes = routed(cpu, &inputs.logits, None, &case.router());
    let [first, second] = match &inputs.biases {
        None => [None, None],
        Some(biases) => biases.each_ref().map(|bias| Some(cpu.table(bias).unwrap())),
    };
    let (gate_up, down) = (cpu.experts(0, &inputs.gate_up).unwrap(), cpu.experts(0, &inputs.down).unwrap());
    let x = cpu.filled(&inputs.x, hidden);
    let mut product = cpu.poisoned(tokens * chosen, 2 * width);
    let mut gated = cpu.poisoned(tokens * chosen, width);
    let layer = LayerInput::new(&x, &gate_up, first.as_ref());
    ops::gated_expert_linear(cpu, &mut gated, Some(&mut product), layer, case.activation, &routes);
    // The product by itself, and the activation after it.
    let layer = LayerInput::new(&x, &gate_up, first.as_ref());
    ops::expert_linear(cpu, &mut product, layer, ExpertRows::Tokens, &routes);
    let mut apart = cpu.poisoned(tokens * chosen, width);
    ops::activate_mul(cpu, &mut apart, &product, case.activation);
    assert!(cpu.read(&apart) == cpu.read(&gated), "one by one");
    let mut rows = cpu.poisoned(tokens * chosen, hidden);
    let layer = LayerInput::new(&gated, &down, second.as_ref());
    ops::expert_linear(cpu, &mut rows, layer, ExpertRows::Slots, &routes);
    let shared = inputs.shared.as_ref().map(|shared| cpu.filled(shared, hidden));
    let gates = inputs.gates.as_ref().map(|gates| cpu.filled(gates, 1));
    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
    let mut out = cpu.poisoned(tokens, hidden);
    ops::combine(cpu, &mut out, &rows, shared, &routes, 0..case.experts);
    cpu.read(&out)
}

/// The experts of `inputs` as a device has them whose host computes them.
fn weights<'a>(inputs: &'a Inputs, case: &Case, router: &'a Router) -> HostExpertWeights<'a> {
    let [first, second] = match &inputs.biases {
        None => [None, None],
        Some(biases) => biases.each_ref().map(|bias| Some(&bias[..])),
    };
    HostExpertWeights {
        router,
        gate_up: &inputs.gate_up,
        gate_up_bias: first,
        form: ExpertForm::Gated(case.activation),
        down: &inputs.down,
        down_bias: second,
    }
}

/// [`mixed`], with experts that the host computes for a device.
fn on_host(cpu: &mut Cpu, case: &Case, inputs: &Inputs) -> Vec<f32> {
    let (hidden, router) = (case.hidden, case.router());
    let routes = routed(cpu, &inputs.logits, None, &router);
    let experts = cpu.experts_on_host(weights(inputs, case, &router)).unwrap();
    let x = cpu.filled(&inputs.x, hidden);
    let shared = inputs.shared.as_ref().map(|shared| cpu.filled(shared, hidden));
    let gates = inputs.gates.as_ref().map(|gates| cpu.filled(gates, 1));
    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
    let mut out = cpu.poisoned(x.rows(), hidden);
    let limits = BatchLimits { tokens: x.rows(), rows: 1, model_len: x.rows(), block_size: 16, ..BatchLimits::NONE };
    let device_batch = cpu.device_batch(&limits).unwrap();
    ops::host_experts(cpu, &mut out, &x, &experts, shared, &routes, &device_batch);
    cpu.read(&out)
}

/// Also of more rows than the host computes at a time.
#[test]
fn experts_on_the_host_have_the_bits_of_those_on_the_cpu() {
    let many = Case { tokens: 1100, chosen: 3, ..CASES[3].1 };
    let gated = Case { shared: Shared::Gated, ..many };
    for (name, case) in CASES.iter().chain([&("many", many), &("many, a shared expert", gated)]) {
        let inputs = Inputs::new(case, bf16, plain(WeightFormat::Bf16));
        on_each_cpu(|cpu, what| {
            assert_same_bits(&on_host(cpu, case, &inputs), &mixed(cpu, case, &inputs), &format!("{name}, {what}"));
        });
    }
    for coding in codings() {
        let inputs =
            Inputs::new(&CODED, bf16, |random: &mut Random, rows, cols| random_matrix(random, coding, rows, cols));
        for isa in Isa::available() {
            let cpu = &mut Cpu::new(2, *isa);
            assert_same_bits(
                &on_host(cpu, &CODED, &inputs),
                &mixed(cpu, &CODED, &inputs),
                &format!("{coding:?}, {isa:?}"),
            );
        }
    }
}

/// Layers of several shapes, which share what they work in with those of their own.
#[test]
fn experts_on_the_host_of_several_layers_do_not_disturb_each_other() {
    let cases = [CASES[4].1, CASES[3].1, CASES[4].1];
    let inputs = cases.each_ref().map(|case| Inputs::new(case, bf16, plain(WeightFormat::Bf16)));
    let mut cpu = Cpu::new(2, Isa::detect().unwrap());
    for (case, inputs) in cases.iter().zip(&inputs).chain(cases.iter().zip(&inputs)) {
        let wanted = mixed(&mut Cpu::new(2, Isa::detect().unwrap()), case, inputs);
        assert_same_bits(&on_host(&mut cpu, case, inputs), &wanted, "several shapes");
    }
}

/// Numbers of bf16, so that no instruction set rounds them.
fn bf16(v: f32) -> f32 {
    half::bf16::from_f32(v).to_f32()
}

pub fn plain(coding: WeightFormat) -> impl FnMut(&mut Random, usize, usize) -> HostMatrix {
    move |random, rows, cols| matrix(&random.numbers(rows * cols, 0.3), coding, rows)
}

#[test]
fn mixtures_of_experts_agree_with_their_specification() {
    for (name, case) in CASES {
        for coding in [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::F16] {
            let inputs = Inputs::new(case, bf16, plain(coding));
            let expected = inputs.expected(case, |v| v);
            on_each_cpu(|cpu, what| {
                // An instruction set may round what the second products read.
                assert_near(&mixed(cpu, case, &inputs), &expected, 3e-3, &format!("{name}, {coding:?}, {what}"));
            });
        }
    }
}

/// The sizes of a case, as multiples of what all codings are made for.
const CODED: Case = Case { hidden: 768, width: 768, tokens: 9, experts: 4, ..CASES[1].1 };

#[test]
fn experts_have_weights_in_every_coding() {
    for coding in codings() {
        let of_coding = |random: &mut Random, rows, cols| random_matrix(random, coding, rows, cols);
        let inputs = Inputs::new(&CODED, bf16, of_coding);
        let plain = |experts: &[Vec<HostMatrix>]| -> Vec<Vec<HostMatrix>> {
            let number = |part: &HostMatrix| part.converted(WeightFormat::F32).unwrap();
            experts.iter().map(|parts| parts.iter().map(number).collect()).collect()
        };
        let numbers = Inputs { gate_up: plain(&inputs.gate_up), down: plain(&inputs.down), ..inputs_of(&inputs) };
        let expected = numbers.expected(&CODED, |v| v);
        for isa in Isa::available() {
            let found = mixed(&mut Cpu::new(2, *isa), &CODED, &inputs);
            // What is read is rounded to integers twice.
            assert_near(&found, &expected, 2e-2, &format!("{coding:?}, {isa:?}"));
        }
    }
}

/// The same inputs, without weights.
fn inputs_of(inputs: &Inputs) -> Inputs {
    Inputs {
        x: inputs.x.clone(),
        logits: inputs.logits.clone(),
        gate_up: Vec::new(),
        down: Vec::new(),
        biases: inputs.biases.clone(),
        shared: inputs.shared.clone(),
        gates: inputs.gates.clone(),
    }
}

/// The MLP of each token's only expert, by the ops of layers without experts, token by token.
fn one_by_one(cpu: &mut Cpu, case: &Case, inputs: &Inputs) -> Vec<f32> {
    let (experts, _) = reference::route(&inputs.logits, None, None, &case.router());
    let rows = inputs.x.chunks_exact(case.hidden).zip(experts).flat_map(|(x, expert)| {
        let expert = expert as usize;
        let [first, second] = match &inputs.biases {
            None => [None, None],
            Some(biases) => biases.each_ref().map(|bias| {
                let len = bias.len() / case.experts;
                Some(cpu.table(&bias[expert * len..][..len]).unwrap())
            }),
        };
        let (x, gate_up) = (cpu.filled(x, case.hidden), cpu.matrix(&inputs.gate_up[expert]).unwrap());
        let mut product = cpu.poisoned(1, 2 * case.width);
        let (mut gated, mut out) = (cpu.poisoned(1, case.width), cpu.poisoned(1, case.hidden));
        ops::gated_linear(
            cpu,
            &mut gated,
            &mut product,
            LayerInput::new(&x, &gate_up, first.as_ref()),
            case.activation,
        );
        let down = cpu.matrix(&inputs.down[expert]).unwrap();
        ops::linear(cpu, &mut out, LayerInput::new(&gated, &down, second.as_ref()), 0..case.hidden);
        cpu.read(&out)
    });
    rows.collect()
}

#[test]
fn a_row_has_the_bits_of_the_layers_of_its_expert_alone() {
    let all = [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::F16].into_iter().chain(codings());
    for coding in all {
        let cases: Vec<_> = match coding.is_plain() {
            true => CASES.to_vec(),
            false => vec![("few", CODED), ("many", Case { tokens: 90, ..CODED })],
        };
        for (name, case) in cases {
            // The weight of an only expert is 1.
            let case = Case { chosen: 1, shared: Shared::None, ..case };
            let inputs = match coding.is_plain() {
                true => Inputs::new(&case, |v| v, plain(coding)),
                false => Inputs::new(&case, |v| v, |random, rows, cols| random_matrix(random, coding, rows, cols)),
            };
            for isa in Isa::available() {
                let cpu = &mut Cpu::new(2, *isa);
                let (found, wanted) = (mixed(cpu, &case, &inputs), one_by_one(cpu, &case, &inputs));
                assert_same_bits(&found, &wanted, &format!("{name}, {coding:?}, {isa:?}"));
            }
        }
    }
}

#[test]
fn what_a_token_gets_does_not_depend_on_the_others() {
    for (name, case) in CASES {
        let inputs = Inputs::new(case, |v| v, plain(WeightFormat::Bf16));
        for isa in Isa::available() {
            let together = mixed(&mut Cpu::new(3, *isa), case, &inputs);
            for token in [0, case.tokens / 2, case.tokens - 1] {
                let part = |numbers: &[f32]| {
                    let each = numbers.len() / case.tokens;
                    numbers[token * each..][..each].to_vec()
                };
                let alone = Inputs {
                    x: part(&inputs.x),
                    logits: part(&inputs.logits),
                    shared: inputs.shared.as_deref().map(part),
                    gates: inputs.gates.as_deref().map(part),
                    gate_up: inputs.gate_up.clone(),
                    down: inputs.down.clone(),
                    biases: inputs.biases.clone(),
                };
                let found = mixed(&mut Cpu::new(1, *isa), case, &alone);
                assert_same_bits(&found, &part(&together), &format!("{name}, token {token}, {isa:?}"));
            }
        }
    }
}

#[test]
fn tokens_of_experts_are_counted_but_for_those_that_pad() {
    let mut random = Random(11);
    let tokens = 40;
    let logits = experts::logits(&mut random, tokens, ROUTER.experts);
    let (indices, _) = reference::route(&logits, None, None, &ROUTER);
    let slots = (0..tokens as u32).map(|token| if token == 7 { u32::MAX } else { token }).collect();
    let batch = Batch { token_ids: vec![0; tokens], slots, ..Batch::default() };
    let mut wanted = [0; ROUTER.experts];
    let own = indices.chunks(ROUTER.chosen).zip(&batch.slots).filter(|(_, slot)| **slot != u32::MAX);
    own.flat_map(|(experts, _)| experts).for_each(|&expert| wanted[expert as usize] += 1);
    on_each_cpu(|cpu, what| {
        let (routes, counts) = (routed(cpu, &logits, None, &ROUTER), cpu.expert_counts(ROUTER.experts).unwrap());
        let device_batch = uploaded(cpu, &batch);
        for pass in 1..3 {
            ops::count_experts(cpu, &counts, &routes, &device_batch);
            let found = cpu.read_expert_counts(&counts).unwrap();
            assert_eq!(found, wanted.iter().map(|count| pass * count).collect::<Vec<u64>>(), "{what}");
        }
    });
}
