//! The tools of a request, as JSON text from a client, checked.

use base::error::{Error, Result};
use base::limits;
use serde_json::Value as Json;
use std::collections::HashSet;

/// Bytes of the longest name of a tool.
const NAME_BYTES: usize = 256;

/// Tools that a model may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolList {
    json: Json,
}

/// A tool: a function with a name and parameters.
#[derive(Clone, Copy, Debug)]
pub struct Tool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The JSON schema of its arguments; `None` if it takes none.
    pub parameters: Option<&'a Json>,
    /// Whether it says itself that its schema is binding.
    pub strict: Option<bool>,
}

impl ToolList {
    /// Reads a JSON array of tools: `{"type": "function", "function": {"name", "description", "parameters"}}`, or the inner object.
    ///
    /// # Errors
    ///
    /// [`Error::Json`] for what is no such array, two tools of one name, or more than the limits allow.
    pub fn parse(text: &str) -> Result<ToolList> {
        let wrong = |reason: String| Error::Json { what: "tools", reason };
        if text.len() > limits::MESSAGES_BYTES {
            let limit = limits::MESSAGES_BYTES;
            return Err(wrong(format!("it has {} bytes, but must have at most {limit}", text.len())));
        }
        if limits::json_values(text) > limits::JSON_VALUES {
            return Err(wrong(format!("it has more than {} values, which is the limit", limits::JSON_VALUES)));
        }
        let json = serde_json::from_str::<Json>(text).map_err(|error| wrong(error.to_string()))?;
        let Json::Array(tools) = &json else { return Err(wrong("it must be an array of tools".to_string())) };
        let mut names = HashSet::new();
        for (index, tool) in tools.iter().enumerate() {
            let name = check(tool).map_err(|reason| wrong(format!("tool {index} {reason}")))?;
            if !names.insert(name) {
                return Err(wrong(format!("tool {index} has the name {name:?}, as one before it")));
            }
        }
        Ok(ToolList { json })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The array, as chat templates take it.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// The tools, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Tool<'_>> {
        self.json.as_array().into_iter().flatten().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            Some(Tool {
                name: function.get("name")?.as_str()?,
                parameters: function.get("parameters").filter(|parameters| !parameters.is_null()),
                strict: function.get("strict").and_then(Json::as_bool),
            })
        })
    }
}

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one, whichever the model chooses.
    Required,
    /// The one of this name.
    Named(String),
}

/// How many tools an answer calls at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParallelCalls {
    /// Any number.
    #[default]
    Many,
    /// One.
    One,
}

/// Whether the arguments of a call follow the schema of its tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolSchemas {
    /// They do, unless a tool says `"strict": false`.
    #[default]
    Held,
    /// They are any object, unless a tool says `"strict": true`.
    Loose,
}

/// What a request says about tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolUse {
    /// The tools.
    pub list: ToolList,
    /// Which of them the answer calls.
    pub choice: ToolChoice,
    /// How many.
    pub parallel: ParallelCalls,
    /// What their arguments are.
    pub schemas: ToolSchemas,
}

impl ToolUse {
    /// Refuses a choice that the list does not have.
    ///
    /// # Errors
    ///
    /// [`Error::Option`].
    pub fn check(&self) -> Result<()> {
        let refuse = |field, value: &str, wanted| Err(Error::Option { field, value: value.to_string(), wanted });
        match &self.choice {
            ToolChoice::Required if self.list.is_empty() => {
                refuse("tool_choice", "required", "auto or none where tools has none")
            }
            ToolChoice::Named(name) if !self.list.iter().any(|tool| tool.name == name) => {
                refuse("tool_name", &format!("{name:?}"), "the name of one of tools")
            }
            _ => Ok(()),
        }
    }

    /// The tools that a chat template tells the model of: none if it is to call none.
    pub fn told(&self) -> Option<&Json> {
        let is_told = self.choice != ToolChoice::None && !self.list.is_empty();
        is_told.then(|| self.list.json())
    }
}

/// The name of a tool, or what is wrong with the tool.
fn check(tool: &Json) -> std::result::Result<&str, String> {
    if !tool.is_object() {
        return Err("is no object".to_string());
    }
    match tool.get("type") {
        None => {}
        Some(Json::String(kind)) if kind == "function" => {}
        Some(kind) => return Err(format!("has the type {kind}, but must have \"function\"")),
    }
    let function = tool.get("function").unwrap_or(tool);
    if !function.is_object() {
        return Err("has a \"function\" that is no object".to_string());
    }
    let Some(name) = function.get("name").and_then(Json::as_str) else {
        return Err("has no \"name\" that is a string".to_string());
    };
    // What every format of calls can write.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(is_plain) {
        return Err(format!(
            "has the name {:?}, but a name has from 1 to {NAME_BYTES} letters, digits, '_', '-' and '.'",
            &name[..name.floor_char_boundary(NAME_BYTES)]
        ));
    }
    match function.get("parameters") {
        None | Some(Json::Null | Json::Object(_)) => {}
        Some(_) => {
            return Err(format!("({name:?}) has \"parameters\" that are no JSON schema: they must be an object"));
        }
    }
    match function.get("strict") {
        None | Some(Json::Null | Json::Bool(_)) => Ok(name),
        Some(_) => Err(format!("({name:?}) has a \"strict\" that is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_read_with_and_without_the_outer_object() {
        let list = ToolList::parse(
            r#"[{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}, "strict": true}}, {"name": "b.c-d"}]"#,
        )
        .expect("two tools");
        let tools: Vec<_> = list.iter().map(|tool| (tool.name, tool.parameters.is_some(), tool.strict)).collect();
        assert_eq!(tools, [("a", true, Some(true)), ("b.c-d", false, None)]);
    }

    #[test]
    fn what_is_no_list_of_tools_is_refused_by_its_place() {
        for (text, wanted) in [
            ("{}", "it must be an array of tools"),
            ("[", "EOF"),
            ("[1]", "tool 0 is no object"),
            (r#"[{"name": "a"}, {"type": "custom", "name": "b"}]"#, r#"tool 1 has the type "custom""#),
            (r#"[{"function": []}]"#, "tool 0 has a \"function\" that is no object"),
            (r#"[{"function": {}}]"#, "tool 0 has no \"name\""),
            (r#"[{"name": "a b"}]"#, "tool 0 has the name \"a b\", but a name has"),
            (r#"[{"name": ""}]"#, "tool 0 has the name \"\""),
            (r#"[{"name": "a"}, {"name": "a"}]"#, "tool 1 has the name \"a\", as one before it"),
            (r#"[{"name": "a", "parameters": []}]"#, "tool 0 (\"a\") has \"parameters\" that are no JSON schema"),
            (r#"[{"name": "a", "strict": 1}]"#, "tool 0 (\"a\") has a \"strict\""),
        ] {
            let message = ToolList::parse(text).expect_err("refused").to_string();
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }
}
