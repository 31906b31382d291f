//! JSON schemas.

use super::{json, regexes};
use crate::random::Rng;
use serde_json::{Map, Value, json};

pub const WORDS: &[&str] = &[
    "\"type\":",
    "\"properties\":{",
    "\"required\":[",
    "\"items\":",
    "\"prefixItems\":[",
    "\"$ref\":\"#\"",
    "\"$defs\":{",
    "\"allOf\":[",
    "\"anyOf\":[",
    "\"oneOf\":[",
    "\"enum\":[",
    "\"const\":",
    "\"pattern\":\"",
    "\"format\":\"date-time\"",
    "\"minimum\":",
    "\"maximum\":",
    "\"exclusiveMinimum\":",
    "\"multipleOf\":",
    "\"minLength\":",
    "\"maxLength\":",
    "\"minItems\":",
    "\"maxItems\":",
    "\"additionalProperties\":",
    "\"patternProperties\":{",
    "\"$id\":\"x\"",
    "\"$anchor\":\"a\"",
    "\"not\":{",
    "\"if\":{",
    "\"x-guidance\":{\"lenient\":true},",
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "\"integer\"",
    "\"number\"",
    "\"string\"",
    "\"object\"",
    "\"array\"",
    "\"#/$defs/a\"",
];

const FORMATS: &[&str] =
    &["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown", "regex"];

/// A schema.
pub fn make(rng: &mut Rng) -> String {
    let mut schema = node(rng, 4);
    if let Value::Object(fields) = &mut schema {
        if rng.one_in(2) {
            let defs: Map<String, Value> =
                ["a", "b", "c"].iter().map(|name| ((*name).to_owned(), node(rng, 2))).collect();
            fields.insert("$defs".to_owned(), Value::Object(defs));
        }
        if rng.one_in(12) {
            fields.insert("x-guidance".to_owned(), guidance(rng));
        }
    }
    schema.to_string()
}

/// Settings of the crate that a schema brings along.
fn guidance(rng: &mut Rng) -> Value {
    json!({
        "whitespace_flexible": rng.one_in(2),
        "lenient": rng.one_in(2),
        "coerce_one_of": rng.one_in(2),
        "item_separator": rng.text(8),
        "whitespace_pattern": regexes::make(rng),
    })
}

fn node(rng: &mut Rng, depth: usize) -> Value {
    if rng.one_in(12) {
        let to = *rng.pick(&[
            "#",
            "#/$defs/a",
            "#/$defs/b",
            "#/$defs/c",
            "#/$defs/d",
            "#a",
            "http://x/y",
            "",
            "#/properties/a",
        ]);
        return json!({ "$ref": to });
    }
    if rng.one_in(30) {
        return Value::Bool(rng.one_in(2));
    }
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    let kind = rng.below(if depth == 0 { 5 } else { 9 });
    match kind {
        0 => {
            set("type", (*rng.pick(&["integer", "number"])).into());
            for name in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"] {
                if rng.one_in(3) {
                    set(name, json::number(rng));
                }
            }
        }
        1 => {
            set("type", "string".into());
            match rng.below(5) {
                0 => set("pattern", regexes::make(rng).into()),
                1 => set("format", (*rng.pick(FORMATS)).into()),
                _ => {}
            }
            for name in ["minLength", "maxLength"] {
                if rng.one_in(4) {
                    set(name, json::number(rng));
                }
            }
        }
        2 => {
            let len = rng.length(300);
            set("enum", (0..len).map(|_| json::make(rng, 1)).collect());
        }
        3 => set("const", json::make(rng, 3)),
        4 => set("type", (*rng.pick(&["boolean", "null", "string", "object", "array", "any"])).into()),
        5 | 6 => {
            set("type", "object".into());
            let names: Vec<String> = (0..rng.length(10)).map(|_| rng.word()).collect();
            set("properties", names.iter().map(|name| (name.clone(), node(rng, depth - 1))).collect());
            if rng.one_in(2) {
                set("required", names.iter().filter(|_| rng.one_in(2)).cloned().collect());
            }
            match rng.below(5) {
                0 => set("additionalProperties", false.into()),
                1 => set("additionalProperties", node(rng, depth - 1)),
                2 => set("patternProperties", Map::from_iter([(regexes::make(rng), node(rng, depth - 1))]).into()),
                _ => {}
            }
            for name in ["minProperties", "maxProperties"] {
                if rng.one_in(8) {
                    set(name, json::number(rng));
                }
            }
        }
        7 => {
            set("type", "array".into());
            match rng.below(3) {
                0 => set("prefixItems", (0..rng.length(20)).map(|_| node(rng, depth - 1)).collect()),
                _ => set("items", node(rng, depth - 1)),
            }
            for name in ["minItems", "maxItems"] {
                if rng.one_in(3) {
                    set(name, json::number(rng));
                }
            }
        }
        _ => {
            let name = *rng.pick(&["allOf", "anyOf", "oneOf"]);
            set(name, (0..rng.length(12)).map(|_| node(rng, depth - 1)).collect());
        }
    }
    Value::Object(fields)
}

/// Schemas that are large, or that cost more than they look.
pub fn hostile() -> Vec<(&'static str, String)> {
    let chain = |len: usize| {
        let level = |i: usize| json!({"properties": {"x": {"$ref": format!("#/$defs/d{}", i + 1)}}});
        let mut defs: Map<String, Value> = (0..len).map(|i| (format!("d{i}"), level(i))).collect();
        defs.insert(format!("d{len}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs}).to_string()
    };
    let patterns =
        |n: usize| -> Value { (0..n).map(|i| json!({"pattern": format!("a{{{i},}}.*b{{{}}}", i + 1)})).collect() };
    let names = |n: usize| -> Vec<String> { (0..n).map(|i| format!("key{i}")).collect() };
    let nested = |open: &str, close: &str, n: usize| format!("{}{{}}{}", open.repeat(n), close.repeat(n));
    vec![
        ("a chain of 22 references", chain(22)),
        ("a chain of 215 references", chain(215)),
        ("a chain of 859 references", chain(859)),
        ("a chain of 2,000 references", chain(2000)),
        ("multipleOf 1000003", json!({"type": "integer", "multipleOf": 1000003}).to_string()),
        ("multipleOf 99991", json!({"type": "integer", "multipleOf": 99991}).to_string()),
        (
            "five prime multiples",
            json!({"type": "integer", "allOf": [{"multipleOf": 101}, {"multipleOf": 103}, {"multipleOf": 107},
                {"multipleOf": 109}, {"multipleOf": 113}]})
            .to_string(),
        ),
        ("39 patterns at once", json!({"type": "string", "allOf": patterns(39)}).to_string()),
        ("a const of 10,000 numbers", json!({"const": (0..10_000).collect::<Vec<_>>()}).to_string()),
        ("a const of 100,000 numbers", json!({"const": vec![7; 100_000]}).to_string()),
        ("10,000 required keys", json!({"type": "object", "required": names(10_000)}).to_string()),
        ("100,000 required keys", json!({"type": "object", "required": vec!["k"; 60_000]}).to_string()),
        ("an enum of 10,000 strings", json!({"enum": names(10_000)}).to_string()),
        ("1,000 properties", {
            let fields: Map<String, Value> =
                names(1000).into_iter().map(|name| (name, json!({"type": "integer"}))).collect();
            json!({"type": "object", "properties": fields}).to_string()
        }),
        ("properties 60 deep", nested(r#"{"properties":{"a":"#, "}}", 60)),
        ("properties 5,000 deep", nested(r#"{"properties":{"a":"#, "}}", 5000)),
        ("anyOf 60 deep", nested(r#"{"anyOf":["#, "]}", 60)),
        ("allOf 100,000 deep", nested(r#"{"allOf":["#, "]}", 20_000)),
        (
            "items of 1,000,000",
            json!({"type": "array", "minItems": 1_000_000, "items": {"type": "integer"}}).to_string(),
        ),
        ("items twice 10,000", {
            let inner = json!({"type": "array", "minItems": 10_000, "maxItems": 10_000, "items": {"enum": names(20)}});
            json!({"type": "array", "minItems": 10_000, "items": inner}).to_string()
        }),
        ("a string of 100,000,000", json!({"type": "string", "minLength": 100_000_000}).to_string()),
        (
            "a string of 100,000 to 200,000",
            json!({"type": "string", "minLength": 100_000, "maxLength": 200_000}).to_string(),
        ),
        (
            "a number of many digits",
            json!({"type": "number", "minimum": 1e-300, "maximum": 1e300, "multipleOf": 1e-300}).to_string(),
        ),
        (
            "oneOf of 300",
            json!({"oneOf": names(300).iter().map(|n| json!({"properties": {n: {}}})).collect::<Vec<_>>()}).to_string(),
        ),
        ("products of alternatives", {
            let pair = json!({"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]});
            json!({"allOf": vec![pair; 24]}).to_string()
        }),
        ("300 KB", json!({"const": "x".repeat(300_000)}).to_string()),
    ]
}
