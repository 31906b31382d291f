//! Repetitions of one sequence, compared with the proposal's own loops.

use super::*;
use formats::source::Source;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap()
});

fn params() -> SamplingParams {
    SamplingParams { dry_multiplier: 0.5, dry_base: 2.0, ..SamplingParams::default() }
}

fn with_length(dry_allowed_length: u32) -> SamplingParams {
    SamplingParams { dry_allowed_length, dry_sequence_breakers: Some(Vec::new()), ..params() }
}

/// The penalties of the next token, in ascending order of the tokens.
fn penalties(history: &History) -> BTreeMap<TokenId, f32> {
    let mut sampling = Sampling::GREEDY;
    let mut entries = Vec::new();
    history.write(&mut sampling, &mut entries);
    assert_eq!(sampling.adjusted(), 0..entries.len());
    assert!(entries.iter().all(|entry| entry.uses == LogitBias::UNUSED));
    entries.iter().map(|entry| (entry.token, -entry.bias)).collect()
}

/// The same as the proposal has it: matches of the last token are extended backwards one by one.
fn reference(params: &SamplingParams, tokens: &[TokenId]) -> BTreeMap<TokenId, f32> {
    let window = params.dry_penalty_last_n.map_or(usize::MAX, |tokens| tokens as usize);
    let tokens = &tokens[tokens.len() - tokens.len().min(window)..];
    let (last, before) = tokens.split_last().expect("a token");
    let mut lengths = BTreeMap::new();
    for at in (0..before.len()).filter(|&at| before[at] == *last) {
        let mut length = 1;
        while length <= at && tokens[at - length] == tokens[tokens.len() - 1 - length] {
            length += 1;
        }
        let longest = lengths.entry(tokens[at + 1]).or_insert(0);
        *longest = length.max(*longest);
    }
    lengths.retain(|_, length| *length >= params.dry_allowed_length as usize);
    let penalty =
        |length| params.dry_multiplier * params.dry_base.powi(length as i32 - params.dry_allowed_length as i32);
    lengths.into_iter().map(|(token, length)| (token, penalty(length))).collect()
}

proptest! {
    #[test]
    fn penalties_are_those_of_the_proposal(
        tokens in proptest::collection::vec(0u32..3, 1..40),
        of_prompt in 1usize..40,
        allowed in 1u32..4,
        window in proptest::option::of(1u32..20),
    ) {
        let params = SamplingParams { dry_penalty_last_n: window, ..with_length(allowed) };
        let prompt = of_prompt.min(tokens.len());
        let mut history = History::new(&params, &tokens[..prompt], None).unwrap();
        prop_assert_eq!(penalties(&history), reference(&params, &tokens[..prompt]));
        for end in prompt..tokens.len() {
            history.push(tokens[end], None);
            prop_assert_eq!(penalties(&history), reference(&params, &tokens[..=end]));
        }
    }

    #[test]
    fn a_prompt_and_a_completion_of_the_same_tokens_are_one_history(
        tokens in proptest::collection::vec(0u32..300, 2..60),
        of_prompt in 1usize..60,
    ) {
        let tokenizer = Some(&*TOKENIZER);
        let prompt = of_prompt.min(tokens.len());
        let mut history = History::new(&params(), &tokens[..prompt], tokenizer).unwrap();
        tokens[prompt..].iter().for_each(|token| history.push(*token, tokenizer));
        let whole = History::new(&params(), &tokens, tokenizer).unwrap();
        prop_assert_eq!((history.tokens, history.runs, history.matched), (whole.tokens, whole.runs, whole.matched));
    }
}

#[test]
fn no_repetition_extends_across_a_sequence_breaker() {
    let tokens_of = |text: &str| -> Vec<TokenId> {
        // A token per character, so that the boundaries are known.
        let alone = |wanted: char| {
            let mut all = 0..TOKENIZER.vocab_size() as TokenId;
            all.find(|&token| TOKENIZER.token_bytes(token) == Some(wanted.to_string().as_bytes())).expect("a token")
        };
        text.chars().map(alone).collect()
    };
    let breakers = |breakers: &[&str]| Some(breakers.iter().map(|&text| text.to_owned()).collect());
    // The text, its breakers, and the tokens that are penalized after it with the length of what they extend.
    type Row = (&'static str, Option<Vec<String>>, &'static [(&'static str, u32)]);
    let cases: [Row; 7] = [
        ("abcabc", breakers(&[]), &[("a", 3)]),
        ("abcabc", breakers(&["b"]), &[]),
        ("abcdeabcde", breakers(&["b"]), &[("a", 3)]),
        ("abcdeabcde", breakers(&["bc"]), &[("a", 2)]),
        ("abcdeabcd", breakers(&["e"]), &[]),
        ("ab:cdab:cd", None, &[("a", 2)]),
        ("abcdeabcde", breakers(&["zz", "ea"]), &[("a", 4)]),
    ];
    for (text, breakers, expected) in cases {
        let params = SamplingParams { dry_sequence_breakers: breakers, ..params() };
        let history = History::new(&params, &tokens_of(text), Some(&TOKENIZER)).unwrap();
        let expected = expected.iter().map(|&(token, run)| (tokens_of(token)[0], 0.5 * 2f32.powi(run as i32 - 2)));
        assert_eq!(penalties(&history), expected.collect(), "{text}, {params:?}");
    }
}

#[test]
fn penalties_join_what_else_is_known_of_a_token() {
    // After 1 2 there came 3, 4, 5 and 6.
    let prompt = [1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2, 6, 1, 2];
    let history = History::new(&with_length(2), &prompt, None).unwrap();
    let known = |token, uses, bias| LogitBias { token, uses, bias };
    let mut entries =
        vec![known(6, 1, 1.0), known(3, 7, 2.0), LogitBias::ban(4), known(5, 0, f32::MIN), known(9, 1, 0.0)];
    let mut sampling = Sampling { adjusted_start: 1, adjusted_end: 5, ..Sampling::GREEDY };
    history.write(&mut sampling, &mut entries);
    let dry = -0.5;
    let expected = [
        known(6, 1, 1.0),
        known(3, 7, 2.0 + dry),
        LogitBias::ban(4),
        known(5, 0, f32::MIN),
        known(6, LogitBias::UNUSED, dry),
        known(9, 1, 0.0),
    ];
    assert_eq!((sampling.adjusted(), &entries[..]), (1..6, &expected[..]), "and the sample before is left alone");
}

#[test]
fn a_penalty_is_finite_however_long_a_repetition_is() {
    let params = SamplingParams { dry_multiplier: f32::MAX, dry_base: f32::MAX, ..with_length(1) };
    let history = History::new(&params, &[7; 5000], None).unwrap();
    assert_eq!(penalties(&history), BTreeMap::from([(7, f32::MAX)]));
}

#[test]
fn a_long_prompt_of_one_token_costs_little() {
    let history = History::new(&with_length(2), &[7; 1 << 20], None).unwrap();
    assert_eq!(history.runs[..2], [(1 << 20) - 1, (1 << 20) - 2]);
}

#[test]
fn tokens_allocate_nothing_where_memory_was_reserved() {
    for window in [None, Some(1), Some(4)] {
        let params = SamplingParams { dry_penalty_last_n: window, ..with_length(2) };
        let mut history = History::new(&params, &[1, 2, 3], None).unwrap();
        history.reserve(100);
        let before = (history.tokens.as_ptr(), history.runs.as_ptr());
        (0..100).for_each(|token| history.push(token % 7, None));
        assert_eq!((history.tokens.as_ptr(), history.runs.as_ptr()), before);
    }
}
