//! The messages and options of one conversation, as JSON text, checked.

use super::REASONING_FIELDS;
use base::error::{Error, Result};
use base::limits;
use serde_json::{Map, Value as Json};

/// What a call of [`render`](super::ChatTemplate::render) asks for besides the messages.
pub(super) struct Request {
    /// Variables of the template.
    pub variables: Map<String, Json>,
    /// The field of the last message that the model goes on with, in place of an answer of its own.
    pub continued_field: Option<String>,
}

/// Bounds what a JSON text becomes in memory: a value takes some hundred bytes, however short it is written.
fn check_size(what: &'static str, text: &str) -> Result<()> {
    if text.len() > limits::MESSAGES_BYTES {
        let reason = format!("it has {} bytes, but must have at most {}", text.len(), limits::MESSAGES_BYTES);
        return Err(Error::Json { what, reason });
    }
    if limits::json_values(text) > limits::JSON_VALUES {
        let reason = format!("it has more than {} values, which is the limit", limits::JSON_VALUES);
        return Err(Error::Json { what, reason });
    }
    Ok(())
}

/// The messages, without entries that are null: to a template they are the same as missing ones.
pub(super) fn parse_messages(messages: &str) -> Result<Vec<Map<String, Json>>> {
    check_size("messages", messages)?;
    let wrong = |reason: String| Error::Json { what: "messages", reason };
    let parsed = serde_json::from_str::<Json>(messages).map_err(|error| wrong(error.to_string()))?;
    let Json::Array(parsed) = parsed else {
        return Err(wrong("it must be an array of messages".to_string()));
    };
    if parsed.is_empty() {
        return Err(wrong("it must contain at least one message".to_string()));
    }
    let mut checked = Vec::with_capacity(parsed.len());
    for (index, message) in parsed.into_iter().enumerate() {
        let Json::Object(mut message) = message else {
            return Err(wrong(format!("message {index} is not an object")));
        };
        message.retain(|_, value| !value.is_null());
        if !message.get("role").is_some_and(Json::is_string) {
            return Err(wrong(format!("message {index} has no \"role\" that is a string")));
        }
        checked.push(with_reasoning_names(message));
    }
    Ok(checked)
}

/// Passes reasoning under the names that templates read, whatever name it came under.
fn with_reasoning_names(message: Map<String, Json>) -> Map<String, Json> {
    let Some(reasoning) = REASONING_FIELDS.into_iter().find_map(|name| message.get(name)).cloned() else {
        return message;
    };
    let mut named = Map::new();
    named.insert("thinking".to_string(), reasoning.clone());
    named.extend(message);
    named.insert("reasoning_content".to_string(), reasoning);
    named
}

/// The options, an object or nothing.
pub(super) fn parse_options(options: &str) -> Result<Request> {
    check_size("options", options)?;
    let wrong = |reason: String| Error::Json { what: "options", reason };
    let mut variables = if options.trim().is_empty() {
        Map::new()
    } else {
        match serde_json::from_str(options).map_err(|error| wrong(error.to_string()))? {
            Json::Object(variables) => variables,
            _ => return Err(wrong("it must be an object".to_string())),
        }
    };
    if variables.contains_key("messages") {
        return Err(wrong("\"messages\" is an argument of its own".to_string()));
    }
    for name in ["tools", "documents"] {
        // A template may ask `tools is not none`, so a list that was not given is none rather than undefined.
        let list = variables.entry(name).or_insert(Json::Null);
        let objects = list.as_array().is_some_and(|items| items.iter().all(Json::is_object));
        if !objects && !list.is_null() {
            return Err(wrong(format!("\"{name}\" must be an array of objects")));
        }
    }
    let continued_field = match variables.shift_remove("continue_final_message") {
        None | Some(Json::Null | Json::Bool(false)) => None,
        Some(Json::Bool(true)) => Some("content".to_string()),
        Some(Json::String(field)) => Some(field),
        Some(_) => {
            return Err(wrong("\"continue_final_message\" must be true, false or the name of a field".to_string()));
        }
    };
    let add_generation_prompt =
        variables.entry("add_generation_prompt").or_insert(Json::Bool(continued_field.is_none()));
    match add_generation_prompt {
        Json::Bool(true) if continued_field.is_some() => Err(wrong(
            "\"continue_final_message\" goes on with the last message, \"add_generation_prompt\" begins a new one: \
             only one of them may be true"
                .to_string(),
        )),
        Json::Bool(_) => Ok(Request { variables, continued_field }),
        _ => Err(wrong("\"add_generation_prompt\" must be true or false".to_string())),
    }
}
