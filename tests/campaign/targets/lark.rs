//! Lark grammars.

use super::regexes;
use crate::random::Rng;

pub const WORDS: &[&str] = &[
    "start: ",
    "\n",
    "\nTERM: ",
    "\nrule: ",
    "/[a-z]+/",
    "\"a\"",
    "\"a\"i",
    " | ",
    "*",
    "+",
    "?",
    "~3",
    "~2..5",
    "{3,7}",
    "(",
    ")",
    "[",
    "]",
    "%ignore ",
    "%import common.INT\n",
    "%json {\"type\":\"integer\"}",
    "%regex {\"substring_chunks\":[\"a\"]}",
    "%declare X\n",
    "%lark {\nstart: \"x\"\n}",
    "[temperature=0.5]",
    "[capture]",
    "[lazy]",
    "[stop=\"x\"]",
    "[max_tokens=3]",
    "[suffix=\"\"]",
    "<|im_end|>",
    "<[5]>",
    "<[1-99]>",
    "%llguidance {\"no_forcing\": true}\n",
    "&",
    "~",
    "\"\"",
    "!",
    "->",
    "->x",
];

/// A grammar of a few rules and terminals.
pub fn make(rng: &mut Rng) -> String {
    let mut text = String::new();
    if rng.one_in(8) {
        text.push_str("%llguidance {}\n");
    }
    let rules = rng.between(1, 5);
    let terminals = rng.between(1, 3);
    for rule in 0..rules {
        let name = if rule == 0 { "start".to_owned() } else { format!("r{rule}") };
        let options =
            if rng.one_in(8) { *rng.pick(&["[capture]", "[max_tokens=3]", "[stop=\"x\"]", "[lazy]"]) } else { "" };
        text.push_str(&format!("{name}{options}: "));
        body(rng, 2, &mut text, rules, terminals, false);
        text.push('\n');
    }
    for terminal in 0..terminals {
        text.push_str(&format!("T{terminal}: "));
        body(rng, 2, &mut text, 0, terminal, true);
        text.push('\n');
    }
    if rng.one_in(5) {
        text.push_str("%ignore /[ \\n]+/\n");
    }
    text
}

fn body(rng: &mut Rng, depth: usize, text: &mut String, rules: usize, terminals: usize, is_terminal: bool) {
    for i in 0..rng.between(1, 3) {
        if i > 0 {
            text.push_str(" | ");
        }
        for _ in 0..rng.between(1, 3) {
            match rng.below(if depth == 0 { 6 } else { 8 }) {
                0 if rules > 0 => {
                    let rule = rng.below(rules);
                    text.push_str(&if rule == 0 { "start".to_owned() } else { format!("r{rule}") });
                }
                1 | 2 if terminals > 0 => text.push_str(&format!("T{}", rng.below(terminals))),
                3 => {
                    let regex = regexes::make(rng).replace('/', "\\/").replace('\n', "");
                    text.push_str(&format!("/{regex}/"));
                }
                4 if !is_terminal => text.push_str(rng.one_of(WORDS)),
                6 | 7 => {
                    text.push('(');
                    body(rng, depth - 1, text, rules, terminals, is_terminal);
                    text.push(')');
                }
                _ => text.push_str(rng.one_of(&["\"a\"", "\"ab\"", "\" \"", "\"1\"", "\"\\n\"", "\"é\"", "\"<\""])),
            }
            match rng.below(10) {
                0 => text.push('*'),
                1 => text.push('+'),
                2 => text.push('?'),
                3 => text.push_str(&format!("{{{},{}}}", rng.length(4), 4 + rng.length(300))),
                _ => {}
            }
            text.push(' ');
        }
    }
}

/// Grammars that are large, or that cost more than they look.
pub fn hostile() -> Vec<(&'static str, String)> {
    let chain = |name: char, n: usize, end: &str| {
        let links: String = (0..n).map(|i| format!("{name}{i}: {name}{}\n", i + 1)).collect();
        format!("start: {name}0\n{links}{name}{n}: {end}\n")
    };
    let doubling = |name: char, n: usize| {
        let links: String = (0..n).map(|i| format!("{name}{i}: {name}{} {name}{}\n", i + 1, i + 1)).collect();
        format!("start: {name}0\n{links}{name}{n}: \"a\"\n")
    };
    let nested = |n: usize| format!("start: {}\"a\"{}\n", "(".repeat(n), ")".repeat(n));
    let lines = |n: usize, line: fn(usize) -> String| -> String { (0..n).map(line).collect() };
    vec![
        ("a chain of 500 rules", chain('r', 500, "\"a\"")),
        ("a chain of 2,800 rules", chain('r', 2800, "\"a\"")),
        ("a chain of 10,000 rules", chain('r', 10_000, "\"a\"")),
        ("a chain of 500 terminals", chain('T', 500, "/a/")),
        ("a chain of 10,000 terminals", chain('T', 10_000, "/a/")),
        ("rules that double 60 times", doubling('r', 60)),
        ("terminals that double 60 times", doubling('T', 60)),
        ("200 brackets", nested(200)),
        ("10,000 brackets", nested(10_000)),
        ("100,000 brackets", nested(100_000)),
        ("a million times", "start: \"a\"{1000000}\n".to_owned()),
        ("a thousand times a thousand times", "start: r{1000}\nr: (\"a\" | \"b\"){1000}\n".to_owned()),
        ("an empty rule for ever", "start: start start | r*\nr: \"\" | r r | start?\n".to_owned()),
        ("ambiguity", "start: s\ns: s s s | s s | \"a\" | \"aa\" | \"aaa\"\n".to_owned()),
        ("rules that name each other", "start: a\na: b | \"x\"\nb: c | a\nc: a b | b c\n".to_owned()),
        ("terminals that name each other", "start: A\nA: B\nB: A\n".to_owned()),
        ("3,000 rules", format!("start: r0\n{}", lines(3000, |i| format!("r{i}: \"{i}\" r{}?\n", (i * 7 + 1) % 3000)))),
        ("3,000 terminals", {
            let all: Vec<String> = (0..3000).map(|i| format!("T{i}")).collect();
            format!("start: ({})*\n{}", all.join(" | "), lines(3000, |i| format!("T{i}: /[a-z]*{i}/\n")))
        }),
        ("JSON in JSON", format!("start: %json {}1{}\n", "{\"a\":".repeat(3000), "}".repeat(3000))),
        ("Lark in Lark", format!("{}start: \"a\"\n{}", "start: %lark {\n".repeat(200), "}\n".repeat(200))),
        ("a schema that costs", "start: %json {\"type\":\"integer\",\"multipleOf\":1000003}\n".to_owned()),
        ("substrings", format!("start: %regex {{\"substring_words\": \"{}\"}}\n", "ab cd ".repeat(10_000))),
        ("300 KB of comments", "// nothing\n".repeat(30_000)),
    ]
}
