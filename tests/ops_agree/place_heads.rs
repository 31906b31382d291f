//! `place_heads`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;
use compute::{HeadColumns, HeadPart};

/// One part: the columns of `x`, those of `out`, and numbers of a head.
type Part = (Option<HeadColumns>, HeadColumns, usize);

struct Case {
    tokens: usize,
    heads: usize,
    /// Columns of `x` and of `out`.
    cols: [usize; 2],
    parts: &'static [Part],
}

const fn columns(first: usize, step: usize) -> HeadColumns {
    HeadColumns { first, step }
}

struct PlaceHeads;

impl Op for PlaceHeads {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one head", Case { tokens: 1, heads: 1, cols: [8, 8], parts: &[(Some(columns(0, 8)), columns(0, 8), 8)] }),
        (
            "the end of each head, then its beginning, then zeros",
            Case {
                tokens: 3,
                heads: 2,
                cols: [64, 96],
                parts: &[
                    (Some(columns(24, 32)), columns(0, 48), 8),
                    (Some(columns(0, 32)), columns(8, 48), 24),
                    (None, columns(32, 48), 16),
                ],
            },
        ),
        (
            "one head for all, and a part without numbers",
            Case {
                tokens: 2,
                heads: 3,
                cols: [16, 72],
                parts: &[
                    (Some(columns(8, 0)), columns(0, 24), 8),
                    (None, columns(8, 24), 16),
                    (None, columns(24, 24), 0),
                ],
            },
        ),
        (
            "keys of GLM-4.7-Flash",
            Case {
                tokens: 40,
                heads: 20,
                cols: [20 * 448, 20 * 256],
                parts: &[(Some(columns(0, 448)), columns(64, 256), 192), (None, columns(0, 256), 64)],
            },
        ),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Case) -> Vec<f32> {
        let x = inputs(case);
        let mut out = vec![UNTOUCHED; case.tokens * case.cols[1]];
        for &(from, to, width) in case.parts {
            let from = from.map(|from| (&*x, case.cols[0], from));
            reference::place_heads((&mut out, case.cols[1]), from, to, [case.heads, width]);
        }
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let x = backend.filled(&inputs(case), case.cols[0]);
        let mut out = backend.filled(&vec![UNTOUCHED; case.tokens * case.cols[1]], case.cols[1]);
        let part = |&(from, to, width): &Part| HeadPart { from: from.map(|from| (&x, from)), to, width };
        let parts: Vec<_> = case.parts.iter().map(part).collect();
        ops::place_heads(backend, &mut out, case.heads, &parts);
        backend.read(&out)
    }
}

/// What no part names stays.
const UNTOUCHED: f32 = 7.0;

fn inputs(case: &Case) -> Vec<f32> {
    Random(3).numbers(case.tokens * case.cols[0], 4.0)
}

#[test]
fn place_heads_agrees_with_its_specification() {
    agrees::<PlaceHeads>();
}

#[test]
#[should_panic(expected = "is_within")]
fn a_head_beyond_the_columns_is_refused() {
    let cpu = &mut Cpu::new(1, Isa::available()[0]);
    let (x, mut out) = (cpu.poisoned(1, 16), cpu.poisoned(1, 16));
    let part = HeadPart { from: Some((&x, columns(0, 8))), to: columns(8, 8), width: 8 };
    ops::place_heads(cpu, &mut out, 2, &[part]);
}
