//! The fields of a JSON object in a model folder, read with reasons when they are not what they should be.

use crate::error::{Error, Result};
use crate::limits::STOP_TOKENS;
use crate::model::spec::Bias;
use serde_json::{Map, Value};
use std::path::Path;

/// Whole numbers in a config are at most this. No model comes near, and sizes made of a few of them cannot overflow.
pub const COUNT_MAX: u64 = 1 << 24;

/// An object of a JSON file. A field that is `null` counts as absent, as transformers has it.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    path: &'a Path,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which stands in the file at `path`.
    pub fn new(path: &'a Path, value: &'a Value) -> Result<Fields<'a>> {
        match value {
            Value::Object(object) => Ok(Fields { path, object }),
            _ => Err(Error::ModelFile { path: path.into(), reason: "is not a JSON object".into() }),
        }
    }

    /// The field, unless it is absent or `null`.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|v| !v.is_null())
    }

    /// Whether the field is not even `null`. For the few whose default is not what `null` means.
    pub fn is_absent(&self, name: &str) -> bool {
        !self.object.contains_key(name)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }

    /// An error that says what is wrong with this file.
    pub fn refuse(&self, reason: String) -> Error {
        Error::ModelFile { path: self.path.into(), reason }
    }

    fn wrong(&self, name: &str, value: &Value, wanted: &str) -> Error {
        self.refuse(format!("{name} is {}, but must be {wanted}", Fields::shown(value)))
    }

    /// A value as a message shows it: a text without quotes, and not much of a long one.
    pub fn shown(value: &Value) -> String {
        let mut shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
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
        Ok(Some(Fields { path: self.path, object }))
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

    /// A number above 0.
    pub fn positive_or_none(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(name, value, "a number above 0")),
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
