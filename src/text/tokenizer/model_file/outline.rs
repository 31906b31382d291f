//! tokenizer.json read without being kept: how much of what it holds, and its small parts as values.
//!
//! The crate `tokenizers` parses a file into several copies at once, and sizes tables by what the file says. So the counts
//! come first, from one pass over the text that keeps nothing of the vocabulary.

use base::limits;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// What a file holds.
#[derive(Default)]
pub struct Outline {
    /// Everything but the model and the added tokens, by name.
    pub parts: Map<String, Value>,
    pub model: ModelOutline,
    /// The entries of `added_tokens`.
    pub added: Vec<Value>,
}

/// The model of a tokenizer.
#[derive(Default)]
pub struct ModelOutline {
    /// Everything but `vocab` and `merges`, by name.
    pub options: Map<String, Value>,
    pub vocabulary: Vocabulary,
    /// Entries of `merges`.
    pub merges: usize,
}

/// What is counted of a vocabulary.
#[derive(Clone, Copy, Default)]
pub struct Vocabulary {
    pub tokens: usize,
    /// The greatest id; of a list of tokens the last index.
    pub last_id: u64,
    /// Bytes of all spellings.
    pub bytes: usize,
    /// Bytes of the longest spelling.
    pub longest: usize,
    pub form: Form,
}

/// How a vocabulary is written.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// It is missing.
    #[default]
    Absent,
    /// An object of ids by spelling.
    Ids,
    /// A list of spellings with scores.
    Scores,
}

/// Reads a file.
pub fn read(json: &[u8]) -> Result<Outline, String> {
    let left = Cell::new(limits::TOKENIZER_VALUES);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let outline = Whole(&left).deserialize(&mut reader);
    let outline = outline.and_then(|outline| reader.end().map(|()| outline));
    outline.map_err(|error| {
        let reason = error.to_string();
        if error.is_data() { format!("not a tokenizer: {reason}") } else { format!("not JSON: {reason}") }
    })
}

/// Values that may yet be kept.
type Left = Cell<usize>;

fn twice<E: Error>(key: &str) -> E {
    E::custom(format!("{key:.60} occurs twice"))
}

struct Whole<'a>(&'a Left);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Outline;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outline, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Outline, M::Error> {
        let mut outline = Outline::default();
        let (mut has_model, mut has_added) = (false, false);
        while let Some(key) = map.next_key::<String>()? {
            let is_new = match key.as_str() {
                "model" => !std::mem::replace(&mut has_model, true),
                "added_tokens" => !std::mem::replace(&mut has_added, true),
                _ => !outline.parts.contains_key(&key),
            };
            if !is_new {
                return Err(twice(&key));
            }
            match key.as_str() {
                "model" => outline.model = map.next_value_seed(Model(self.0))?,
                "added_tokens" => {
                    let added = map.next_value_seed(Kept(self.0))?;
                    outline.added = match added {
                        Value::Array(tokens) => tokens,
                        _ => return Err(M::Error::custom("added_tokens must be a list")),
                    };
                }
                _ => drop(outline.parts.insert(key, map.next_value_seed(Kept(self.0))?)),
            }
        }
        if !has_model {
            return Err(M::Error::custom("model is missing"));
        }
        Ok(outline)
    }
}

struct Model<'a>(&'a Left);

impl<'de> DeserializeSeed<'de> for Model<'_> {
    type Value = ModelOutline;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ModelOutline, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Model<'_> {
    type Value = ModelOutline;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an object as the model")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ModelOutline, M::Error> {
        let mut model = ModelOutline::default();
        let mut has_merges = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "vocab" if model.vocabulary.form != Form::Absent => return Err(twice(&key)),
                "vocab" => model.vocabulary = map.next_value::<Vocabulary>()?,
                "merges" if std::mem::replace(&mut has_merges, true) => return Err(twice(&key)),
                "merges" => model.merges = map.next_value::<Merges>()?.0,
                _ if model.options.contains_key(&key) => return Err(twice(&key)),
                _ => drop(model.options.insert(key, map.next_value_seed(Kept(self.0))?)),
            }
        }
        Ok(model)
    }
}

impl Vocabulary {
    fn add<E: Error>(&mut self, spelling: usize, id: u64) -> Result<(), E> {
        self.tokens += 1;
        self.last_id = self.last_id.max(id);
        self.bytes += spelling;
        self.longest = self.longest.max(spelling);
        match self.tokens {
            limits::TOKENS.. => Err(E::custom(format!("the vocabulary has more than {} tokens", limits::TOKENS - 1))),
            _ => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vocabulary, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "ids by token, or a list of tokens with scores, as the vocabulary")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Vocabulary, M::Error> {
                let mut vocabulary = Vocabulary { form: Form::Ids, ..Vocabulary::default() };
                while let Some(Length(spelling)) = map.next_key()? {
                    vocabulary.add(spelling, map.next_value()?)?;
                }
                Ok(vocabulary)
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Vocabulary, S::Error> {
                let mut vocabulary = Vocabulary { form: Form::Scores, ..Vocabulary::default() };
                while let Some((Length(spelling), _score)) = list.next_element::<(Length, f64)>()? {
                    vocabulary.add(spelling, vocabulary.tokens as u64)?;
                }
                Ok(vocabulary)
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

/// How many merges there are.
struct Merges(usize);

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merges, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a list of merges")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Merges, S::Error> {
                let mut merges = 0;
                while list.next_element::<Merge>()?.is_some() {
                    merges += 1;
                    if merges > limits::MERGES {
                        return Err(S::Error::custom(format!("there are more than {} merges", limits::MERGES)));
                    }
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

/// Two tokens, in one text or in a list.
struct Merge;

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merge, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "two tokens as a merge")
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Merge, E> {
                Ok(Merge)
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Merge, S::Error> {
                for at in 0..2 {
                    list.next_element::<Length>()?.ok_or_else(|| S::Error::invalid_length(at, &self))?;
                }
                match list.next_element::<IgnoredAny>()? {
                    Some(_) => Err(S::Error::invalid_length(3, &self)),
                    None => Ok(Merge),
                }
            }
        }
        deserializer.deserialize_any(Pair)
    }
}

/// The bytes of a text.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a token")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.len()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A value that is kept, if there are not too many.
struct Kept<'a>(&'a Left);

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| {
            let most = limits::TOKENIZER_VALUES;
            D::Error::custom(format!("there are more than {most} values besides vocabulary and merges"))
        })?;
        self.0.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Value, S::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Kept(self.0))? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(twice(&key));
            }
            let value = map.next_value_seed(Kept(self.0))?;
            values.insert(key, value);
        }
        Ok(values.into())
    }
}
