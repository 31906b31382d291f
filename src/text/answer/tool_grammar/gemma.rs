//! A JSON schema as a grammar of values in Gemma 4's notation: keys without quotation marks, strings between `<|"|>`, and else JSON.

use super::{ANNOTATIONS, Lark, followed, guided_schema, quoted};
use crate::answer::tools::Tool;
use serde_json::{Map, Value as Json, json};

/// What is around a string.
const QUOTE: &str = "<|\"|>";

/// Rules of one tool: more of them come of schemas that repeat others within others.
const RULES: usize = 2000;

/// Schemas within schemas.
const DEPTH: usize = 24;

type Held = std::result::Result<String, String>;

/// The values of one tool.
struct Values<'s> {
    /// The schema of its arguments, which references lead into.
    root: &'s Json,
    tool: usize,
    rules: usize,
}

impl Lark<'_> {
    /// The arguments of a tool: the name of their rule.
    pub(super) fn gemma(&mut self, index: usize, tool: &Tool, is_held: bool) -> Held {
        let none = json!({"type": "object", "properties": {}});
        let any = json!({"type": "object"});
        let root = match (is_held, tool.parameters) {
            (true, Some(parameters)) => parameters,
            (true, None) => &none,
            (false, _) => &any,
        };
        if root.get("type").is_some_and(|kind| kind != "object") {
            return Err("the parameters must have the type \"object\"".to_string());
        }
        let mut values = Values { root, tool: index, rules: 0 };
        match root.get("properties") {
            None if !is_held => Ok(self.gemma_any("gemma_object")),
            _ => self.gemma_object(&mut values, root, 0),
        }
    }

    /// Any value, or any object.
    fn gemma_any(&mut self, name: &str) -> String {
        if !self.rules.contains("\ngemma_any:") {
            let text = self.gemma_text();
            self.rule("GEMMA_KEY", "/[A-Za-z0-9_]{1,40}/");
            let list = "\"[\" (gemma_any (\",\" gemma_any)*)? \"]\"";
            let scalar = json!({"type": ["number", "boolean", "null"]});
            self.rule("gemma_any", &format!("{text} | %json {scalar} | gemma_object | {list}"));
            let entry = "GEMMA_KEY \":\" gemma_any";
            self.rule("gemma_object", &format!("\"{{\" ({entry} (\",\" {entry})*)? \"}}\""));
        }
        name.to_string()
    }

    /// Any string.
    fn gemma_text(&mut self) -> String {
        if !self.rules.contains("\ngemma_text:") {
            let rest = self.until(QUOTE, None);
            let open = self.written(QUOTE);
            self.rule("gemma_text", &format!("{open} {rest}"));
        }
        "gemma_text".to_string()
    }

    fn gemma_rule(&mut self, values: &mut Values, body: &str) -> Held {
        values.rules += 1;
        if values.rules > RULES {
            return Err(format!("the schema takes more than {RULES} rules"));
        }
        let name = format!("gemma_{}_{}", values.tool, values.rules);
        self.rule(&name, body);
        Ok(name)
    }

    fn gemma_value(&mut self, values: &mut Values, schema: &Json, depth: usize) -> Held {
        if depth > DEPTH {
            return Err(format!("more than {DEPTH} schemas are within each other"));
        }
        let schema = followed(values.root, schema)?;
        let Json::Object(entries) = schema else {
            return match schema {
                Json::Bool(true) => Ok(self.gemma_any("gemma_any")),
                _ => Err("a value must not be there".to_string()),
            };
        };
        if let Some(fixed) = entries.get("const") {
            return self.gemma_rule_of_values(values, std::slice::from_ref(fixed));
        }
        if let Some(fixed) = entries.get("enum").and_then(Json::as_array) {
            return self.gemma_rule_of_values(values, fixed);
        }
        if let Some((key, choices)) =
            ["anyOf", "oneOf"].iter().find_map(|key| Some((*key, entries.get(*key)?.as_array()?)))
        {
            only(entries, &[key])?;
            let choices = choices.iter().map(|choice| self.gemma_value(values, choice, depth + 1));
            let choices = choices.collect::<std::result::Result<Vec<String>, String>>()?;
            return self.gemma_rule(values, &choices.join(" | "));
        }
        let kinds: Vec<&str> = match entries.get("type") {
            Some(Json::String(kind)) => vec![kind],
            Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
            _ if entries.contains_key("properties") => vec!["object"],
            _ => {
                only(entries, &[])?;
                return Ok(self.gemma_any("gemma_any"));
            }
        };
        let mut choices = Vec::new();
        for kind in kinds {
            choices.push(match kind {
                "object" => self.gemma_object(values, schema, depth)?,
                "array" => self.gemma_list(values, entries, depth)?,
                "string" => {
                    only(entries, &["type"])?;
                    self.gemma_text()
                }
                // JSON's notation of these is Gemma's.
                "integer" | "number" | "boolean" | "null" => {
                    let mut alone = entries.clone();
                    alone.insert("type".to_string(), kind.into());
                    format!("%json {}", guided_schema(Json::Object(alone))?)
                }
                other => return Err(format!("the type {other:?} is none of JSON")),
            });
        }
        self.gemma_rule(values, &choices.join(" | "))
    }

    fn gemma_rule_of_values(&mut self, values: &mut Values, fixed: &[Json]) -> Held {
        if fixed.is_empty() {
            return Err("a value has no possible value".to_string());
        }
        let written = fixed.iter().map(|value| Ok(self.spelled(&notation(value)?, quoted)));
        let written = written.collect::<std::result::Result<Vec<String>, String>>()?;
        self.gemma_rule(values, &written.join(" | "))
    }

    fn gemma_list(&mut self, values: &mut Values, entries: &Map<String, Json>, depth: usize) -> Held {
        only(entries, &["type", "items", "minItems", "maxItems"])?;
        let item = match entries.get("items") {
            Some(items) => self.gemma_value(values, items, depth + 1)?,
            None => self.gemma_any("gemma_any"),
        };
        let count = |key: &str| entries.get(key).and_then(Json::as_u64);
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        if most.is_some_and(|most| most < least) {
            return Err("maxItems is below minItems".to_string());
        }
        let more = match (least.max(1) - 1, most) {
            (least, None) => format!("(\",\" {item}){{{least},}}"),
            (least, Some(most)) => format!("(\",\" {item}){{{least},{}}}", most.max(1) - 1),
        };
        let all = match (least, most) {
            (_, Some(0)) => String::new(),
            (0, _) => format!("({item} {more})?"),
            _ => format!("{item} {more}"),
        };
        self.gemma_rule(values, &format!("\"[\" {all} \"]\""))
    }

    fn gemma_object(&mut self, values: &mut Values, schema: &Json, depth: usize) -> Held {
        let entries = schema.as_object().ok_or("a schema must be an object")?;
        let known = [
            "type",
            "properties",
            "required",
            "additionalProperties",
            "$defs",
            "definitions",
            "$schema",
            "$id",
            "strict",
        ];
        only(entries, &known)?;
        let (empty, any) = (Map::new(), Json::Bool(true));
        let properties = entries.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let required: Vec<&str> =
            entries.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let unlisted = required.iter().filter(|key| !properties.contains_key(**key)).map(|key| (*key, &any));
        let listed = properties.iter().map(|(key, schema)| (key.as_str(), schema));
        // Behind the last one nothing follows. Backwards: what may follow an entry, and what may come first.
        let (mut rest, mut first) = (String::new(), String::new());
        let all: Vec<(&str, &Json)> = listed.chain(unlisted).collect();
        for (key, schema) in all.into_iter().rev() {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if key.is_empty() || !key.bytes().all(is_plain) {
                return Err(format!("the name {key:?} cannot be written without quotation marks"));
            }
            let value = self.gemma_value(values, schema, depth + 1).map_err(|reason| format!("{key:?}: {reason}"))?;
            let entry = format!("{} {value}", quoted(&format!("{key}:")));
            let is_required = required.contains(&key);
            let optional = if is_required { "" } else { "?" };
            let later = self.gemma_rule(values, &format!("(\",\" {entry}){optional} {rest}"))?;
            let alone = if is_required { String::new() } else { format!(" | {first}") };
            let alone = if alone == " | " { " | \"\"".to_string() } else { alone };
            first = self.gemma_rule(values, &format!("{entry} {rest}{alone}"))?;
            rest = later;
        }
        self.gemma_rule(values, &format!("\"{{\" {first} \"}}\""))
    }
}

/// Refuses keys that nobody holds.
fn only(entries: &Map<String, Json>, known: &[&str]) -> std::result::Result<(), String> {
    match entries.keys().find(|key| !known.contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str())) {
        Some(key) => Err(format!("{key:?} cannot be held in Gemma's notation")),
        None => Ok(()),
    }
}

/// A value as the model writes it.
fn notation(value: &Json) -> Held {
    match value {
        Json::String(text) if text.contains(QUOTE) => Err(format!("the value {value} cannot be written")),
        Json::String(text) => Ok(format!("{QUOTE}{text}{QUOTE}")),
        Json::Array(items) => {
            let items = items.iter().map(notation).collect::<std::result::Result<Vec<String>, String>>()?;
            Ok(format!("[{}]", items.join(",")))
        }
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| Ok(format!("{key}:{}", notation(value)?));
            let entries = entries.iter().map(entry).collect::<std::result::Result<Vec<String>, String>>()?;
            Ok(format!("{{{}}}", entries.join(",")))
        }
        other => Ok(other.to_string()),
    }
}
