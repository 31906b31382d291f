//! Patterns beside those of a crate that matches by backtracking, and what they may cost.

use super::*;

fn matches(pattern: &str, name: &str) -> bool {
    let mut patterns = Patterns::default();
    let id = patterns.add(pattern).unwrap();
    Matcher::new(&patterns).matches(id, name).unwrap()
}

/// Patterns as published configs have them, and each part of the syntax.
const PATTERNS: &[&str] = &[
    r".*lm_head",
    r".*self_attn.*",
    r".*mlp\.(gate|up)_proj$",
    r"model\.layers\.\d+\.(self_attn|mlp)\..*",
    r"model\.layers\.([0-9]|1[0-9])\.mlp\.down_proj",
    r"^(?!.*lm_head).*proj",
    r"(?!.*(visual|lm_head)).*",
    r".*(?<=up_)proj",
    r".*(?<!up_)proj$",
    r".*(?<=layers\.\d\.)mlp",
    r"(?=.*attn)(?=.*q_proj).+",
    r"(?:(?=.*x).)*x",
    r"(?i)MODEL\.Layers.*Q_PROJ",
    r"[^.]+\.[a-z_]+\.\w{1,2}\.",
    r"[\w.]*?proj\b",
    r"model\B",
    r"\Bmodel",
    r"model.layers.3\Z",
    r"(?>model|mode)l",
    r"(?>mode|model)l",
    r"(?:a*)*b",
    r"(a|b|ab)*c",
    r"(){1000}m",
    r"m{0}model|x",
    r"(?m)^model$",
    r"(?s)model.*",
    r"é+.\.",
    r"(?i)É",
    r"[^\x00-\x7f]+",
    r"(?:.*\.)?layers\.(?:1|3)\..*_proj",
    r"",
];

const NAMES: &[&str] = &[
    "",
    "model",
    "lm_head",
    "model.layers.3",
    "model.layers.3.mlp.up_proj",
    "model.layers.13.mlp.down_proj",
    "model.layers.1.mlp.gate_proj",
    "model.layers.1.self_attn.q_proj",
    "language_model.model.layers.1.self_attn.q_proj",
    "visual.blocks.0.attn.qkv",
    "aaaaaaaaab",
    "ababcx",
    "abcxx",
    "ééx.y",
    "model\nlayers",
    "model.layers.3\n",
];

#[test]
fn names_match_as_a_crate_says_that_matches_by_backtracking() {
    for pattern in PATTERNS {
        let other = fancy_regex::Regex::new(&format!("^(?:{pattern})")).unwrap();
        // `(?m)` of the pattern is not that of the anchor, and matches from the beginning alone count.
        for name in NAMES {
            let wanted = other.find(name).unwrap().is_some_and(|found| found.start() == 0);
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name:?}");
        }
    }
}

#[test]
fn what_has_no_bound_is_not_read() {
    for (pattern, words) in [
        (r"(a)\1", "a reference back to a group"),
        (r"(?<=a|bc)d", "a look-behind of no fixed length"),
        (r"(a)(?(1)b|c)", "a condition"),
        (r"(?:a{1000}){1000}", "more than 65536 parts"),
        (r"(((){1000}){1000}){1000}", "more than 65536 parts"),
        (r"a{4000000000}", "more than 65536 parts"),
    ] {
        let error = Patterns::default().add(pattern).unwrap_err();
        assert!(error.contains("has a pattern that is not read") && error.contains(words), "{error}");
    }
}

#[test]
fn equal_patterns_and_classes_count_once() {
    let mut patterns = Patterns::default();
    let id = patterns.add(r"\w{20}a").unwrap();
    let units = patterns.units;
    assert_eq!(patterns.add(r"\w{20}a").unwrap(), id);
    assert_eq!(patterns.units, units);
    patterns.add(r"\w{20}b").unwrap();
    assert!(patterns.units - units < 60, "{} and {units}", patterns.units);
}

#[test]
fn the_steps_of_all_matches_are_bounded() {
    let mut patterns = Patterns::default();
    let id = patterns.add(r"(?:(?:(?=(.*)*y).)*)*x").unwrap();
    let mut matcher = Matcher::new(&patterns);
    let name = format!("{}x", "a".repeat(2000));
    assert_eq!((0..100_000).find_map(|_| matcher.matches(id, &name).err()), Some(Exhausted));
    let mut matcher = Matcher::new(&patterns);
    assert_eq!(matcher.matches(id, &"x".repeat(1 << 20)), Err(Exhausted), "a name that needs too much room");
}

#[test]
fn common_patterns_take_few_steps() {
    let mut patterns = Patterns::default();
    let ids: Vec<usize> = PATTERNS[..5].iter().map(|pattern| patterns.add(pattern).unwrap()).collect();
    let mut matcher = Matcher::new(&patterns);
    for id in ids {
        matcher.matches(id, "model.layers.13.mlp.down_proj").unwrap();
    }
    let steps = limits::QUANTIZATION_STEPS - matcher.steps_left;
    assert!(steps < 300, "{steps}");
}
