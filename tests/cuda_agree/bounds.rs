//! What `assert_near` accepts and refuses. Needs no GPU.

use crate::scene::{DTYPES, Dot, Near, Random, assert_near, bound, numbers, rounded};
use formats::DType;
use std::panic::{AssertUnwindSafe, catch_unwind};

const TOKENS: usize = 150;
const COLUMNS: usize = 1000;
const K: usize = 256;

/// A product of 150,000 numbers as a correct kernel computes it: sums in f32, in parts as the lanes of a warp have them, rounded once.
fn product(dtype: DType) -> (Vec<f32>, Vec<Dot>) {
    let mut random = Random(21);
    let x = numbers(&mut random, TOKENS * K, 1.0, dtype);
    let w = numbers(&mut random, COLUMNS * K, 0.1, dtype);
    let rows = || x.chunks_exact(K).flat_map(|x| w.chunks_exact(K).map(move |w| (x, w)));
    let computed = rows().map(|(x, w)| {
        let mut lanes = [0.0f32; 8];
        for (i, (a, b)) in x.iter().zip(w).enumerate() {
            lanes[i % 8] = a.mul_add(*b, lanes[i % 8]);
        }
        rounded(lanes.iter().sum(), dtype)
    });
    (computed.collect(), rows().map(|(x, w)| Dot::of(x, w)).collect())
}

fn is_refused(computed: &[f32], expected: &[Near], dtype: DType) -> bool {
    catch_unwind(AssertUnwindSafe(|| assert_near(computed, expected, bound(dtype), "spoiled"))).is_err()
}

/// The place of a number of the size that most have.
fn typical(expected: &[Near], from: usize) -> usize {
    let mean = (expected.iter().map(|near| near.value.powi(2)).sum::<f64>() / expected.len() as f64).sqrt();
    let is_typical = |near: &Near| (0.8 * mean..1.25 * mean).contains(&near.value.abs());
    from + expected[from..].iter().position(is_typical).unwrap()
}

#[test]
fn a_product_that_is_rounded_correctly_is_near_and_a_single_wrong_number_is_not() {
    for dtype in DTYPES {
        let (computed, dots) = product(dtype);
        let expected: Vec<Near> = dots.iter().map(|dot| dot.near(dtype)).collect();
        let of_rounded: Vec<Near> = dots.iter().map(|dot| dot.near_rounded(dtype)).collect();
        assert_near(&computed, &expected, bound(dtype), &format!("{dtype:?}"));
        assert_near(&computed, &of_rounded, bound(dtype), &format!("{dtype:?}, more room"));

        let mut five = computed.clone();
        for part in 0..5 {
            five[typical(&expected, part * computed.len() / 5)] = 0.0;
        }
        let at = typical(&expected, computed.len() / 2);
        let mut one = computed.clone();
        one[at] = rounded(one[at] * (1.0 + 1.0 / 16.0), dtype);
        let mut zero = computed.clone();
        zero[at] = 0.0;
        let mut none = computed.clone();
        none[at] = f32::NAN;
        for (what, spoiled) in [("five zeros", five), ("2^-4 off", one), ("a zero", zero), ("NaN", none)] {
            assert!(is_refused(&spoiled, &expected, dtype), "{what}, {dtype:?}");
            assert!(is_refused(&spoiled, &of_rounded, dtype), "{what}, {dtype:?}, more room");
        }
    }
}

/// Each number within its own bound, and all of them off in one direction: the norm refuses it.
#[test]
fn an_error_of_every_number_is_not_near() {
    let (computed, dots) = product(DType::Bf16);
    let expected: Vec<Near> = dots.iter().map(|dot| dot.near_rounded(DType::Bf16)).collect();
    let off: Vec<f32> = computed.iter().zip(&expected).map(|(v, near)| v + 0.5 * near.within as f32).collect();
    assert!(is_refused(&off, &expected, DType::Bf16));
}

/// The failure names the number that is furthest from its bound, and how far.
#[test]
fn a_failure_names_the_worst_place() {
    let expected = [1.0, 2.0, 3.0].map(|value| Near::stored(value, 0.0, DType::Bf16));
    let failure = catch_unwind(|| assert_near(&[1.0, 2.5, 3.1], &expected, 6e-3, "sums")).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert!(message.starts_with("sums: number 1 of 3 is 2.5e0 instead of 2e0 within 7.81e-3, 64.00 of"), "{message}");
}
