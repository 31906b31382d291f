//! Text becomes a value of the type that a tool's JSON schema asks for.
//!
//! The rules are those of transformers (`utils/chat_parsing/response_parser.py`): types are tried in the order of the schema, and a
//! text that is none of them stays a string.

use super::value::{json, python_number};
use serde_json::{Map, Value as Json};

/// Unions within unions of a schema that are looked at.
const UNION_LEVELS: usize = 16;

/// The tools of a request, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    /// Their parameters.
    by_name: Map<String, Json>,
}

impl Tools {
    /// Reads a list of tools, as chat templates get it: `{"type": "function", "function": {"name", "parameters"}}`, or the inner object.
    pub(super) fn new(tools: &Json) -> Tools {
        let mut by_name = Map::new();
        for tool in tools.as_array().into_iter().flatten() {
            let function = tool.get("function").unwrap_or(tool);
            if let Some(name) = function.get("name").and_then(Json::as_str) {
                let parameters = function.get("parameters").cloned();
                by_name.insert(name.to_string(), parameters.unwrap_or(Json::Null));
            }
        }
        Tools { by_name }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// The types of an argument, none if nothing is known of it.
    pub(super) fn types(&self, tool: &str, argument: &str) -> Vec<String> {
        let mut types = Vec::new();
        if let Some(root) = self.by_name.get(tool)
            && let Some(schema) = root.get("properties").and_then(|properties| properties.get(argument))
        {
            collect_types(root, schema, UNION_LEVELS, &mut types);
        }
        types
    }
}

fn collect_types(root: &Json, schema: &Json, levels: usize, types: &mut Vec<String>) {
    if let Some(reference) = schema.get("$ref").and_then(Json::as_str)
        && let Some(target) = reference.strip_prefix('#').and_then(|path| root.pointer(path))
        && levels > 0
    {
        return collect_types(root, target, levels - 1, types);
    }
    match schema.get("type") {
        Some(Json::String(name)) => types.push(name.clone()),
        Some(Json::Array(names)) => types.extend(names.iter().filter_map(|name| name.as_str().map(str::to_string))),
        _ => {}
    }
    for union in ["anyOf", "oneOf"] {
        for choice in schema.get(union).and_then(Json::as_array).into_iter().flatten() {
            if levels > 0 {
                collect_types(root, choice, levels - 1, types);
            }
        }
    }
    let is_nullable = schema.get("nullable").and_then(Json::as_bool).unwrap_or(false);
    if is_nullable && !types.iter().any(|name| name == "null") {
        types.push("null".to_string());
    }
}

/// `text` as the first of `types` that it can be, or as a string.
pub(super) fn typed(text: &str, types: &[String]) -> Json {
    types.iter().find_map(|name| of_type(text, name)).unwrap_or_else(|| Json::from(text))
}

fn of_type(text: &str, name: &str) -> Option<Json> {
    let trimmed = text.trim();
    match name {
        "integer" => {
            let number = python_number(trimmed)?;
            match number.is_f64() {
                false => Some(number),
                true => whole(number.as_f64()?),
            }
        }
        "number" => {
            let number = python_number(trimmed)?;
            match number.is_f64() && !text.contains('.') {
                true => whole(number.as_f64()?).or(Some(number)),
                false => Some(number),
            }
        }
        "boolean" => match trimmed.to_lowercase().as_str() {
            "true" | "1" => Some(Json::Bool(true)),
            "false" | "0" => Some(Json::Bool(false)),
            _ => None,
        },
        "null" => matches!(trimmed, "null" | "None").then_some(Json::Null),
        "object" => json(text).filter(Json::is_object),
        "array" => json(text).filter(Json::is_array),
        _ => None,
    }
}

/// A number without a fraction, as an integer.
fn whole(number: f64) -> Option<Json> {
    (number.fract() == 0.0 && number.abs() < 9e18).then(|| Json::from(number as i64))
}

/// Gives the arguments of a call the types of its tool's schema, if they are strings.
pub(super) fn type_arguments(call: &mut Json, tools: &Tools) {
    if let Json::Array(calls) = call {
        calls.iter_mut().for_each(|call| type_arguments(call, tools));
        return;
    }
    let Some(function) = call.get_mut("function") else { return };
    let Some(name) = function.get("name").and_then(Json::as_str).map(str::to_string) else { return };
    let Some(Json::Object(arguments)) = function.get_mut("arguments") else { return };
    for (key, argument) in arguments {
        let types = tools.types(&name, key);
        if types.is_empty() {
            continue;
        }
        match argument {
            Json::String(text) => *argument = typed(text, &types),
            // Equal keys that `merge_duplicates` has made a list.
            Json::Array(items) if !types.iter().any(|name| name == "array") => {
                for item in items {
                    if let Json::String(text) = item {
                        *item = typed(text, &types);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value_of;

    #[test]
    fn a_text_has_the_first_type_of_its_schema_that_it_can_have() {
        let tools = Tools::new(
            &value_of!([{"type": "function", "function": {"name": "f", "parameters": {"properties": {
            "text": {"type": "string"}, "whole": {"type": "integer"}, "number": {"type": "number"}, "flag": {"type": "boolean"},
            "list": {"type": "array"}, "object": {"type": "object"}, "maybe": {"type": "integer", "nullable": true},
            "union": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "types": {"type": ["string", "null"]},
            "any": {"description": "no type"}}}}}]),
        );
        let cases = [
            ("text", "12", value_of!("12")),
            ("whole", "12", value_of!(12)),
            ("whole", " 3.0 ", value_of!(3)),
            ("whole", "3.5", value_of!("3.5")),
            ("number", "3.50", value_of!(3.5)),
            ("number", "3", value_of!(3)),
            ("number", "1e2", value_of!(100)),
            ("number", "nan", value_of!("nan")),
            ("flag", "True", value_of!(true)),
            ("flag", "0", value_of!(false)),
            ("flag", "yes", value_of!("yes")),
            ("list", "[1, \"a\"]", value_of!([1, "a"])),
            ("list", "{}", value_of!("{}")),
            ("object", "{\"a\": {}}", value_of!({"a": {}})),
            ("maybe", "None", value_of!(null)),
            ("maybe", "4", value_of!(4)),
            ("union", "5", value_of!(5)),
            ("union", "five", value_of!("five")),
            ("types", "null", value_of!(null)),
            ("any", "5", value_of!("5")),
            ("unknown", "5", value_of!("5")),
        ];
        for (argument, text, wanted) in cases {
            assert_eq!(typed(text, &tools.types("f", argument)), wanted, "{argument} {text}");
        }
        assert!(tools.types("g", "whole").is_empty(), "a tool that is unknown");
    }
}
