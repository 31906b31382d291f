//! Makes minijinja behave as jinja2 does under transformers.
//!
//! The two differ in what their host languages lend them: how numbers print, `tojson`, methods of strings. What is known
//! to stay different: a float inside a printed list shows its exponent as Rust does (`1e-7`), and the functions that
//! jinja2 offers for web pages are missing.

use super::{json_dumps, methods};
use crate::backend::local_time;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::fmt;

/// Instructions that one rendering may run. A conversation of 1,000 messages takes a hundredth of it; a template that
/// never ends stops after a few seconds.
const MAX_INSTRUCTIONS: u64 = 20_000_000;

/// What a template said to `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An environment without templates.
pub(super) fn like_transformers() -> Environment<'static> {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters differ from each other");
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, state, value| match python_float(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.set_unknown_method_callback(methods::call);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    environment.set_debug(false);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("cycler", minijinja_contrib::globals::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment
}

/// The template in the words that minijinja knows.
///
/// Line ends become `\n`, as jinja2 makes them. `{% generation %}` marks the model's own words for training; it prints its
/// body and keeps what is set in it to itself, as `{% with %}` does.
pub(super) fn portable_source(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut portable = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        portable.push_str(before);
        rest = tag;
        let name = tag.trim_start_matches(['-', '+']).trim_start();
        for (word, replacement) in [("generation", "with"), ("endgeneration", "endwith")] {
            if let Some(after) = name.strip_prefix(word)
                && after.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
            {
                portable.push_str(&tag[..tag.len() - name.len()]);
                portable.push_str(replacement);
                rest = after;
            }
        }
    }
    portable.push_str(rest);
    portable
}

/// A JSON value as a template sees it.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, entry)| (Value::from(key.as_str()), value(entry))))
        }
    }
}

/// Why a rendering failed: the template's own words where it raised, else the engine's.
pub(super) fn reason(error: &Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return message.clone();
        }
        cause = current.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("the template ran more than {MAX_INSTRUCTIONS} instructions: does it ever end?");
    }
    error.to_string()
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

fn strftime_now(format: String) -> Result<String, Error> {
    local_time::format_now(&format)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot format {format:?}")))
}

/// `json.dumps` with the arguments that transformers lets a template give.
fn tojson(value: &Value, args: Rest<Value>) -> Result<String, Error> {
    type Arguments = (Option<bool>, Option<Value>, Option<Value>, Option<bool>, Kwargs);
    let (ensure_ascii, indent, separators, sort_keys, named): Arguments = from_args(&args)?;
    let indent = indent.or(named.get("indent")?);
    let separators = separators.or(named.get("separators")?);
    let style = json_dumps::Style {
        characters: match ensure_ascii.or(named.get("ensure_ascii")?) {
            Some(true) => json_dumps::Characters::Ascii,
            _ => json_dumps::Characters::Unicode,
        },
        order: match sort_keys.or(named.get("sort_keys")?) {
            Some(true) => json_dumps::KeyOrder::Sorted,
            _ => json_dumps::KeyOrder::AsGiven,
        },
        indent: indent.filter(|indent| !indent.is_none()).map(|indent| match indent.as_i64() {
            Some(spaces) => " ".repeat(usize::try_from(spaces).unwrap_or(0).min(json_dumps::MAX_INDENT)),
            None => indent.to_string(),
        }),
        separators: match separators.filter(|separators| !separators.is_none()) {
            None => None,
            Some(pair) => Some((pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())),
        },
    };
    named.assert_all_used()?;
    json_dumps::dumps(value, &style)
}

fn string(value: &Value) -> Value {
    match python_float(value) {
        Some(text) => Value::from(text),
        None if value.kind() == ValueKind::String => value.clone(),
        None => Value::from(value.to_string()),
    }
}

/// A float as Python prints it, or `None` when `value` is none.
fn python_float(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok().map(json_dumps::float_repr)
}
