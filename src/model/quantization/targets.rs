//! Which modules does an entry of a compressed-tensors config mean? A name, a pattern after `re:`, or the name of a class.
//!
//! As `compressed_tensors/utils/match.py` has it: a name comes before a pattern, and a pattern before a class. Patterns are those of Python,
//! matched from the beginning of a name.

use crate::limits;
use fancy_regex::{Regex, RegexBuilder};
use std::fmt;

/// Steps that a pattern with look-around may take per name.
const STEPS_MAX: usize = 4096;

/// Bytes that the program of a pattern may take.
const PROGRAM_BYTES_MAX: usize = 1 << 20;

/// Entries of a list of targets.
#[derive(Clone, Default)]
pub struct Targets {
    names: Vec<String>,
    patterns: Vec<Regex>,
}

/// How exactly an entry names a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// By its class.
    Class,
    /// By a pattern.
    Pattern,
    /// By its name.
    Name,
}

impl Targets {
    /// Reads the entries, or says what is wrong with one.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Targets, String> {
        let mut targets = Targets::default();
        for entry in entries {
            let Some(pattern) = entry.strip_prefix("re:") else {
                targets.names.push(entry.to_owned());
                continue;
            };
            let shown: String = pattern.chars().take(60).collect();
            if targets.patterns.len() == limits::QUANTIZATION_PATTERNS {
                return Err(format!("has more than {} patterns", limits::QUANTIZATION_PATTERNS));
            }
            if pattern.len() > limits::QUANTIZATION_PATTERN_BYTES {
                let most = limits::QUANTIZATION_PATTERN_BYTES;
                return Err(format!("has a pattern of {} bytes, but at most {most} are read: {shown}", pattern.len()));
            }
            let anchored = format!("^(?:{pattern})");
            let built = RegexBuilder::new(&anchored)
                .backtrack_limit(STEPS_MAX)
                .delegate_size_limit(PROGRAM_BYTES_MAX)
                .delegate_dfa_size_limit(PROGRAM_BYTES_MAX)
                .build();
            targets.patterns.push(built.map_err(|_| format!("has a pattern that is not read: {shown}"))?);
        }
        Ok(targets)
    }

    /// How these name the module `name` of class `class`, if they do.
    pub fn find(&self, name: &str, class: &str) -> Option<Match> {
        if self.names.iter().any(|entry| entry == name) {
            Some(Match::Name)
        } else if self.patterns.iter().any(|pattern| pattern.is_match(name).unwrap_or(false)) {
            Some(Match::Pattern)
        } else {
            self.names.iter().any(|entry| entry == class).then_some(Match::Class)
        }
    }
}

impl PartialEq for Targets {
    fn eq(&self, other: &Targets) -> bool {
        let texts = |targets: &Targets| targets.patterns.iter().map(|p| p.as_str().to_owned()).collect::<Vec<_>>();
        self.names == other.names && texts(self) == texts(other)
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries(&self.names).entries(self.patterns.iter().map(Regex::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_meant_by_its_name_a_pattern_or_its_class() {
        let targets = Targets::new(["Linear", "model.layers.3.mlp.up_proj", r"re:.*mlp\.down", "re:model.(?!norm)"]);
        let targets = targets.unwrap();
        const CASES: &[(&str, &str, Option<Match>)] = &[
            ("model.layers.3.mlp.up_proj", "Linear", Some(Match::Name)),
            ("model.layers.3.mlp.down_proj", "Linear", Some(Match::Pattern)),
            ("lm_head", "Linear", Some(Match::Class)),
            ("lm_head.model.x", "Embedding", None),
            ("model.norm", "Norm", None),
        ];
        for (name, class, wanted) in CASES {
            assert_eq!(targets.find(name, class), *wanted, "{name}");
        }
    }

    #[test]
    fn patterns_that_cannot_be_read_are_named() {
        for (entries, wanted) in [
            (vec!["re:(".to_owned()], "has a pattern that is not read: ("),
            (vec![format!("re:{}", "a".repeat(5000))], "has a pattern of 5000 bytes, but at most 4096 are read"),
            (vec!["re:(?:a{1000}){1000}".to_owned()], "has a pattern that is not read"),
            (vec!["re:a".to_owned(); 65], "has more than 64 patterns"),
        ] {
            let error = Targets::new(entries.iter().map(String::as_str)).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
