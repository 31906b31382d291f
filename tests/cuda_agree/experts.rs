//! `route`, `gated_expert_linear`, `expert_linear` and `combine`.

use crate::inputs::codings;
use crate::inputs::experts::{self, CASES, Case, Inputs, ROUTER, ROUTERS, Shared};
use crate::scene::{
    Near, Random, Scene, assert_near, bound, filled, host_matrix, launched, numbers, on_device, poisoned, rounded,
    staged, unit,
};
use compute::cpu::{self, Activations, Choices, Cpu, Isa, reference};
use compute::cuda::{Cuda, HostThreads, Routes, Tensor};
use compute::{
    Device, ExpertForm, ExpertRows, HostExpertWeights, HostMatrix, LayerInput, Rounding, Router, RouterVectors, Scores,
    SharedExpert, ops,
};
use formats::{DType, WeightFormat};

/// What `router` chooses.
fn routed(cuda: &mut Cuda, logits: &[f32], bias: Option<&[f32]>, router: &Router) -> Routes {
    routed_by(cuda, logits, [bias, None], router)
}

/// The same with the factors of weights.
fn routed_by(cuda: &mut Cuda, logits: &[f32], vectors: [Option<&[f32]>; 2], router: &Router) -> Routes {
    let mut routes = cuda.routes(router, logits.len() / router.experts).unwrap();
    let [bias, scales] = vectors.map(|vector| vector.map(|vector| cuda.table(vector).unwrap()));
    let mut logits = filled(cuda, logits, router.experts);
    let vectors = RouterVectors { bias: bias.as_ref(), scales: scales.as_ref() };
    ops::route(cuda, &mut routes, &mut logits, vectors, router);
    routes
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn routes_agree() {
    on_device(|cuda, dtype| {
        for (name, router, has_bias) in ROUTERS {
            for tokens in [1, 2, 40] {
                let what = format!("{name}, {tokens} tokens, {dtype:?}");
                let mut random = Random(7);
                let logits = experts::logits(&mut random, tokens, router.experts);
                let logits: Vec<f32> = logits.into_iter().map(|v| rounded(v, dtype)).collect();
                let bias = has_bias.then(|| experts::bias(&mut random, router.experts));
                let scales = (tokens == 2).then(|| random.numbers(router.experts, 2.0));
                let (indices, weights) = reference::route(&logits, bias.as_deref(), scales.as_deref(), router);
                let routes = routed_by(cuda, &logits, [bias.as_deref(), scales.as_deref()], router);
                let (found, found_weights) = cuda.read_routes(&routes).unwrap();
                assert_eq!(found, indices, "{what}");
                // Sums of up to 512 powers, and a few operations.
                let near = |&v: &f32| Near::stored(f64::from(v), 2e-5 * f64::from(v.abs()), DType::F32);
                let expected: Vec<Near> = weights.iter().map(near).collect();
                assert_near(&found_weights, &expected, 1e-5, &what);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn of_equal_experts_the_first_ones_are_chosen_and_a_nan_comes_last() {
    on_device(|cuda, dtype| {
        for scores in [Scores::Softmax, Scores::Sigmoid] {
            for bias in [None, Some(&[0.0; 8][..])] {
                let router = Router { chosen: 5, scores, ..ROUTER };
                let logits = [1.0, 2.0, 1.0, 2.0, f32::NEG_INFINITY, 2.0, -0.0, 0.0];
                let routes = routed(cuda, &logits, bias, &router);
                assert_eq!(cuda.read_routes(&routes).unwrap().0, [1, 3, 5, 0, 2], "{scores:?}, {dtype:?}");
            }
        }
        let router = Router { chosen: 3, scores: Scores::Sigmoid, ..ROUTER };
        let mut logits = [f32::NAN; 8];
        (logits[3], logits[6]) = (-50.0, 2.0);
        let routes = routed(cuda, &logits, None, &router);
        assert_eq!(cuda.read_routes(&routes).unwrap().0, [6, 3, 0], "{dtype:?}");
    });
}

fn inputs(case: &Case, dtype: DType) -> Inputs {
    let matrix =
        |random: &mut Random, rows, cols| host_matrix(&numbers(random, rows * cols, 0.3, dtype), [rows, cols], dtype);
    let inputs = Inputs::new(case, |v| rounded(v, dtype), matrix);
    let logits = inputs.logits.iter().map(|&v| rounded(v, dtype)).collect();
    Inputs { logits, ..inputs }
}

/// A mixture of experts over some tokens.
fn mixed(cuda: &mut Cuda, case: &Case, inputs: &Inputs) -> Vec<f32> {
    let Case { hidden, width, chosen, .. } = *case;
    let tokens = inputs.x.len() / hidden;
    let routes = routed(cuda, &inputs.logits, None, &case.router());
    let [first, second] = match &inputs.biases {
        None => [None, None],
        Some(biases) => biases.each_ref().map(|bias| Some(cuda.table(bias).unwrap())),
    };
    let (gate_up, down) = (cuda.experts(0, &inputs.gate_up).unwrap(), cuda.experts(0, &inputs.down).unwrap());
    let x = filled(cuda, &inputs.x, hidden);
    let mut product = poisoned(cuda, tokens * chosen, 2 * width);
    let mut gated = poisoned(cuda, tokens * chosen, width);
    let layer = LayerInput::new(&x, &gate_up, first.as_ref());
    ops::gated_expert_linear(cuda, &mut gated, None, layer, case.activation, &routes);
    // The product by itself, and the activation after it.
    let layer = LayerInput::new(&x, &gate_up, first.as_ref());
    ops::expert_linear(cuda, &mut product, layer, ExpertRows::Tokens, &routes);
    let mut apart = poisoned(cuda, tokens * chosen, width);
    ops::activate_mul(cuda, &mut apart, &product, case.activation);
    assert!(cuda.read(&apart).unwrap() == cuda.read(&gated).unwrap(), "one by one");
    let mut rows = poisoned(cuda, tokens * chosen, hidden);
    let layer = LayerInput::new(&gated, &down, second.as_ref());
    ops::expert_linear(cuda, &mut rows, layer, ExpertRows::Slots, &routes);
    let shared = inputs.shared.as_ref().map(|shared| filled(cuda, shared, hidden));
    let gates = inputs.gates.as_ref().map(|gates| filled(cuda, gates, 1));
    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
    let mut out = poisoned(cuda, tokens, hidden);
    ops::combine(cuda, &mut out, &rows, shared, &routes, 0..case.experts);
    cuda.read(&out).unwrap()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn mixtures_of_experts_agree() {
    on_device(|cuda, dtype| {
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            cuda.set_rounding(rounding);
            for (name, case) in CASES {
                let inputs = inputs(case, dtype);
                let expected = inputs.expected(case, |v| rounded(v, dtype));
                let greatest = expected.iter().fold(0.0, |greatest: f64, &v| greatest.max(f64::from(v).abs()));
                // Sums that fall on the other side of a rounding, twice on the way.
                let near = |&v: &f32| Near::stored(f64::from(v), 4.0 * unit(dtype) * greatest, dtype);
                let expected: Vec<Near> = expected.iter().map(near).collect();
                let what = format!("{name}, {rounding:?}, {dtype:?}");
                assert_near(&mixed(cuda, case, &inputs), &expected, bound(dtype), &what);
            }
        }
    });
}

/// The same with the first experts apart from the others, as two ranks have them: all rows together, and the sum over the experts of each.
fn mixed_in_parts(cuda: &mut Cuda, case: &Case, inputs: &Inputs) -> [Vec<f32>; 3] {
    let Case { hidden, width, chosen, experts, .. } = *case;
    let tokens = inputs.x.len() / hidden;
    let routes = routed(cuda, &inputs.logits, None, &case.router());
    let x = filled(cuda, &inputs.x, hidden);
    let mut rows = poisoned(cuda, tokens * chosen, hidden);
    let mut sum = poisoned(cuda, tokens, hidden);
    let sums = [0..experts / 2, experts / 2..experts].map(|own| {
        let [first, second] = match &inputs.biases {
            None => [None, None],
            Some([first, second]) => [(first, 2 * width), (second, hidden)]
                .map(|(bias, len)| Some(cuda.table(&bias[own.start * len..own.end * len]).unwrap())),
        };
        let held = |all: &[Vec<HostMatrix>]| cuda.experts(own.start, &all[own.clone()]).unwrap();
        let (gate_up, down) = (held(&inputs.gate_up), held(&inputs.down));
        let mut gated = poisoned(cuda, tokens * chosen, width);
        let layer = LayerInput::new(&x, &gate_up, first.as_ref());
        ops::gated_expert_linear(cuda, &mut gated, None, layer, case.activation, &routes);
        let layer = LayerInput::new(&gated, &down, second.as_ref());
        ops::expert_linear(cuda, &mut rows, layer, ExpertRows::Slots, &routes);
        ops::combine(cuda, &mut sum, &rows, None, &routes, own);
        cuda.read(&sum).unwrap()
    });
    let shared = inputs.shared.as_ref().map(|shared| filled(cuda, shared, hidden));
    let gates = inputs.gates.as_ref().map(|gates| filled(cuda, gates, 1));
    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
    ops::combine(cuda, &mut sum, &rows, shared, &routes, 0..experts);
    let [first, second] = sums;
    [cuda.read(&sum).unwrap(), first, second]
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn experts_in_two_parts_have_the_bits_of_all() {
    on_device(|cuda, dtype| {
        let halves = |case: &Case| case.experts > 1;
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            cuda.set_rounding(rounding);
            for (name, case) in CASES.iter().filter(|(_, case)| halves(case)) {
                let inputs = inputs(case, dtype);
                let wanted = mixed(cuda, case, &inputs);
                let [together, first, second] = mixed_in_parts(cuda, case, &inputs);
                let what = format!("{name}, {rounding:?}, {dtype:?}");
                assert!(together == wanted, "{what}");
                if inputs.shared.is_none() {
                    let greatest = wanted.iter().fold(0.0_f32, |greatest, v| greatest.max(v.abs()));
                    let parts = first.iter().zip(&second).zip(&wanted);
                    let apart = parts.fold(0.0_f32, |apart, ((a, b), v)| apart.max((a + b - v).abs()));
                    assert!(apart <= 4.0 * unit(dtype) as f32 * greatest, "{what}: {apart} of {greatest}");
                }
            }
        }
        cuda.set_rounding(Rounding::Fastest);
        for coding in codings::all() {
            for (tokens, has_bias) in [(3, true), (40, false), (300, false)] {
                let case = Case { tokens, has_bias, ..CODED };
                let [coded, _] = coded_inputs(&case, coding, dtype);
                if cuda.experts(0, &coded.gate_up).is_ok() {
                    let wanted = mixed(cuda, &case, &coded);
                    let [together, ..] = mixed_in_parts(cuda, &case, &coded);
                    assert!(together == wanted, "{coding:?}, {tokens} tokens, {dtype:?}");
                }
            }
        }
    });
}

/// Those of one token.
fn of_token(inputs: &Inputs, tokens: usize, token: usize) -> Inputs {
    let part = |numbers: &[f32]| {
        let each = numbers.len() / tokens;
        numbers[token * each..][..each].to_vec()
    };
    Inputs {
        x: part(&inputs.x),
        logits: part(&inputs.logits),
        shared: inputs.shared.as_deref().map(part),
        gates: inputs.gates.as_deref().map(part),
        gate_up: inputs.gate_up.clone(),
        down: inputs.down.clone(),
        biases: inputs.biases.clone(),
    }
}

/// Of up to eight tokens by default, of any with batch-invariant rounding.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn what_a_token_gets_does_not_depend_on_the_others() {
    on_device(|cuda, dtype| {
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            cuda.set_rounding(rounding);
            let few = |case: &Case| rounding == Rounding::BatchInvariant || case.tokens <= 8;
            for (name, case) in CASES.iter().filter(|(_, case)| few(case)) {
                let inputs = inputs(case, dtype);
                let together = mixed(cuda, case, &inputs);
                for token in [0, case.tokens / 2, case.tokens - 1] {
                    let found = mixed(cuda, case, &of_token(&inputs, case.tokens, token));
                    let wanted = &together[token * case.hidden..][..case.hidden];
                    assert!(found == wanted, "{name}, token {token}, {rounding:?}, {dtype:?}");
                }
            }
        }
    });
}

/// Sizes that every coding divides.
const CODED: Case = Case { hidden: 512, width: 256, experts: 4, ..CASES[1].1 };

/// Experts in codes, and in the numbers that these are on the device.
fn coded_inputs(case: &Case, coding: WeightFormat, dtype: DType) -> [Inputs; 2] {
    [false, true].map(|decoded| {
        let matrix = |random: &mut Random, rows, cols| {
            let coded = codings::matrix(random, coding, [rows, cols]);
            if decoded { coded.converted(dtype.into()).unwrap() } else { coded }
        };
        let inputs = Inputs::new(case, |v| rounded(v, dtype), matrix);
        let logits = inputs.logits.iter().map(|&v| rounded(v, dtype)).collect();
        Inputs { logits, ..inputs }
    })
}

/// For few tokens, and for tiles of 16, 64 and 128 slots.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn experts_in_codes_agree() {
    on_device(|cuda, dtype| {
        let mut in_codes = 0;
        for coding in codings::all() {
            for (tokens, has_bias) in [(1, false), (3, true), (20, false), (40, true), (300, false)] {
                let case = Case { tokens, has_bias, ..CODED };
                let [coded, numbers] = coded_inputs(&case, coding, dtype);
                let expected = numbers.expected(&case, |v| rounded(v, dtype));
                let greatest = expected.iter().fold(0.0, |greatest: f64, &v| greatest.max(f64::from(v).abs()));
                let near = |&v: &f32| Near::stored(f64::from(v), 4.0 * unit(dtype) * greatest, dtype);
                let expected: Vec<Near> = expected.iter().map(near).collect();
                let mut found = Vec::new();
                let names = launched(cuda, |cuda| found = mixed(cuda, &case, &coded));
                // The weights of few tokens are not rounded, as those of the reference are, and the scales of others are rounded besides.
                let relative = if tokens <= 8 { 1.5 * bound(dtype) } else { 2.0 * bound(dtype) };
                assert_near(&found, &expected, relative, &format!("{coding}, {tokens} tokens, {dtype:?}"));
                in_codes += names.iter().filter(|name| name.contains("expert_linear_quantized")).count();
            }
        }
        assert!(in_codes > 100, "{in_codes} products were computed from codes");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn what_a_token_gets_from_experts_in_codes_does_not_depend_on_the_others() {
    on_device(|cuda, dtype| {
        for (rounding, all) in [(Rounding::Fastest, 8), (Rounding::BatchInvariant, 300)] {
            cuda.set_rounding(rounding);
            for coding in codings::all() {
                let case = Case { tokens: all, has_bias: true, ..CODED };
                let [inputs, _] = coded_inputs(&case, coding, dtype);
                let together = mixed(cuda, &case, &inputs);
                for token in [0, all / 2, all - 1] {
                    let found = mixed(cuda, &case, &of_token(&inputs, all, token));
                    let wanted = &together[token * case.hidden..][..case.hidden];
                    assert!(found == wanted, "{coding}, token {token}, {rounding:?}, {dtype:?}");
                }
            }
        }
    });
}

/// Tiles of every size, for what a small model and one of Qwen3-30B-A3B's sizes ask for.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn the_number_of_slots_says_which_kernel_computes() {
    on_device(|cuda, dtype| {
        for (tokens, wanted) in [
            (8, "expert_linear_few"),
            (9, "expert_linear_t16_c64"),
            (60, "expert_linear_t16_c64"),
            (120, "expert_linear_t64_c64"),
            (700, "expert_linear_t128_c128"),
        ] {
            let case = Case { tokens, shared: Shared::None, has_bias: false, ..CASES[1].1 };
            let inputs = inputs(&case, dtype);
            let names = launched(cuda, |cuda| drop(mixed(cuda, &case, &inputs)));
            // Gates in the product, the product by itself, and the way back.
            assert_eq!(names.iter().filter(|name| name.starts_with(wanted)).count(), 3, "{tokens} tokens: {names:?}");
            let sorts = names.iter().filter(|name| *name == "sort_routes").count();
            assert_eq!(sorts, usize::from(tokens > 8), "{tokens} tokens: {names:?}");
        }
    });
}

/// Tokens of the largest batch of experts on the host.
const HOST_TOKENS: usize = 1100;

fn host_weights<'a>(inputs: &'a Inputs, case: &Case, router: &'a Router) -> HostExpertWeights<'a> {
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

/// What the CPU makes of the first `tokens` tokens by itself.
fn by_the_cpu(cuda: &Cuda, case: &Case, inputs: &Inputs, tokens: usize, routes: &Routes, dtype: DType) -> Vec<f32> {
    let (hidden, router) = (case.hidden, case.router());
    let (experts, weights) = cuda.read_routes(routes).unwrap();
    let slots = tokens * case.chosen;
    let mut cpu = Cpu::new(1, Isa::detect().unwrap());
    let made = cpu::HostExperts::new(&cpu, host_weights(inputs, case, &router)).unwrap();
    let mut out = vec![f32::NAN; tokens * hidden];
    cpu.compute_host_experts(
        &made,
        tokens,
        Choices { experts: &experts[..slots], weights: &weights[..slots] },
        &mut |rows, to| to.copy_from_slice(&inputs.x[rows.start * hidden..rows.end * hidden]),
        &mut |rows, sums| out[rows.start * hidden..rows.end * hidden].copy_from_slice(sums),
    );
    out.into_iter().map(|v| rounded(v, dtype)).collect()
}

/// Launched one by one and as a graph, over other rows than those it was recorded with, and over a batch that is padded.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn experts_on_the_host_have_the_bits_of_the_cpu() {
    let many = Case { tokens: HOST_TOKENS, ..CASES[3].1 };
    let mut all: Vec<(&str, Case)> = CASES.iter().filter(|(_, case)| case.hidden == 64).copied().collect();
    all.push(("more rows than are computed at a time", many));
    on_device(|cuda, dtype| {
        let (threads, isa) = (3, Isa::detect().unwrap());
        cuda.set_host_threads(HostThreads { threads, isa, activations: Activations::Rounded, tokens: HOST_TOKENS });
        for (name, case) in &all {
            let what = format!("{name}, {dtype:?}");
            let (inputs, router, hidden) = (inputs(case, dtype), case.router(), case.hidden);
            let experts = cuda.experts_on_host(host_weights(&inputs, case, &router)).unwrap();
            let mut routes = routed(cuda, &inputs.logits, None, &router);
            let mut logits = filled(cuda, &inputs.logits, router.experts);
            let mut x = filled(cuda, &vec![0.0; case.tokens * hidden], hidden);
            let shared = inputs.shared.as_ref().map(|shared| filled(cuda, shared, hidden));
            let gates = inputs.gates.as_ref().map(|gates| filled(cuda, gates, 1));
            let mut out = poisoned(cuda, case.tokens, hidden);
            let own = case.tokens.div_ceil(2);
            for tokens in [case.tokens, own] {
                let device_batch = staged(cuda, &Scene::new(&[(0, tokens)], 16, &mut Random(3)).batch);
                let launch = |cuda: &mut Cuda, [out, logits]: [&mut Tensor; 2], x: &Tensor, routes: &mut Routes| {
                    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
                    ops::route(cuda, routes, logits, RouterVectors::from(None), &router);
                    ops::host_experts(cuda, out, x, &experts, shared, routes, &device_batch);
                };
                let graph = cuda.capture(|cuda| launch(cuda, [&mut out, &mut logits], &x, &mut routes)).unwrap();
                cuda.write(&mut x, &inputs.x).unwrap();
                for replay in 0..3 {
                    match replay {
                        0 => launch(cuda, [&mut out, &mut logits], &x, &mut routes),
                        _ => graph.launch().unwrap(),
                    }
                    let found = cuda.read(&out).unwrap();
                    let sums = by_the_cpu(cuda, case, &inputs, tokens, &routes, dtype);
                    let (found, ones) = (&found[..tokens * hidden], vec![1.0; tokens]);
                    match &inputs.shared {
                        None => assert!(found == sums, "{what}, {tokens} tokens, launch {replay}"),
                        Some(shared) => {
                            let mut wanted = vec![f32::NAN; tokens * hidden];
                            let gates = inputs.gates.as_ref().map(|gates| &gates[..tokens]);
                            let shared = Some((&shared[..tokens * hidden], gates));
                            reference::combine(&mut wanted, hidden, &sums, &ones, shared);
                            let near = |&v: &f32| Near::stored(f64::from(v), 1e-5 * f64::from(v.abs()), dtype);
                            let wanted: Vec<Near> = wanted.iter().map(near).collect();
                            assert_near(found, &wanted, bound(dtype), &format!("{what}, launch {replay}"));
                        }
                    }
                    // What is not there any more shows.
                    cuda.write(&mut out, &vec![f32::NAN; case.tokens * hidden]).unwrap();
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn tokens_of_experts_are_counted_but_for_those_that_pad() {
    on_device(|cuda, dtype| {
        for tokens in [1, 8, 300] {
            let mut random = Random(11);
            let logits = experts::logits(&mut random, tokens, ROUTER.experts);
            let logits: Vec<f32> = logits.into_iter().map(|v| rounded(v, dtype)).collect();
            let (indices, _) = reference::route(&logits, None, None, &ROUTER);
            let mut scene = Scene::new(&[(0, tokens)], 16, &mut random);
            if tokens > 7 {
                scene.batch.slots[7] = u32::MAX;
            }
            let mut wanted = [0; ROUTER.experts];
            let own = indices.chunks(ROUTER.chosen).zip(&scene.batch.slots).filter(|(_, slot)| **slot != u32::MAX);
            own.flat_map(|(experts, _)| experts).for_each(|&expert| wanted[expert as usize] += 1);
            let (routes, counts) = (routed(cuda, &logits, None, &ROUTER), cuda.expert_counts(ROUTER.experts).unwrap());
            let device_batch = staged(cuda, &scene.batch);
            for pass in 1..3 {
                ops::count_experts(cuda, &counts, &routes, &device_batch);
                let found = cuda.read_expert_counts(&counts).unwrap();
                let wanted: Vec<u64> = wanted.iter().map(|count| pass * count).collect();
                assert_eq!(found, wanted, "{tokens} tokens, {dtype:?}");
            }
        }
    });
}

/// Passes that run while an engine opens.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn an_idle_host_computes_nothing() {
    on_device(|cuda, dtype| {
        let (_, case) = CASES[3];
        let (threads, isa) = (2, Isa::detect().unwrap());
        cuda.set_host_threads(HostThreads { threads, isa, activations: Activations::Rounded, tokens: 8 });
        let (inputs, router) = (inputs(&case, dtype), case.router());
        let experts = cuda.experts_on_host(host_weights(&inputs, &case, &router)).unwrap();
        let routes = routed(cuda, &inputs.logits, None, &router);
        let x = filled(cuda, &inputs.x, case.hidden);
        let mut out = poisoned(cuda, case.tokens, case.hidden);
        let device_batch = staged(cuda, &Scene::new(&[(0, case.tokens)], 16, &mut Random(3)).batch);
        cuda.set_host_idle(true);
        ops::host_experts(cuda, &mut out, &x, &experts, None, &routes, &device_batch);
        // The pinned memory that it reads has not been written.
        assert!(cuda.read(&out).unwrap().iter().all(|&v| v == 0.0), "{dtype:?}");
        cuda.set_host_idle(false);
        ops::host_experts(cuda, &mut out, &x, &experts, None, &routes, &device_batch);
        let wanted = by_the_cpu(cuda, &case, &inputs, case.tokens, &routes, dtype);
        assert!(cuda.read(&out).unwrap() == wanted, "{dtype:?}");
    });
}
