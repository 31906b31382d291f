//! Makes minijinja behave as jinja2 does under transformers.
//!
//! The two differ in what their host languages lend them: how values print, `tojson`, methods of strings. What is known to
//! stay different:
//!
//! * `"%s" % x` fails; the filter `format` and the method `format` work.
//! * `include`, `import` and `extends` find nothing, where jinja2 says that it has no loader.
//! * `schema['items']` is undefined where the entry is missing, while jinja2 then finds the method `items` of dicts.
//! * A float beyond 1e16 or below 1e-4 is written in full where `~` or `join` makes it text.
//! * The filters and functions that jinja2 offers for web pages are missing, such as `urlize` and `lipsum`.

use super::meter::{Exceeded, Meter};
use super::python_text::python_str;
use super::{filters, json_dumps, local_time, methods, objects, operators};
use base::limits;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use serde_json::Value as Json;
use std::fmt;

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
    let mut environment = Environment::empty();
    environment.set_syntax(syntax());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(write);
    environment.set_unknown_method_callback(methods::call);
    environment.set_fuel(Some(limits::TEMPLATE_INSTRUCTIONS));
    environment.set_debug(false);
    environment.add_function("range", objects::range);
    environment.add_function("dict", objects::dict);
    environment.add_function("namespace", objects::namespace);
    environment.add_function("cycler", objects::cycler);
    environment.add_function("joiner", objects::joiner);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    filters::add_to(&mut environment);
    operators::add_to(&mut environment);
    environment
}

/// How transformers sets jinja2 up.
pub(super) fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters differ from each other")
}

/// Writes what a template puts out.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let is_escaped = !matches!(state.auto_escape(), minijinja::AutoEscape::None);
    let meter = Meter::of(state);
    if let Some(text) = value.as_str() {
        let bytes = text.len() as u64;
        meter.output(if is_escaped { 6 * bytes } else { bytes })?;
    } else {
        let shape = meter.shape(value)?;
        let written = meter.written(value)?;
        // As Python writes it: a control character takes four, no number takes more than its weight, and each level of
        // nesting copies the text.
        let bytes = shape.weight.saturating_mul(4);
        meter.make(bytes.saturating_mul(u64::from(shape.depth) + 1), bytes.saturating_mul(2))?;
        if let Some(text) = python_str(value) {
            Meter::of(state).output(text.len() as u64)?;
            return out.write_str(&text).map_err(Error::from);
        }
        Meter::of(state).output(if is_escaped { 6 * written } else { written })?;
    }
    minijinja::escape_formatter(out, state, value)
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

/// Why a rendering failed.
pub(super) enum Failure {
    /// What the template said.
    Raised(String),
    /// What the template engine said.
    Reason(String),
    /// The template is to blame, whatever the conversation: it asks for more than any limit allows.
    Exceeded(String),
}

/// Why a rendering failed: the template's own words where it raised, else the engine's.
pub(super) fn failure(error: &Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return Failure::Raised(shortened(message.clone()));
        }
        if let Some(exceeded) = current.downcast_ref::<Exceeded>() {
            return Failure::Exceeded(exceeded.to_string());
        }
        cause = current.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        let most = limits::TEMPLATE_INSTRUCTIONS;
        return Failure::Exceeded(format!(
            "the template ran more than {most} instructions, which is the limit: it may loop without end"
        ));
    }
    Failure::Reason(shortened(error.to_string()))
}

fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(limits::TEMPLATE_REASON_BYTES));
    reason
}

fn raise_exception(state: &mut State, message: Value) -> Result<Value, Error> {
    let written = Meter::of(state).written(&message)?;
    Meter::of(state).make(written, 3 * written)?;
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message.to_string())))
}

fn strftime_now(state: &mut State, format: String) -> Result<String, Error> {
    // A directive of two bytes becomes a date and a time.
    let bytes = 64 * format.len() as u64;
    Meter::of(state).make(bytes, bytes)?;
    local_time::format_now(&format)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot format {format:?}")))
}

/// `json.dumps` with the arguments that transformers lets a template give.
pub(super) fn tojson(state: &mut State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
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
    for text in [&indent, &separators].into_iter().flatten() {
        let written = Meter::of(state).written(text)?;
        Meter::of(state).make(written, 4 * written)?;
    }
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
    let meter = Meter::of(state);
    let shape = meter.shape(value)?;
    let bytes = json_dumps::most_bytes(shape.weight, u64::from(shape.depth), &style);
    meter.make(bytes, bytes)?;
    json_dumps::dumps(value, &style)
}

/// `str(value)`.
pub(super) fn string(value: &Value) -> Value {
    match python_str(value) {
        Some(text) => Value::from(text),
        None if value.kind() == ValueKind::String => value.clone(),
        None => Value::from(value.to_string()),
    }
}

/// Whether a loop can walk a value: in Python that is not true of None.
pub(super) fn is_iterable(value: &Value) -> bool {
    value.kind() != ValueKind::None && minijinja::tests::is_iterable(value)
}

/// Whether a value has a length and items: in Python that is also true of strings and dicts, and in jinja2 of what is undefined.
pub(super) fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        // A slice of a list is a list in Python, and lazy here.
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}
