//! model.safetensors.index.json: which files hold the weights.
//!
//! It names a file for each tensor, and a model has far more tensors than files. Only the set of files is kept.

use base::limits::WEIGHT_FILES;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// What begins an error about the contents; the other errors are about the syntax.
const OF_CONTENTS: &str = "weight_map ";

/// The names of the files, in order, or what is wrong with the index.
pub fn file_names(json: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: Index = serde_json::from_slice(json).map_err(|error| {
        let reason = error.to_string();
        if reason.starts_with(OF_CONTENTS) { reason } else { format!("is not JSON of an index: {reason}") }
    })?;
    match index.weight_map {
        None => Err("weight_map is missing".into()),
        Some(FileNames(names)) if names.is_empty() => Err("weight_map is empty".into()),
        Some(FileNames(names)) => Ok(names),
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Index {
    weight_map: Option<FileNames>,
}

struct FileNames(BTreeSet<String>);

impl<'de> Deserialize<'de> for FileNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileNames, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = FileNames;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "an object that names a file for each tensor")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut entries: M) -> Result<FileNames, M::Error> {
                let mut names = BTreeSet::new();
                while let Some(tensor) = entries.next_key::<Cow<str>>()? {
                    let FileName(name) = entries.next_value()?;
                    let Some(name) = name else {
                        return Err(M::Error::custom(format!("{OF_CONTENTS}names no file for {tensor:.60}")));
                    };
                    if names.contains(name.as_ref()) {
                        continue;
                    }
                    // Only a plain name: an index must not lead out of its folder.
                    if Path::new(name.as_ref()).file_name() != Some(OsStr::new(name.as_ref())) {
                        let name: String = name.chars().take(60).collect();
                        let reason =
                            format!("{OF_CONTENTS}names {name:?}, which is not the name of a file in this folder");
                        return Err(M::Error::custom(reason));
                    }
                    if names.len() == WEIGHT_FILES {
                        let reason =
                            format!("{OF_CONTENTS}names more than {WEIGHT_FILES} files, the most that are read");
                        return Err(M::Error::custom(reason));
                    }
                    names.insert(name.into_owned());
                }
                Ok(FileNames(names))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The value of an entry, or `None` when it is no text.
struct FileName<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for FileName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileName<'de>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value<'a> {
            Text(#[serde(borrow)] Cow<'a, str>),
            Other(IgnoredAny),
        }
        Ok(match Value::deserialize(deserializer)? {
            Value::Text(name) => FileName(Some(name)),
            Value::Other(_) => FileName(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_named_once_and_in_order() {
        let json = br#"{"metadata": {"x": [1]}, "weight_map": {"a": "2", "b": "1", "c": "2", "d": "1\u0032"}}"#;
        assert_eq!(file_names(json).unwrap().into_iter().collect::<Vec<_>>(), ["1", "12", "2"]);
    }

    #[test]
    fn an_index_that_is_none_says_why() {
        const CASES: &[(&str, &str)] = &[
            ("{", "is not JSON of an index: EOF"),
            ("[]", "is not JSON of an index"),
            ("{}", "weight_map is missing"),
            (r#"{"weight_map": null}"#, "weight_map is missing"),
            (r#"{"weight_map": 3}"#, "is not JSON of an index: invalid type: integer `3`"),
            (r#"{"weight_map": {}}"#, "weight_map is empty"),
            (r#"{"weight_map": {"a": 1}}"#, "weight_map names no file for a"),
            (r#"{"weight_map": {"a": {"b": []}}}"#, "weight_map names no file for a"),
            (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "is not the name of a file in this folder"),
            (r#"{"weight_map": {"a": "../a"}}"#, "is not the name of a file in this folder"),
            (r#"{"weight_map": {"a": "b/"}}"#, "is not the name of a file in this folder"),
        ];
        for (json, reason) in CASES {
            let error = file_names(json.as_bytes()).expect_err(json);
            assert!(error.contains(reason), "{json}: {error}");
        }
    }

    #[test]
    fn a_million_files_are_refused_before_any_is_opened() {
        let entries: Vec<String> = (0..1_000_000).map(|file| format!(r#""{file}":"{file}""#)).collect();
        let json = format!(r#"{{"weight_map":{{{}}}}}"#, entries.join(","));
        let error = file_names(json.as_bytes()).expect_err("too many");
        assert!(error.starts_with("weight_map names more than 1024 files"), "{error}");
    }
}
