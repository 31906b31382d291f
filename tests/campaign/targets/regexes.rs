//! Regular expressions.

use crate::random::Rng;

pub const WORDS: &[&str] = &[
    "(",
    ")",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{0,1000}",
    "{1000}",
    "{,5}",
    "[^",
    "[a-z]",
    "\\w",
    "\\d",
    "\\s",
    "\\p{L}",
    "\\P{Lu}",
    "\\p{Greek}",
    "(?i)",
    "(?s:.)",
    "(?:",
    "^",
    "$",
    "\\b",
    "\\B",
    "(?=a)",
    "(?<n>",
    "\\1",
    ".",
    "\\x{10FFFF}",
    "\\u0000",
    "&&",
    "[[:alpha:]]",
    "~",
    "é",
    "中",
    "\\",
    "(?P<a>b)",
    "[\\s\\S]",
    ".*",
    "(?-u:\\xff)",
];

/// A regular expression.
pub fn make(rng: &mut Rng) -> String {
    let mut text = String::new();
    alternatives(rng, 3, &mut text);
    text
}

fn alternatives(rng: &mut Rng, depth: usize, text: &mut String) {
    for i in 0..rng.between(1, 3) {
        if i > 0 {
            text.push('|');
        }
        for _ in 0..rng.between(1, 4) {
            atom(rng, depth, text);
            match rng.below(12) {
                0 => text.push('*'),
                1 => text.push('+'),
                2 => text.push('?'),
                3 => {
                    let first = rng.length(40);
                    let last = first + rng.length(400);
                    text.push_str(&format!("{{{first},{last}}}"));
                }
                4 => text.push_str(&format!("{{{}}}", rng.length(400))),
                _ => {}
            }
        }
    }
}

fn atom(rng: &mut Rng, depth: usize, text: &mut String) {
    match rng.below(if depth == 0 { 7 } else { 10 }) {
        0..3 => text.push((b'a' + rng.below(4) as u8) as char),
        3 => text.push_str(
            rng.one_of(&["\\w", "\\d", "\\s", "\\W", ".", "é", "中", "\\p{L}", "\\p{N}", "\\n", "\\.", "😀"]),
        ),
        4 => {
            text.push_str(rng.one_of(&["[", "[^"]));
            text.push_str(rng.one_of(&["a-z", "0-9a-f", "\\w-", "à-ÿ", "\\x00-\\x1f", "\\p{Lu}", "一-龥"]));
            text.push(']');
        }
        5 => {
            let byte = (b' ' + rng.below(95) as u8) as char;
            if !byte.is_ascii_alphanumeric() {
                text.push('\\');
            }
            text.push(byte);
        }
        6 => text.push_str(rng.one_of(WORDS)),
        _ => {
            text.push_str(rng.one_of(&["(", "(?:", "(?i:", "("]));
            alternatives(rng, depth - 1, text);
            text.push(')');
        }
    }
}

/// Expressions that are large, or that cost more than they look.
pub fn hostile() -> Vec<(&'static str, String)> {
    let groups = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    vec![
        ("a thousand a thousand times", "(a{1000}){1000}".to_owned()),
        ("nested repeats", "((((a{9}){9}){9}){9}){9}".to_owned()),
        ("200 groups", groups(200)),
        ("5,000 groups", groups(5000)),
        ("100,000 groups", groups(100_000)),
        (
            "50,000 alternatives",
            (0..50_000).map(|i| format!("{i}")).collect::<Vec<_>>().join("|")[..250_000].to_owned(),
        ),
        ("5,000 alternatives with their loops", (0..5000).map(|i| format!("(x{i})*")).collect::<Vec<_>>().join("|")),
        ("200 KB of letters", "ab".repeat(100_000)),
        ("300 KB of letters", "ab".repeat(150_000)),
        ("a hundred thousand characters", ".{1,100000}".to_owned()),
        ("twenty characters after a mark", "(a|b)*a(a|b){20}".to_owned()),
        ("twelve marks", "(.*a.{12}b.{12})+".to_owned()),
        ("letters of all scripts", "\\p{L}{1000}".to_owned()),
        ("words of all scripts", "(\\w+\\s+){500}\\w+".to_owned()),
        ("loops of loops", "((((a*)*)*)*)*b".to_owned()),
        ("10,000 optional letters", "a?".repeat(10_000)),
        ("20,000 stars", "a*".repeat(20_000)),
        ("one question mark after another", format!("a{}", "?".repeat(50_000))),
        ("classes without end", format!("[{}]", "a-z".repeat(50_000))),
    ]
}
