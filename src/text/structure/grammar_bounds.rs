//! What a Lark grammar may ask of the compiler, checked before it begins.
//!
//! The text is cut into the few marks that matter here. Where that goes wrong, the compiler refuses the text anyway.

use super::{regex_bounds, schema_bounds};
use base::limits;
use serde_json::Value;
use std::collections::HashMap;

/// A rule or terminal.
#[derive(Default)]
struct Rule<'a> {
    /// Names in its body.
    names: Vec<&'a str>,
    /// Times that `&` stands in its body.
    conjunctions: u64,
}

/// Refuses a grammar that takes more work than the limits allow, in words that go on from "the grammar".
pub(super) fn check(text: &str) -> Result<(), String> {
    let rules = rules(text)?;
    let (mut known, mut written_out) = (HashMap::new(), HashMap::new());
    for name in rules.keys() {
        let limit = limits::GRAMMAR_EXPANDED;
        if is_terminal(name) && expanded(name, &rules, &mut written_out) > limit {
            return Err(format!(
                "{name} refers to more than {limit} terms once its terminals are expanded, which is the limit"
            ));
        }
        let terms = 1 + conjunctions(name, &rules, &mut known);
        if terms > limits::GRAMMAR_TERMS_TOGETHER {
            let limit = limits::GRAMMAR_TERMS_TOGETHER;
            return Err(format!("{name} joins more than {limit} terms by &, but the limit is {limit}"));
        }
    }
    Ok(())
}

/// Conjunctions of a rule and of all that it names, at most a few more than the limit.
fn conjunctions<'a>(name: &'a str, rules: &HashMap<&'a str, Rule<'a>>, known: &mut HashMap<&'a str, u64>) -> u64 {
    if let Some(&known) = known.get(name) {
        return known;
    }
    let Some(rule) = rules.get(name) else { return 0 };
    // A name that is reached again while it is looked at adds nothing.
    known.insert(name, 0);
    let below = rule.names.iter().fold(0u64, |sum, name| sum.saturating_add(conjunctions(name, rules, known)));
    let sum = rule.conjunctions.saturating_add(below);
    // Only terminals are joined; rules are followed one by one.
    let joined = if is_terminal(name) { sum } else { 0 };
    known.insert(name, joined);
    joined
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(char::is_uppercase)
}

/// Names in a terminal when each is replaced by what it stands for, as the compiler does.
fn expanded<'a>(name: &'a str, rules: &HashMap<&'a str, Rule<'a>>, known: &mut HashMap<&'a str, u64>) -> u64 {
    if let Some(&known) = known.get(name) {
        return known;
    }
    let Some(rule) = rules.get(name) else { return 1 };
    // One that names itself is refused by the compiler.
    known.insert(name, 1);
    let sum = rule.names.iter().fold(1u64, |sum, name| sum.saturating_add(expanded(name, rules, known)));
    known.insert(name, sum);
    sum
}

/// The rules by their names; checks the JSON schemas inside.
fn rules(text: &str) -> Result<HashMap<&str, Rule<'_>>, String> {
    let mut rules: HashMap<&str, Rule> = HashMap::new();
    let mut parts = 0;
    let mut current = "";
    let mut last_name = "";
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => quoted(rest, '"'),
            '/' if rest.starts_with("//") => line(rest),
            '/' => {
                let length = quoted(rest, '/');
                let inner = rest[1..length].trim_end_matches('/');
                parts += regex_bounds::parts(inner)?;
                length
            }
            '#' => line(rest),
            '%' if rest.starts_with("%json") => schema(rest)?,
            '&' => {
                rules.entry(current).or_default().conjunctions += 1;
                1
            }
            ':' if !last_name.is_empty() => {
                // What was taken for a name in the body of the rule before begins the next one.
                rules.entry(current).or_default().names.pop();
                current = last_name;
                last_name = "";
                rules.entry(current).or_default();
                if rules.len() > limits::GRAMMAR_RULES + 1 {
                    let limit = limits::GRAMMAR_RULES;
                    return Err(format!("it has more than {limit} rules and terminals, but the limit is {limit}"));
                }
                1
            }
            letter if letter.is_alphabetic() || letter == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).unwrap_or(rest.len());
                last_name = &rest[..end];
                rules.entry(current).or_default().names.push(last_name);
                end
            }
            other => other.len_utf8(),
        };
        rest = &rest[length..];
    }
    if parts > 4 * limits::REGEX_PARTS {
        let limit = 4 * limits::REGEX_PARTS;
        return Err(format!("its expressions have {parts} parts, but the limit is {limit}"));
    }
    Ok(rules)
}

/// Bytes of a quoted text, its marks included.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return index,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Bytes of a schema with its keyword.
fn schema(text: &str) -> Result<usize, String> {
    let keyword = "%json".len();
    let mut values = serde_json::Deserializer::from_str(&text[keyword..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => {
            schema_bounds::check(&value)?;
            Ok(keyword + values.byte_offset())
        }
        _ => Ok(keyword),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn rules_are_counted_and_what_only_looks_like_one_is_not() {
        let mut text = "start: \"a: b\" /c: d/ // e: f\n".to_owned();
        for i in 0..limits::GRAMMAR_RULES - 1 {
            writeln!(text, "r{i}: \"x\" | %json {{\"properties\": {{\"a\": {{}}, \"b\": {{}}}}}}").unwrap();
        }
        assert_eq!(check(&text), Ok(()));
        text += "one_more: \"y\"\n";
        assert!(check(&text).expect_err("too many").contains("more than 4096 rules"));
    }

    #[test]
    fn conjunctions_add_up_through_the_terminals_that_are_named() {
        let many = |count: usize| format!("start: A\nA: {}\n", vec!["/a/"; count].join(" & "));
        assert_eq!(check(&many(12)), Ok(()));
        assert!(check(&many(13)).expect_err("too many").contains("by &"));
        let spread: String = (0..40).map(|i| format!("T{i}: /a/ & /b/ & T{}\n", i + 1)).collect();
        assert!(check(&format!("start: T0\n{spread}")).expect_err("too many").contains("by &"));
        let apart: String = (0..40).map(|i| format!("T{i}: /a/ & /b/\n")).collect();
        let start: Vec<String> = (0..40).map(|i| format!("T{i}")).collect();
        assert_eq!(check(&format!("start: {}\n{apart}", start.join(" "))), Ok(()));
        assert_eq!(check("start: A\nA: B & /x/\nB: A\n"), Ok(()));
    }

    #[test]
    fn schemas_inside_are_checked() {
        let patterns: Vec<String> = (0..39).map(|i| format!("{{\"pattern\": \"x{i}\"}}")).collect();
        let text = format!("start: \"<\" %json {{\"allOf\": [{}]}} \">\"\n", patterns.join(","));
        assert!(check(&text).expect_err("too many").contains("patterns and formats"));
    }
}
