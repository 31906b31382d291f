//! The values of a `response_template`: what is inside a region, and how it becomes a part of the message.
//!
//! The rules are those of transformers (`utils/chat_parsing/content_parsers.py`). What they cost is taken from the answer's fuel.

use super::pattern::{Fuel, Pattern};
use super::region::Voice;
use super::sink::Sink;
use super::value::python_number;
use base::limits::{self, json_values};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;

/// Work of one value of JSON, beside that of its letters.
const VALUE_WORK: u64 = 32;

/// A field of the message.
#[derive(Debug)]
pub(super) struct Field {
    pub name: String,
    /// To whom its text is addressed while it is written.
    pub voice: Option<Voice>,
    /// To whom its value is addressed once it is complete.
    pub late_voice: Option<Voice>,
    pub is_calls: bool,
    pub parser: Parser,
    pub transform: Option<Json>,
    pub transform_each: bool,
    pub repeats: bool,
    pub join: Option<String>,
    pub is_required: bool,
}

/// How the text of a region becomes a value.
#[derive(Debug)]
pub(super) enum Parser {
    Text {
        strip: bool,
    },
    Int,
    Float,
    Bool,
    Json(JsonDialect),
    /// Pairs found by a pattern with the groups `key` and `value`.
    XmlInline {
        pattern: Pattern,
        value: Option<Box<Parser>>,
        merges: bool,
    },
    KvLines {
        line_end: String,
        separator: String,
        strip: bool,
        value: Option<Box<Parser>>,
    },
}

#[derive(Debug, Default)]
pub(super) struct JsonDialect {
    pub quotes: Vec<(String, String)>,
    pub has_bare_keys: bool,
    pub may_be_text: bool,
    pub strip: bool,
}

impl Field {
    /// The value of a text.
    pub(super) fn value(&self, body: &str, captures: &Map<String, Json>, fuel: &mut Fuel) -> Result<Json, String> {
        let value = self.parser.value(body, fuel)?;
        let Some(transform) = &self.transform else { return Ok(value) };
        if !self.transform_each {
            let scope = |name: &str| if name == "content" { Some(&value) } else { captures.get(name) };
            return transformed(transform, &scope, fuel);
        }
        let Json::Array(items) = &value else { return Err("transform_each wants a list".to_string()) };
        let each = |item: &Json| match item {
            Json::Object(entries) => {
                transformed(transform, &|name: &str| entries.get(name).or_else(|| captures.get(name)), fuel)
            }
            _ => Err("transform_each wants a list of objects".to_string()),
        };
        items.iter().map(each).collect::<Result<Vec<Json>, String>>().map(Json::Array)
    }

    /// Makes a value part of the message.
    pub(super) fn put(&self, message: &mut Map<String, Json>, value: Json) -> Result<(), String> {
        if let Some(join) = &self.join {
            let Json::String(text) = value else { return Err("join wants a string".to_string()) };
            match message.get_mut(&self.name) {
                Some(Json::String(before)) => {
                    before.push_str(join);
                    before.push_str(&text);
                }
                Some(Json::Null) | None => drop(message.insert(self.name.clone(), text.into())),
                Some(_) => return Err("join wants a string".to_string()),
            }
            return Ok(());
        }
        if !self.repeats {
            message.insert(self.name.clone(), value);
            return Ok(());
        }
        match message.entry(self.name.clone()).or_insert_with(|| Json::Array(Vec::new())) {
            Json::Array(values) => values.push(value),
            _ => return Err("a field that repeats wants a list as its default".to_string()),
        }
        Ok(())
    }
}

impl Parser {
    /// Whether a text is handed out as it is.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Parser::Text { .. })
    }

    fn value(&self, text: &str, fuel: &mut Fuel) -> Result<Json, String> {
        pay(fuel, text.len() as u64 + VALUE_WORK)?;
        match self {
            Parser::Text { strip } => Ok(Json::from(stripped(text, *strip))),
            Parser::Int => int(text.trim()).ok_or_else(|| "not an integer of 64 bits".to_string()),
            Parser::Float => {
                let number = python_number(text.trim()).and_then(|number| number.as_f64());
                number.map(Json::from).ok_or_else(|| "not a number".to_string())
            }
            Parser::Bool => Ok(Json::Bool(matches!(text.trim().to_lowercase().as_str(), "true" | "1"))),
            Parser::Json(dialect) => dialect.value(text),
            Parser::XmlInline { pattern, value, merges } => {
                let mut entries = Map::new();
                for found in pattern.matches(text, fuel) {
                    let groups = pattern.groups(found, text, 0, None, true, fuel);
                    let group = |name| groups.get(pattern, name).map(|(begin, end)| &text[begin..end]);
                    let Some(key) = group("key") else { return Err("a pair without a key".to_string()) };
                    let value = sub_value(value.as_deref(), group("value").unwrap_or_default(), fuel)?;
                    match entries.get_mut(key) {
                        Some(Json::Array(values)) if *merges => values.push(value),
                        Some(before) if *merges => *before = Json::Array(vec![before.take(), value]),
                        _ => drop(entries.insert(key.to_string(), value)),
                    }
                }
                match fuel.is_empty() {
                    true => Err("more work than the limit allows".to_string()),
                    false => Ok(Json::Object(entries)),
                }
            }
            Parser::KvLines { line_end, separator, strip, value } => {
                let mut entries = Map::new();
                for line in text.split(line_end.as_str()) {
                    let line = stripped(line, *strip);
                    let Some((key, text)) = line.split_once(separator.as_str()) else { continue };
                    let (key, text) = (stripped(key, *strip), stripped(text, *strip));
                    entries.insert(key.to_string(), sub_value(value.as_deref(), text, fuel)?);
                }
                Ok(Json::Object(entries))
            }
        }
    }
}

fn sub_value(parser: Option<&Parser>, text: &str, fuel: &mut Fuel) -> Result<Json, String> {
    match parser {
        Some(parser) => parser.value(text, fuel),
        None => {
            pay(fuel, text.len() as u64 + VALUE_WORK)?;
            Ok(Json::from(text))
        }
    }
}

fn stripped(text: &str, strip: bool) -> &str {
    if strip { text.trim() } else { text }
}

/// An integer as Python's `int` reads it.
fn int(text: &str) -> Option<Json> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_int = !digits.is_empty()
        && digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let plain: String = text.chars().filter(|&c| c != '_' && c != '+').collect();
    let number = plain.parse::<i64>().map(Json::from).or_else(|_| plain.parse::<u64>().map(Json::from));
    number.ok().filter(|_| is_int)
}

impl JsonDialect {
    fn value(&self, text: &str) -> Result<Json, String> {
        let standard = match self.quotes.is_empty() && !self.has_bare_keys {
            true => Cow::Borrowed(text),
            false => Cow::Owned(self.standard(text)?),
        };
        if json_values(&standard) > limits::JSON_VALUES {
            return Err(format!("more than {} values", limits::JSON_VALUES));
        }
        let parsed = serde_json::from_str(&standard);
        match parsed {
            Ok(value) => Ok(value),
            Err(_) if self.may_be_text => Ok(Json::from(stripped(text, self.strip))),
            Err(error) => Err(format!("not JSON: {error}")),
        }
    }

    /// The text in standard JSON: strings between quotes of the dialect, and keys without quotes.
    fn standard(&self, text: &str) -> Result<String, String> {
        const OPEN: char = '\u{1}';
        const CLOSE: char = '\u{2}';
        if !self.quotes.is_empty() && text.contains([OPEN, CLOSE]) {
            return Err("the text has a control character that stands for a string".to_string());
        }
        let (mut text, mut strings) = (text.to_string(), Vec::new());
        for (open, close) in &self.quotes {
            let mut out = String::with_capacity(text.len());
            let mut rest = text.as_str();
            while let Some((before, inside)) = rest.split_once(open.as_str()) {
                let Some((string, after)) = inside.split_once(close.as_str()) else { break };
                out.push_str(before);
                out.push_str(&format!("{OPEN}{}{CLOSE}", strings.len()));
                strings.push(string.to_string());
                rest = after;
            }
            out.push_str(rest);
            text = out;
        }
        if self.has_bare_keys {
            text = with_quoted_keys(&text);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, inside)) = rest.split_once(OPEN) {
            let Some((index, after)) = inside.split_once(CLOSE) else { break };
            out.push_str(before);
            let string = index.parse::<usize>().ok().and_then(|index| strings.get(index));
            out.push_str(&Json::from(string.cloned().unwrap_or_default()).to_string());
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Puts quotes around words between `{` or `,` and `:`.
fn with_quoted_keys(text: &str) -> String {
    let is_word = |c: char| regex_syntax::try_is_word_character(c).unwrap_or(false);
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(['{', ',']) {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let word = rest.len() - rest.trim_start_matches(is_word).len();
        let (key, after) = rest.split_at(word);
        match word > 0 && after.starts_with(':') {
            true => out.extend(["\"", key, "\""]),
            false => out.push_str(key),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Takes work from the answer's fuel.
fn pay(fuel: &mut Fuel, work: u64) -> Result<(), String> {
    fuel.take(work);
    match fuel.is_empty() {
        true => Err("more work than the limit allows".to_string()),
        false => Ok(()),
    }
}

/// About the bytes of a value.
fn weight(value: &Json) -> u64 {
    VALUE_WORK
        + match value {
            Json::String(text) => text.len() as u64,
            Json::Array(items) => items.iter().map(weight).sum(),
            Json::Object(entries) => entries.iter().map(|(key, value)| key.len() as u64 + weight(value)).sum(),
            _ => 0,
        }
}

/// Replaces each string that is a placeholder by what it names.
fn transformed<'v>(
    transform: &Json,
    scope: &dyn Fn(&str) -> Option<&'v Json>,
    fuel: &mut Fuel,
) -> Result<Json, String> {
    match transform {
        Json::Object(entries) => {
            let mut out = Map::new();
            for (key, value) in entries {
                pay(fuel, key.len() as u64)?;
                out.insert(key.clone(), transformed(value, scope, fuel)?);
            }
            Ok(Json::Object(out))
        }
        Json::Array(items) => {
            items.iter().map(|item| transformed(item, scope, fuel)).collect::<Result<Vec<_>, _>>().map(Json::Array)
        }
        Json::String(text) => {
            let Some(path) = placeholder(text) else {
                pay(fuel, weight(transform))?;
                return Ok(transform.clone());
            };
            let mut keys = path.split('.');
            let mut value = keys.next().and_then(scope).ok_or_else(|| format!("{text} is not defined"))?;
            for key in keys {
                value = value.get(key).ok_or_else(|| format!("{text} has no key {key:?}"))?;
            }
            pay(fuel, weight(value))?;
            Ok(value.clone())
        }
        other => {
            pay(fuel, VALUE_WORK)?;
            Ok(other.clone())
        }
    }
}

/// The path of a text that is a placeholder, such as `content.args` of `{content.args}`.
fn placeholder(text: &str) -> Option<&str> {
    let path = text.strip_prefix('{')?.strip_suffix('}')?;
    is_path(path).then_some(path)
}

fn is_path(path: &str) -> bool {
    let is_word = |c: char| regex_syntax::try_is_word_character(c).unwrap_or(false);
    path.split('.').all(|word| !word.is_empty() && word.chars().all(is_word))
}

/// Refuses a transform with a string in which a placeholder stands beside text.
pub(super) fn check_transform(transform: &Json) -> Result<(), String> {
    match transform {
        Json::Object(entries) => entries.values().try_for_each(check_transform),
        Json::Array(items) => items.iter().try_for_each(check_transform),
        Json::String(text) if placeholder(text).is_none() => {
            let mixed = text.split('{').skip(1).any(|part| part.split_once('}').is_some_and(|(path, _)| is_path(path)));
            match mixed {
                true => Err(format!("the transform {text:?} has text beside a placeholder")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Hands out the value of `tool_calls`: one call, or a list of calls.
pub(super) fn hand_out_calls(value: &Json, sink: &mut Sink) -> Result<(), String> {
    if let Json::Array(calls) = value {
        return calls.iter().try_for_each(|call| hand_out_calls(call, sink));
    }
    if sink.calls_begun() >= limits::ANSWER_CALLS {
        return Err(format!("more than {} calls", limits::ANSWER_CALLS));
    }
    let function = value.get("function").unwrap_or(value);
    let name = function.get("name").and_then(Json::as_str).ok_or("a call without a name")?;
    let arguments = match function.get("arguments") {
        Some(Json::String(text)) => serde_json::from_str(text).map_err(|error| format!("the arguments: {error}"))?,
        Some(Json::Null) | None => Json::Object(Map::new()),
        Some(arguments) => arguments.clone(),
    };
    if !arguments.is_object() {
        return Err("the arguments of a call are no object".to_string());
    }
    sink.call(name, &arguments, value.get("id").and_then(Json::as_str))
}
