//! Reads the `response_template` of tokenizer_config.json, as transformers defines it.
//!
//! It comes from a model folder. Its sizes and its expressions are limited ([`base::limits`]); an expression that needs
//! back-tracking is refused by name, and so is a marker that could be empty.

use super::fields::{Field, JsonDialect, Parser, check_transform};
use super::pattern::Pattern;
use super::region::{Grammar, Inside, Opened, Region, Voice};
use super::sink::Trim;
use base::limits;
use serde_json::{Map, Value as Json};

const TEMPLATE_KEYS: [&str; 5] = ["version", "defaults", "fields", "start_anchor", "start_anchor_pattern"];
const FIELD_KEYS: [&str; 11] = [
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
];

/// Names of fields with reasoning.
const REASONING: [&str; 3] = ["thinking", "reasoning", "reasoning_content"];

type Object = Map<String, Json>;

/// The regions of a template. The reason of a refusal goes on from "response_template: ".
pub(super) fn grammar(template: &Json) -> Result<Grammar, String> {
    let bytes = template.to_string().len();
    if bytes > limits::ANSWER_TEMPLATE_BYTES {
        return Err(format!("it has {bytes} bytes, but the limit is {}", limits::ANSWER_TEMPLATE_BYTES));
    }
    let Json::Object(template) = template else { return Err("it is no object".to_string()) };
    if template.get("version").is_some_and(|version| *version != 1) {
        return Err(format!("its version is {}, but 1 is known", template["version"]));
    }
    known_keys(template, &TEMPLATE_KEYS)?;
    let defaults = match template.get("defaults") {
        None => Object::new(),
        Some(Json::Object(defaults)) => defaults.clone(),
        Some(_) => return Err("defaults is no object".to_string()),
    };
    let fields = match template.get("fields") {
        Some(Json::Object(fields)) if !fields.is_empty() => fields,
        _ => return Err("fields is no object with a field".to_string()),
    };
    if fields.len() > limits::ANSWER_FIELDS {
        return Err(format!("it has {} fields, but the limit is {}", fields.len(), limits::ANSWER_FIELDS));
    }
    let mut states = 0;
    let mut regions = Vec::new();
    for (name, field) in fields {
        let region = region(name, field, &mut states).map_err(|reason| format!("field {name:?}: {reason}"))?;
        regions.push(region);
    }
    let implicit: Vec<&str> =
        regions.iter().filter(|region| region.open.is_none()).map(|region| region.name.as_str()).collect();
    if implicit.len() > 1 {
        return Err(format!("at most one field may be without open, but {} are", implicit.join(", ")));
    }
    let anchor = marker(template, "start_anchor", "start_anchor_pattern", &mut states)?;
    let Some(anchor) = anchor else { return Err("it has neither start_anchor nor start_anchor_pattern".to_string()) };
    let trim_of = |wanted: Voice| {
        let strips = |region: &Region| match &region.inside {
            Inside::Field(field) if field.voice == Some(wanted) => match field.parser {
                Parser::Text { strip } => Some(Trim::of_strip(strip)),
                _ => None,
            },
            _ => None,
        };
        regions.iter().find_map(strips).unwrap_or(Trim::Both)
    };
    let (content_trim, reasoning_trim) = (trim_of(Voice::Content), trim_of(Voice::Reasoning));
    let mut grammar = Grammar::new("response_template", regions, Opened::After(anchor));
    (grammar.defaults, grammar.content_trim, grammar.reasoning_trim) = (defaults, content_trim, reasoning_trim);
    Ok(grammar)
}

fn known_keys(object: &Object, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("the key {key:?} is unknown")),
        None => Ok(()),
    }
}

fn region(name: &str, field: &Json, states: &mut usize) -> Result<Region, String> {
    let Json::Object(field) = field else { return Err("it is no object".to_string()) };
    known_keys(field, &FIELD_KEYS)?;
    let open = marker(field, "open", "open_pattern", states)?;
    let close = marker(field, "close", "close_pattern", states)?;
    if open.as_ref().is_some_and(Pattern::may_be_empty) {
        return Err("its open_pattern can be empty".to_string());
    }
    let parser = parser(field.get("content"), field.get("content_args"), states, 0)?;
    let flag = |key: &str, default: bool| match field.get(key) {
        None => Ok(default),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("{key} is neither true nor false")),
    };
    let (repeats, transform_each) = (flag("repeats", false)?, flag("transform_each", false)?);
    let join = match field.get("join") {
        None | Some(Json::Null) => None,
        Some(Json::String(join)) if repeats => Some(join.clone()),
        Some(Json::String(_)) => return Err("join wants repeats".to_string()),
        Some(_) => return Err("join is no string".to_string()),
    };
    let transform = field.get("transform").filter(|transform| !transform.is_null()).cloned();
    match &transform {
        Some(transform) => check_transform(transform)?,
        None if transform_each => return Err("transform_each wants a transform".to_string()),
        None => {
            let names = [&open, &close].into_iter().flatten().flat_map(Pattern::names).next();
            if let Some(group) = names {
                return Err(format!("the group {group:?} is used by no transform"));
            }
        }
    }
    let voice = match name {
        "content" => Some(Voice::Content),
        name if REASONING.contains(&name) => Some(Voice::Reasoning),
        _ => None,
    };
    let is_streamed = parser.is_text() && transform.is_none();
    let field = Field {
        name: name.to_string(),
        voice: voice.filter(|_| is_streamed),
        late_voice: voice.filter(|_| !is_streamed),
        is_calls: name == "tool_calls",
        parser,
        transform,
        transform_each,
        repeats,
        join,
        is_required: !flag("optional", true)?,
    };
    Ok(Region { name: name.to_string(), open, close, inside: Inside::Field(Box::new(field)) })
}

/// A marker: a literal, a list of literals, or an expression.
fn marker(object: &Object, literal: &str, pattern: &str, states: &mut usize) -> Result<Option<Pattern>, String> {
    let compiled = match (object.get(literal), object.get(pattern)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(format!("it has both {literal} and {pattern}")),
        (Some(texts), None) => {
            let texts: Vec<&str> = match texts {
                Json::String(text) => vec![text],
                Json::Array(texts) => texts.iter().filter_map(Json::as_str).collect(),
                _ => Vec::new(),
            };
            let count = object[literal].as_array().map_or(1, Vec::len);
            if texts.is_empty() || texts.len() != count || texts.contains(&"") {
                return Err(format!("{literal} is neither a string nor a list of strings, none of them empty"));
            }
            Pattern::literals(&texts)
        }
        (None, Some(Json::String(text))) => Pattern::python(text),
        (None, Some(_)) => return Err(format!("{pattern} is no string")),
    };
    let compiled = compiled.map_err(|reason| format!("{literal}: {reason}"))?;
    count_states(&compiled, states)?;
    Ok(Some(compiled))
}

fn count_states(pattern: &Pattern, states: &mut usize) -> Result<(), String> {
    *states += pattern.states();
    match *states > limits::ANSWER_STATES {
        true => Err(format!("the expressions have more than {} states together", limits::ANSWER_STATES)),
        false => Ok(()),
    }
}

fn parser(name: Option<&Json>, arguments: Option<&Json>, states: &mut usize, level: usize) -> Result<Parser, String> {
    if level > limits::ANSWER_TEMPLATE_LEVELS {
        return Err(format!("parsers within parsers, more than {} levels", limits::ANSWER_TEMPLATE_LEVELS));
    }
    let empty = Object::new();
    let arguments = match arguments {
        None => &empty,
        Some(Json::Object(arguments)) => arguments,
        Some(_) => return Err("content_args is no object".to_string()),
    };
    let flag = |key: &str, default| arguments.get(key).map_or(default, |flag| flag.as_bool().unwrap_or(default));
    let text = |key: &str, default: &str| match arguments.get(key) {
        None => Ok(default.to_string()),
        Some(Json::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(format!("{key} is no string, or an empty one")),
    };
    let strip = flag("strip", true);
    let mut value_parser = || match arguments.get("value_parser") {
        None | Some(Json::Null) => Ok(None),
        Some(inner) => {
            parser(inner.get("name"), inner.get("args"), states, level + 1).map(|inner| Some(Box::new(inner)))
        }
    };
    match name.map_or(Some("text"), Json::as_str) {
        Some("text") => Ok(Parser::Text { strip }),
        Some("int") => Ok(Parser::Int),
        Some("float") => Ok(Parser::Float),
        Some("bool") => Ok(Parser::Bool),
        Some("json") => {
            let mut quotes = Vec::new();
            for pair in arguments.get("string_delims").and_then(Json::as_array).into_iter().flatten() {
                match (pair.get(0).and_then(Json::as_str), pair.get(1).and_then(Json::as_str)) {
                    (Some(open), Some(close)) if !open.is_empty() && !close.is_empty() => {
                        quotes.push((open.to_string(), close.to_string()));
                    }
                    _ => return Err("string_delims is no list of pairs of strings".to_string()),
                }
            }
            if quotes.len() > limits::ANSWER_TEMPLATE_LEVELS {
                return Err(format!("string_delims has more than {} pairs", limits::ANSWER_TEMPLATE_LEVELS));
            }
            let (has_bare_keys, may_be_text) = (flag("unquoted_keys", false), flag("allow_non_json", false));
            Ok(Parser::Json(JsonDialect { quotes, has_bare_keys, may_be_text, strip }))
        }
        Some("xml-inline") => {
            let value = value_parser()?;
            let Some(Json::String(pattern)) = arguments.get("tag_pattern") else {
                return Err("xml-inline wants a tag_pattern".to_string());
            };
            let pattern = Pattern::python(pattern).map_err(|reason| format!("tag_pattern: {reason}"))?;
            if !pattern.names().any(|name| name == "key") {
                return Err("tag_pattern has no group \"key\"".to_string());
            }
            count_states(&pattern, states)?;
            Ok(Parser::XmlInline { pattern, value, merges: flag("merge_duplicates", false) })
        }
        Some("kv-lines") => Ok(Parser::KvLines {
            value: value_parser()?,
            line_end: text("line_sep", "\n")?,
            separator: text("kv_sep", ":")?,
            strip,
        }),
        _ => Err(format!("the content parser {} is unknown", name.unwrap_or(&Json::Null))),
    }
}
