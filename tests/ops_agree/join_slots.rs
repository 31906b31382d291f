//! `join_slots`, and mixtures whose experts are divided among ranks.

use crate::column::{Column, assert_near};
use crate::experts::{mixed, plain, routed};
use crate::inputs::Random;
use crate::inputs::experts::{CASES, Case, Inputs};
use crate::linear::assert_same_bits;
use crate::ranks::in_every_way;
use compute::cpu::{Cpu, Routes, reference};
use compute::{Device, ExpertRows, LayerInput, SharedExpert, ops};
use formats::WeightFormat;
use std::ops::Range;

/// `items` in consecutive ranges, the last of which is the longest.
fn shares(items: usize, ranks: usize) -> Vec<Range<usize>> {
    let end = |rank: usize| if rank == ranks { items } else { rank * (items / ranks) };
    (0..ranks).map(|rank| end(rank)..end(rank + 1)).collect()
}

#[test]
fn every_rank_gets_its_columns_of_the_rows_of_all_experts() {
    for (name, case) in CASES {
        let cols = 19;
        let ranks = case.experts.min(3);
        let (columns, experts) = (shares(cols, ranks), shares(case.experts, ranks));
        let mut random = Random(5);
        let logits = case.logits(&mut random);
        let slots = case.tokens * case.chosen;
        let x: Vec<Vec<f32>> = (0..ranks).map(|_| random.numbers(slots * cols, 1.0)).collect();
        let joined = |cpu: &mut Cpu, rank: usize| {
            let routes = routed(cpu, &logits, None, &case.router());
            let (x, mut out) = (cpu.filled(&x[rank], cols), cpu.poisoned(slots, columns[rank].len()));
            ops::join_slots(cpu, &mut out, &x, &columns, &experts, &routes);
            // Rows lie in the order of experts.
            let mut choices = routes.choices().0.to_vec();
            choices.sort();
            (cpu.read(&out), choices)
        };
        in_every_way(ranks, joined, |found, way| {
            for ((found, choices), own) in found.iter().zip(&columns) {
                let wanted = reference::join_slots(&x, cols, own, &experts, choices);
                assert_same_bits(found, &wanted, &format!("{name}, {way}"));
            }
        });
    }
}

/// What a rank with some of the experts makes of all tokens: the columns that it gets of the sum of all experts, and the sum of its own.
fn divided(cpu: &mut Cpu, case: &Case, inputs: &Inputs, rank: usize, ranks: usize) -> [Vec<f32>; 2] {
    let Case { tokens, hidden, width, chosen, .. } = *case;
    let (columns, experts) = (shares(hidden, ranks), shares(case.experts, ranks));
    let (own, first) = (experts[rank].clone(), experts[rank].start);
    let routes: Routes = routed(cpu, &inputs.logits, None, &case.router());
    let biases = inputs.biases.as_ref().map(|[first, second]| {
        [(first, 2 * width), (second, hidden)].map(|(bias, len)| &bias[own.start * len..own.end * len])
    });
    let [first_bias, second_bias] = match biases {
        None => [None, None],
        Some(biases) => biases.map(|bias| Some(cpu.table(bias).unwrap())),
    };
    let gate_up = cpu.experts(first, &inputs.gate_up[own.clone()]).unwrap();
    let down = cpu.experts(first, &inputs.down[own.clone()]).unwrap();
    let x = cpu.filled(&inputs.x, hidden);
    let mut product = cpu.poisoned(tokens * chosen, 2 * width);
    let mut gated = cpu.poisoned(tokens * chosen, width);
    let layer = LayerInput::new(&x, &gate_up, first_bias.as_ref());
    ops::gated_expert_linear(cpu, &mut gated, Some(&mut product), layer, case.activation, &routes);
    let mut rows = cpu.poisoned(tokens * chosen, hidden);
    let layer = LayerInput::new(&gated, &down, second_bias.as_ref());
    ops::expert_linear(cpu, &mut rows, layer, ExpertRows::Slots, &routes);

    let mut own_sum = cpu.poisoned(tokens, hidden);
    ops::combine(cpu, &mut own_sum, &rows, None, &routes, own);
    let cols = columns[rank].clone();
    let mut joined = cpu.poisoned(tokens * chosen, cols.len());
    ops::join_slots(cpu, &mut joined, &rows, &columns, &experts, &routes);
    let shared: Option<Vec<f32>> =
        inputs.shared.as_ref().map(|shared| shared.chunks(hidden).flat_map(|row| row[cols.clone()].to_vec()).collect());
    let shared = shared.map(|shared| cpu.filled(&shared, cols.len()));
    let gates = inputs.gates.as_ref().map(|gates| cpu.filled(gates, 1));
    let shared = shared.as_ref().map(|x| SharedExpert { x, gate: gates.as_ref() });
    let mut sum = cpu.poisoned(tokens, cols.len());
    ops::combine(cpu, &mut sum, &joined, shared, &routes, 0..case.experts);
    [cpu.read(&sum), cpu.read(&own_sum)]
}

/// Also of cases in which some rank has none of the slots.
#[test]
fn ranks_with_whole_experts_have_the_bits_of_one_that_has_all() {
    for (name, case) in CASES {
        let inputs = Inputs::new(case, |v| v, plain(WeightFormat::Bf16));
        let Case { tokens, hidden, experts, .. } = *case;
        for ranks in [2, 3].into_iter().filter(|&ranks| ranks <= experts) {
            let columns = shares(hidden, ranks);
            let compute =
                |cpu: &mut Cpu, rank: usize| (divided(cpu, case, &inputs, rank, ranks), mixed(cpu, case, &inputs));
            in_every_way(ranks, compute, |found, way| {
                let what = format!("{name}, {ranks} ranks, {way}");
                let whole = &found[0].1;
                for (([joined, _], _), own) in found.iter().zip(&columns) {
                    let wanted: Vec<f32> = whole.chunks(hidden).flat_map(|row| row[own.clone()].to_vec()).collect();
                    assert_same_bits(joined, &wanted, &what);
                }
                if inputs.shared.is_none() {
                    let sum_of = |at: usize| found.iter().map(|([_, own], _)| own[at]).sum::<f32>();
                    let sum: Vec<f32> = (0..tokens * hidden).map(sum_of).collect();
                    assert_near(&sum, whole, 1e-5, &what);
                }
            });
        }
    }
}
