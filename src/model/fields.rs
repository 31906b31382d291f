//! The fields of a JSON object in a model folder, read with reasons when they are not what they should be.

use crate::spec::Bias;
use base::error::{Error, Result};
use base::limits::STOP_TOKENS;
use base::log::{self, Level};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;

/// Whole numbers in a config are at most this. No model comes near, and sizes made of a few of them cannot overflow.
pub const COUNT_MAX: u64 = 1 << 24;

/// An object of a JSON file. A field that is `null` counts as absent, as transformers has it.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    path: &'a Path,
    object: &'a Map<String, Value>,
    reads: Option<&'a Reads>,
}

/// The fields that were read, known by where their values lie in memory.
#[derive(Debug, Default)]
pub struct Reads(RefCell<HashSet<*const Value>>);

/// What a message says of numbers that are not [`is_positive`].
pub const POSITIVE: &str = "a number above 0 that single precision has";

/// Whether a number is above 0 and finite in single precision, and so is 1 divided by it.
pub fn is_positive(number: f64) -> bool {
    number > 0.0 && (number as f32).is_normal()
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which stands in the file at `path`.
    pub fn new(path: &'a Path, value: &'a Value) -> Result<Fields<'a>> {
        match value {
            Value::Object(object) => Ok(Fields { path, object, reads: None }),
            _ => Err(Error::ModelFile { path: path.into(), reason: "is not a JSON object".into() }),
        }
    }

    /// The same fields, which note in `reads` what is read of them.
    pub fn noting(self, reads: &'a Reads) -> Fields<'a> {
        Fields { reads: Some(reads), ..self }
    }

    /// The field, unless it is absent or `null`.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        let value = self.object.get(name).filter(|v| !v.is_null())?;
        if let Some(Reads(reads)) = self.reads {
            reads.borrow_mut().insert(value);
        }
        Some(value)
    }

    /// Counts these fields as read: they have no effect.
    pub fn pass_over(&self, names: &[&str]) {
        for name in names {
            self.get(name);
        }
    }

    /// Whether the field is there and was read.
    pub fn was_read(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(|value| self.noted(value))
    }

    /// The fields, those of inner objects included, that are there, were not read, and are not `harmless`. By name, with the names
    /// of the objects that they are in before it.
    pub fn unread(&self, harmless: &dyn Fn(&str, &Value) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in self.object.iter().filter(|(name, value)| !value.is_null() && !harmless(name, value)) {
            if !self.noted(value) {
                found.push(Fields::cut(name.clone()));
            } else if let Value::Object(object) = value {
                let inner = Fields { object, ..*self }.unread(harmless);
                found.extend(inner.into_iter().map(|inner| format!("{}.{inner}", Fields::cut(name.clone()))));
            }
        }
        found
    }

    fn noted(&self, value: &Value) -> bool {
        self.reads.is_some_and(|Reads(reads)| reads.borrow().contains(&std::ptr::from_ref(value)))
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }

    /// An error that says what is wrong with this file.
    pub fn refuse(&self, reason: String) -> Error {
        Error::ModelFile { path: self.path.into(), reason }
    }

    /// Logs what may be wrong with this file.
    pub fn warn(&self, what: std::fmt::Arguments) {
        log::log(Level::Warn, format_args!("{}: {what}", self.path.display()));
    }

    fn wrong(&self, name: &str, value: &Value, wanted: &str) -> Error {
        self.refuse(format!("{name} is {}, but must be {wanted}", Fields::shown(value)))
    }

    /// A value as a message shows it: a text without quotes, and not much of a long one.
    pub fn shown(value: &Value) -> String {
        Fields::cut(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    fn cut(mut shown: String) -> String {
        if let Some((cut, _)) = shown.char_indices().nth(60) {
            shown.truncate(cut);
            shown.push('…');
        }
        shown
    }

    fn needed<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.refuse(format!("{name} is missing")))
    }

    /// A field that is itself an object.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| self.wrong(name, value, "an object"))?;
        Ok(Some(Fields { object, ..*self }))
    }

    /// A string.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, value, "a string"))
    }

    /// `true` or `false`.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, value, "true or false"))
    }

    /// A whole number from 1 to [`COUNT_MAX`].
    pub fn count_or_none(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64() {
            Some(count @ 1..=COUNT_MAX) => Ok(Some(count as usize)),
            _ => Err(self.wrong(name, value, &format!("a whole number from 1 to {COUNT_MAX}"))),
        }
    }

    /// As [`Fields::count_or_none`], and it must be there.
    pub fn count(&self, name: &str) -> Result<usize> {
        self.needed(name, self.count_or_none(name)?)
    }

    /// As [`Fields::count`], and it must not be above `most`.
    pub fn count_up_to(&self, name: &str, most: usize) -> Result<usize> {
        match self.count(name)? {
            count if count > most => Err(self.refuse(format!("{name} is {count}, but must be at most {most}"))),
            count => Ok(count),
        }
    }

    /// Whether linear layers have a bias, which they have not unless the field says `true`.
    pub fn bias(&self, name: &str) -> Result<Bias> {
        Ok(if self.flag(name)? == Some(true) { Bias::Added } else { Bias::None })
    }

    /// A number above 0, also in single precision, in which models are computed.
    pub fn positive_or_none(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if is_positive(number) => Ok(Some(number)),
            _ => Err(self.wrong(name, value, POSITIVE)),
        }
    }

    /// A number above 0 that must be there, in single precision.
    pub fn factor(&self, name: &str) -> Result<f32> {
        Ok(self.positive(name)? as f32)
    }

    /// Refuses a field that is there and says something else.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for the other value, [`Error::ModelFile`] for a value that is neither.
    pub fn must_be(&self, name: &'static str, wanted: bool) -> Result<()> {
        match self.flag(name)? {
            Some(found) if found != wanted => Err(Error::UnsupportedModel {
                setting: name,
                value: found.to_string(),
                supported: if wanted { "true in a model of this class" } else { "false in a model of this class" },
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a text that is there and says something else.
    ///
    /// # Errors
    ///
    /// As [`Fields::must_be`].
    pub fn must_say(&self, name: &'static str, wanted: &'static str) -> Result<()> {
        match self.text(name)? {
            Some(found) if found != wanted => {
                Err(Error::UnsupportedModel { setting: name, value: format!("{found:.60}"), supported: wanted })
            }
            _ => Ok(()),
        }
    }

    /// As [`Fields::positive_or_none`], and it must be there.
    pub fn positive(&self, name: &str) -> Result<f64> {
        self.needed(name, self.positive_or_none(name)?)
    }

    /// Token ids: a whole number, a list of them, or none.
    pub fn token_ids(&self, name: &str) -> Result<Vec<u32>> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let id = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(list) => list.iter().map(id).collect(),
            _ => id(value).map(|id| vec![id]),
        };
        let wanted = format!("a token id or a list of at most {STOP_TOKENS} token ids");
        ids.filter(|ids: &Vec<u32>| ids.len() <= STOP_TOKENS).ok_or_else(|| self.wrong(name, value, &wanted))
    }
}
