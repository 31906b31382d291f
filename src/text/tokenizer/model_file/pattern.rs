//! Regular expressions of tokenizer.json: what they may be, and whether a search with them takes linear time.
//!
//! A pattern is searched for again and again until a text ends. That is quadratic where a search looks far ahead and then
//! takes little, as `a*b|a` does in a text of `a`. The patterns of published models are linear, and [`Speed`] says so of those
//! that this file can prove. Others are for short texts, unless they look around or refer back: the crate searches for these
//! by backtracking, a million steps for each match, and they are refused.
//!
//! The proof: each alternative is a few single characters, then runs of a class of characters. When an alternative fails
//! after a run, an alternative that takes the whole run stands beside it. At its end, an alternative may have a run of pieces, such
//! as words with spaces between them: behind its first piece it cannot fail, and it looks a few characters ahead.

use base::contain::contain;
use base::limits::PATTERN_BYTES;
use fancy_regex::{Assertion, Expr, LookAround};

/// How the time of splitting a text grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// With its length.
    Linear,
    /// Perhaps with its square.
    Unknown,
}

/// What is known of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Bytes of the shortest match.
    pub shortest: usize,
    pub speed: Speed,
}

/// A repetition of at most this many is no run.
const FEW: usize = 8;
/// Repetitions of a counted expression: `x{1000}` is a thousand copies of `x`.
const COPIES_MAX: usize = 256;

/// Looks at a pattern, or says why it is refused.
pub fn read(pattern: &str) -> Result<Pattern, String> {
    let shown: String = pattern.chars().take(60).collect();
    if pattern.len() > PATTERN_BYTES {
        return Err(format!(
            "pattern {shown:?}… has {} bytes, but at most {PATTERN_BYTES} are accepted",
            pattern.len()
        ));
    }
    let parsed = contain(|| Expr::parse_tree(pattern).map_err(|error| error.to_string()));
    let tree = parsed.and_then(|tree| tree).map_err(|error| format!("pattern {shown:?}: {error}"))?;
    let copies = copies(&tree.expr);
    if copies > COPIES_MAX {
        return Err(format!("pattern {shown:?} repeats a part {copies} times, but at most {COPIES_MAX} are accepted"));
    }
    let speed = speed(&tree.expr);
    if speed == Speed::Unknown && !is_regular(&tree.expr) {
        return Err(format!("pattern {shown:?} looks around or refers back in a way whose time has no known bound"));
    }
    Ok(Pattern { shortest: shortest(&tree.expr), speed })
}

/// Whether an automaton can search for it.
fn is_regular(expr: &Expr) -> bool {
    match expr {
        Expr::Empty | Expr::Any { .. } | Expr::Literal { .. } | Expr::Delegate { .. } => true,
        Expr::Assertion(end) => {
            matches!(
                end,
                Assertion::StartText | Assertion::EndText | Assertion::StartLine { .. } | Assertion::EndLine { .. }
            )
        }
        Expr::Concat(parts) | Expr::Alt(parts) => parts.iter().all(is_regular),
        Expr::Group(child) => is_regular(child),
        Expr::Repeat { child, .. } => is_regular(child),
        _ => false,
    }
}

/// How many copies of a part the counted repetitions make.
fn copies(expr: &Expr) -> usize {
    match expr {
        Expr::Concat(parts) | Expr::Alt(parts) => parts.iter().map(copies).max().unwrap_or(1),
        Expr::Group(child) | Expr::AtomicGroup(child) | Expr::LookAround(child, _) => copies(child),
        Expr::Repeat { child, lo, hi, .. } => {
            let times = if *hi == usize::MAX { *lo } else { *hi };
            copies(child).saturating_mul(times.max(1))
        }
        Expr::Conditional { condition, true_branch, false_branch } => {
            copies(condition).max(copies(true_branch)).max(copies(false_branch))
        }
        // A class is text that the regex crate reads, and may hold a counted repetition of its own.
        _ => 1,
    }
}

/// Bytes of the shortest match, or less.
fn shortest(expr: &Expr) -> usize {
    match expr {
        Expr::Any { .. } => 1,
        Expr::Literal { val, casei: false } => val.len(),
        // Another case may have fewer bytes.
        Expr::Literal { val, casei: true } => val.chars().count(),
        Expr::Delegate { size, .. } => *size,
        Expr::Concat(parts) => parts.iter().map(shortest).sum(),
        Expr::Alt(parts) => parts.iter().map(shortest).min().unwrap_or(0),
        Expr::Group(child) | Expr::AtomicGroup(child) => shortest(child),
        Expr::Repeat { child, lo, .. } => shortest(child).saturating_mul(*lo),
        _ => 0,
    }
}

fn speed(expr: &Expr) -> Speed {
    let one = std::slice::from_ref(expr);
    let alternatives = match expr {
        Expr::Alt(alternatives) => alternatives.as_slice(),
        _ => one,
    };
    let runs: Option<Vec<Run>> = alternatives.iter().map(run).collect();
    let Some(runs) = runs else { return Speed::Unknown };
    let takes_all = |class: &Expr| runs.iter().any(|run| run.fails == Fails::Never && run.class == Some(class));
    let is_linear = runs.iter().all(|run| run.fails == Fails::Never || run.class.is_some_and(takes_all));
    if is_linear { Speed::Linear } else { Speed::Unknown }
}

/// An alternative as far as its first run.
struct Run<'a> {
    /// What the run is of; `None` without one.
    class: Option<&'a Expr>,
    fails: Fails,
}

/// Whether an alternative can fail after its first run.
#[derive(PartialEq, Eq)]
enum Fails {
    Never,
    Sometimes,
}

/// Reads an alternative; `None` when it has another form.
fn run(alternative: &Expr) -> Option<Run<'_>> {
    let one = std::slice::from_ref(alternative);
    let parts = match alternative {
        Expr::Concat(parts) => parts.as_slice(),
        Expr::Group(child) => return run(child),
        _ => one,
    };
    let mut found = Run { class: None, fails: Fails::Never };
    let mut looks_around = false;
    for (at, part) in parts.iter().enumerate() {
        // A possessive run is a run that never gives back.
        let part = if let Expr::AtomicGroup(child) = part { &**child } else { part };
        match part {
            Expr::Repeat { child, lo, hi, greedy: true } if *hi == usize::MAX && is_character(child) => {
                match found.class {
                    None => found.class = Some(child),
                    // A second run that must be there can be missing.
                    Some(_) if *lo > 0 => found.fails = Fails::Sometimes,
                    Some(_) => {}
                }
            }
            Expr::Repeat { child, lo, hi, greedy: true }
                if *hi == usize::MAX && at + 1 == parts.len() && is_piece(child) =>
            {
                if found.class.is_some() && *lo > 0 {
                    found.fails = Fails::Sometimes;
                }
            }
            // `\s+(?!\S)` gives back one character at most.
            Expr::LookAround(child, LookAround::LookAheadNeg)
                if at > 0 && is_run_of_spaces(&parts[at - 1]) && is_class(child, r"\S") => {}
            Expr::LookAround(child, _) if is_short(child) => looks_around = true,
            _ if is_short(part) => {
                if found.class.is_some() && shortest(part) > 0 {
                    found.fails = Fails::Sometimes;
                }
            }
            _ => return None,
        }
    }
    // Without a run, what is looked at is as short as the alternative.
    (!looks_around || found.class.is_none()).then_some(found)
}

/// Whether it is a few characters, and behind them only runs that may be missing: of a class, or of such pieces.
fn is_piece(expr: &Expr) -> bool {
    match expr {
        Expr::Group(child) => is_piece(child),
        Expr::Concat(parts) => {
            let (first, runs) = parts.split_at(parts.iter().take_while(|part| is_short(part)).count());
            first.iter().map(shortest).sum::<usize>() > 0 && runs.iter().all(may_be_missing)
        }
        _ => false,
    }
}

fn may_be_missing(expr: &Expr) -> bool {
    matches!(expr, Expr::Repeat { child, lo: 0, hi: usize::MAX, greedy: true } if is_character(child) || is_piece(child))
}

/// Whether it matches some characters and no run.
fn is_short(expr: &Expr) -> bool {
    match expr {
        Expr::Empty | Expr::Any { .. } | Expr::Literal { .. } | Expr::Delegate { .. } => true,
        Expr::Concat(parts) | Expr::Alt(parts) => parts.iter().all(is_short),
        Expr::Group(child) | Expr::AtomicGroup(child) => is_short(child),
        Expr::Repeat { child, hi, .. } => *hi <= FEW && is_short(child),
        _ => false,
    }
}

fn is_character(expr: &Expr) -> bool {
    match expr {
        Expr::Any { .. } | Expr::Delegate { size: 1, .. } => true,
        Expr::Literal { val, .. } => val.chars().count() == 1,
        Expr::Group(child) => is_character(child),
        _ => false,
    }
}

fn is_run_of_spaces(expr: &Expr) -> bool {
    matches!(expr, Expr::Repeat { child, hi: usize::MAX, greedy: true, .. } if is_class(child, r"\s"))
}

fn is_class(expr: &Expr, class: &str) -> bool {
    matches!(expr, Expr::Delegate { inner, .. } if inner == class)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
    const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
    const K_EXAONE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
    const POSSESSIVE: &str =
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

    #[test]
    fn the_patterns_of_published_models_are_linear() {
        for pattern in [
            GPT_2,
            LLAMA_3,
            O200K,
            DEEPSEEK_3,
            SEED,
            POSSESSIVE,
            K_EXAONE,
            "(?:ab)+",
            r"\s+",
            " {2,}",
            r"\p{N}{1,3}",
            r"[一-龥]+",
            " ",
            r"[\r\n]",
            r"\p{L}+|\p{P}+",
        ] {
            let read = read(pattern).unwrap();
            assert_eq!(read.speed, Speed::Linear, "{pattern}");
            assert!(read.shortest > 0, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_look_far_and_take_little_are_for_short_texts() {
        for pattern in ["a*b|a", "(a+)+b", "(a|a)*b", ".*?b", "(?:ab)*c|a", "(?:a a*)+b|a", "a*(?: a)+|a", "(?:a+ )+"] {
            assert_eq!(read(pattern).unwrap().speed, Speed::Unknown, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_backtrack_without_a_known_bound_are_refused() {
        for pattern in [r"a+(?=b)", r"\s+(?!a)", r"(a+)\1", r"(?<=a*)b", r"(?:a+)+(?!b)", r"(?>a+)b", r"(?=(a|b)*c)a"] {
            let error = read(pattern).expect_err(pattern);
            assert!(error.contains("no known bound") || error.contains("pattern"), "{pattern}: {error}");
        }
        for short in [r"[A-Z](?=[a-z])", r"(?<=x)y", r"\d(?!\d)|\s+(?!\S)"] {
            assert_eq!(read(short).unwrap().speed, Speed::Linear, "{short}");
        }
    }

    #[test]
    fn a_match_has_at_least_so_many_bytes() {
        for (pattern, shortest) in
            [("", 0), ("a?", 0), ("^", 0), ("(?=a)", 0), ("abc|de", 2), ("(a|b){3}", 3), ("é", 2), ("a*b", 1)]
        {
            assert_eq!(read(pattern).unwrap().shortest, shortest, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_cannot_be_compiled_are_refused() {
        for (pattern, words) in [
            ("(", "pattern \"(\""),
            ("[z-a", "pattern"),
            ("((a{100}){100}){100}", "1000000 times"),
            ("a{1000000}", "1000000 times"),
        ] {
            let error = read(pattern).expect_err(pattern);
            assert!(error.contains(words), "{pattern}: {error}");
        }
        assert!(read(&"a".repeat(5000)).expect_err("long").contains("5000 bytes"));
        assert!(read(&"(".repeat(4000)).is_err());
    }
}
