//! Python's `json.dumps` over template values.
//!
//! A formatter of `serde_json` would replace the layout and the escapes only, by as many lines: `serde_json` writes NaN and the
//! infinities as null, refuses None as a key, and cannot sort keys, so that the walk over the values would remain.

use super::python_text::float_repr;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// The deepest indentation that a template may ask for, in spaces a level.
pub(super) const MAX_INDENT: usize = 64;

/// The arguments of `json.dumps`.
pub(super) struct Style {
    /// `ensure_ascii`.
    pub characters: Characters,
    /// `sort_keys`.
    pub order: KeyOrder,
    /// What a level of nesting is indented by; `None` keeps everything on one line.
    pub indent: Option<String>,
    /// Between items, and between a key and its value; `None` is Python's default.
    pub separators: Option<(String, String)>,
}

/// Which characters stand for themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Characters {
    /// All but those that JSON reserves.
    Unicode,
    /// Printable ASCII ones; the others become `\u` escapes.
    Ascii,
}

/// In which order the entries of an object are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrder {
    /// As they were given.
    AsGiven,
    /// By key.
    Sorted,
}

/// The most bytes that a value of this weight and depth takes, where each value in it weighs at least 32.
pub(super) fn most_bytes(weight: u64, depth: u64, style: &Style) -> u64 {
    let separators = style.separators.as_ref().map_or(4, |(item, key)| (item.len() + key.len()) as u64);
    let line = style.indent.as_ref().map_or(0, |indent| 1 + depth.saturating_mul(indent.len() as u64));
    let values = weight / 32 + 1;
    weight.saturating_mul(6).saturating_add(values.saturating_mul(separators.saturating_add(line.saturating_mul(2))))
}

/// The JSON text of `value`.
pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let (item_separator, key_separator) = match &style.separators {
        Some((item, key)) => (item.as_str(), key.as_str()),
        None if style.indent.is_some() => (",", ": "),
        None => (", ", ": "),
    };
    let mut writer = Writer { out: String::new(), style, item_separator, key_separator, level: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: String,
    style: &'a Style,
    item_separator: &'a str,
    key_separator: &'a str,
    level: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let text = number(value)?;
                self.out.push_str(&text);
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.out.push('[');
                self.level += 1;
                let mut items = 0;
                for item in value.try_iter()? {
                    self.begin_item(items);
                    self.value(&item)?;
                    items += 1;
                }
                self.end(']', items);
            }
            ValueKind::Map => {
                self.out.push('{');
                self.level += 1;
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.order == KeyOrder::Sorted {
                    keys.sort();
                }
                for (index, key) in keys.iter().enumerate() {
                    self.begin_item(index);
                    let text = key_text(key)?;
                    self.string(&text);
                    self.out.push_str(self.key_separator);
                    self.value(&value.get_item(key)?)?;
                }
                self.end('}', keys.len());
            }
            _ => return Err(not_json(value)),
        }
        Ok(())
    }

    fn begin_item(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(self.item_separator);
        }
        self.line();
    }

    fn end(&mut self, bracket: char, items: usize) {
        self.level -= 1;
        if items > 0 {
            self.line();
        }
        self.out.push(bracket);
    }

    /// Begins a line, when lines are wanted.
    fn line(&mut self) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..self.level {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                ' '..='~' => self.out.push(character),
                '\u{7f}'.. if self.style.characters == Characters::Unicode => self.out.push(character),
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.out.push('"');
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    Ok(match number {
        _ if number.is_nan() => "NaN".to_string(),
        f64::INFINITY => "Infinity".to_string(),
        f64::NEG_INFINITY => "-Infinity".to_string(),
        _ => float_repr(number),
    })
}

/// A key as JSON writes it, which knows strings only.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number => number(key),
        _ => Err(not_json(key)),
    }
}

fn not_json(value: &Value) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{} cannot be written as JSON", value.kind()))
}
