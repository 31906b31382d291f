//! Which modules do the groups of a compressed-tensors config mean? Entries are names, patterns after `re:`, and names of classes.
//!
//! As `compressed_tensors/utils/match.py` has it: a name comes before a pattern, and a pattern before a class, and where groups name a module
//! equally exactly, the first of them has it. The patterns of all groups share the budgets of [`Patterns`].

use super::patterns::{Exhausted, Matcher, Patterns};
use base::limits;
use std::collections::HashMap;

/// The targets of all groups of a config.
#[derive(Default)]
pub struct Targets {
    groups: Vec<Group>,
    patterns: Patterns,
    /// The first group with each name. Modules and classes are looked up alike.
    by_name: HashMap<String, usize>,
}

/// The targets of a group.
#[derive(Debug, Default)]
pub struct Group {
    names: Vec<String>,
    /// Texts and numbers.
    patterns: Vec<(String, usize)>,
}

impl Group {
    /// Names of modules and of classes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Patterns with an anchor, as they are matched.
    pub fn anchored_patterns(&self) -> impl Iterator<Item = String> {
        self.patterns.iter().map(|(pattern, _)| format!("^(?:{pattern})"))
    }
}

impl Targets {
    /// Reads the entries of a group, or says what is wrong with one.
    pub fn read<'a>(&mut self, entries: impl IntoIterator<Item = &'a str>) -> Result<Group, String> {
        let mut group = Group::default();
        for entry in entries {
            let Some(pattern) = entry.strip_prefix("re:") else {
                group.names.push(entry.to_owned());
                continue;
            };
            if group.patterns.len() == limits::QUANTIZATION_PATTERNS {
                return Err(format!("has more than {} patterns", limits::QUANTIZATION_PATTERNS));
            }
            group.patterns.push((pattern.to_owned(), self.patterns.add(pattern)?));
        }
        Ok(group)
    }

    /// Adds a group, whose number is that of the groups before it.
    pub fn push(&mut self, group: Group) {
        for name in &group.names {
            self.by_name.entry(name.clone()).or_insert(self.groups.len());
        }
        self.groups.push(group);
    }

    /// Those of each group, for messages.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Looks up modules, as long as there are steps for the patterns.
    pub fn finder(&self) -> Finder<'_> {
        Finder { targets: self, matcher: Matcher::new(&self.patterns) }
    }
}

/// Finds the groups of modules.
pub struct Finder<'a> {
    targets: &'a Targets,
    matcher: Matcher<'a>,
}

impl Finder<'_> {
    /// The number of the group that names the module `name` of class `class`, if one does.
    ///
    /// # Errors
    ///
    /// [`Exhausted`]
    pub fn find(&mut self, name: &str, class: &str) -> Result<Option<usize>, Exhausted> {
        let Targets { groups, by_name, .. } = self.targets;
        if let Some(&group) = by_name.get(name) {
            return Ok(Some(group));
        }
        for (number, group) in groups.iter().enumerate() {
            for (_, pattern) in &group.patterns {
                if self.matcher.matches(*pattern, name)? {
                    return Ok(Some(number));
                }
            }
        }
        Ok(by_name.get(class).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(groups: &[&[&str]]) -> Targets {
        let mut targets = Targets::default();
        for entries in groups {
            let group = targets.read(entries.iter().copied()).unwrap();
            targets.push(group);
        }
        targets
    }

    #[test]
    fn a_module_is_meant_by_its_name_a_pattern_or_its_class() {
        let targets = targets(&[
            &["Linear"],
            &["re:model.(?!norm)", "re:.*mlp.up"],
            &["model.layers.3.mlp.up_proj", "Linear", r"re:.*mlp\.down"],
        ]);
        const CASES: &[(&str, &str, Option<usize>)] = &[
            ("model.layers.3.mlp.up_proj", "Linear", Some(2)),
            ("model.layers.3.mlp.down_proj", "Linear", Some(1)),
            ("layers.3.mlp.down_proj", "Linear", Some(2)),
            ("lm_head", "Linear", Some(0)),
            ("lm_head.model.x", "Embedding", None),
            ("model.norm", "Norm", None),
        ];
        let mut finder = targets.finder();
        for (name, class, wanted) in CASES {
            assert_eq!(finder.find(name, class), Ok(*wanted), "{name}");
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
            let error = Targets::default().read(entries.iter().map(String::as_str)).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_group_is_shown_as_its_names_and_its_anchored_patterns() {
        let targets = targets(&[&["re:a", "Linear"]]);
        let patterns: Vec<String> = targets.groups()[0].anchored_patterns().collect();
        assert_eq!(
            (targets.groups()[0].names(), &patterns[..]),
            (&["Linear".to_owned()][..], &["^(?:a)".to_owned()][..])
        );
    }
}
