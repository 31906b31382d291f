//! Makes minijinja behave as jinja2 does under transformers.
//!
//! The two differ in what their host languages lend them: how values print, `tojson`, methods of strings. What is known to
//! stay different:
//!
//! * `"%s" % x` fails; the filter `format` and the method `format` work.
//! * `[::-1]` of an empty string or list fails.
//! * `schema['items']` is undefined where the entry is missing, while jinja2 then finds the method `items` of dicts.
//! * A float beyond 1e16 or below 1e-4 is written in full where `~` or `join` makes it text.
//! * The filters and functions that jinja2 offers for web pages are missing, such as `urlize` and `lipsum`.

use super::python_text::python_str;
use super::{json_dumps, local_time, methods};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::fmt;

/// Instructions that one rendering may run. A conversation of 10,000 messages stays below; a template that never ends stops
/// within seconds.
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
    environment.set_formatter(|out, state, value| match python_str(value) {
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
    environment.add_test("sequence", is_sequence);
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
    let mut raw = false;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        portable.push_str(before);
        rest = tag;
        let name = tag.trim_start_matches(['-', '+']).trim_start();
        let is = |word: &str| {
            let after = name.strip_prefix(word)?;
            after.trim_start().trim_start_matches(['-', '+']).starts_with("%}").then_some(after)
        };
        raw = (raw || is("raw").is_some()) && is("endraw").is_none();
        for (word, replacement) in [("generation", "with"), ("endgeneration", "endwith")] {
            if let Some(after) = is(word)
                && !raw
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
fn tojson(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let (given, named): (&[Value], Kwargs) = from_args(&args)?;
    // The arguments in the order of the Python function; one that is given by its place is not given by name.
    let argument = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        let argument = if named.has(name) { Some(named.get::<Value>(name)?) } else { given.get(place).cloned() };
        Ok(argument.filter(|argument| !argument.is_none()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|wanted| wanted.is_true());
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|wanted| wanted.is_true());
    let style = json_dumps::Style {
        characters: if ensure_ascii { json_dumps::Characters::Ascii } else { json_dumps::Characters::Unicode },
        order: if sort_keys { json_dumps::KeyOrder::Sorted } else { json_dumps::KeyOrder::AsGiven },
        indent: indent.map(|indent| match indent.as_i64() {
            Some(spaces) => " ".repeat(usize::try_from(spaces).unwrap_or(0).min(json_dumps::MAX_INDENT)),
            None => indent.to_string(),
        }),
        separators: match separators {
            None => None,
            Some(pair) => Some((pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())),
        },
    };
    named.assert_all_used()?;
    json_dumps::dumps(value, &style)
}

fn string(value: &Value) -> Value {
    match python_str(value) {
        Some(text) => Value::from(text),
        None if value.kind() == ValueKind::String => value.clone(),
        None => Value::from(value.to_string()),
    }
}

/// Whether a value has a length and items: in Python that is also true of strings and dicts.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        // A slice of a list is a list in Python, and lazy here.
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}
