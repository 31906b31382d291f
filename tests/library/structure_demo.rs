//! Structured output of the demo model: generations under three schemas all parse, and are what the schema says.

use engine::options::EngineOptions;
use engine::output::Finish;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use text::structure::Structure;

/// Answers under each of the three schemas: two hundred in all.
const GENERATIONS: u64 = 67;

type Check = fn(&Value) -> bool;

/// Schemas whose texts end, and by hand what they say.
const SCHEMAS: &[(&str, &str, Check)] = &[
    (
        "a flat object",
        r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150}, "role": {"enum": ["admin", "editor", "reader"]},
            "active": {"type": "boolean"}}, "required": ["name", "age", "role"], "additionalProperties": false}"#,
        |value| {
            let fields: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            fields.is_subset(&["name", "age", "role", "active"].into())
                && value["name"].as_str().unwrap().chars().count() <= 12
                && (0.0..=150.0).contains(&whole(&value["age"]))
                && ["admin", "editor", "reader"].contains(&value["role"].as_str().unwrap())
                && value.get("active").is_none_or(Value::is_boolean)
        },
    ),
    (
        "a list of objects by reference",
        r##"{"$defs": {"prime": {"type": "object", "properties": {"value": {"enum": [2, 3, 5, 7, 11, 13]},
            "note": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-z]{1,6}( [a-z]{1,6})?$"}]}},
            "required": ["value", "note"], "additionalProperties": false}}, "type": "object", "properties": {"limit":
            {"const": 13}, "primes": {"type": "array", "items": {"$ref": "#/$defs/prime"}, "minItems": 1, "maxItems": 4}},
            "required": ["limit", "primes"], "additionalProperties": false}"##,
        |value| {
            let primes = value["primes"].as_array().unwrap();
            let is_note = |note: &str| {
                let words: Vec<&str> = note.split(' ').collect();
                let is_word =
                    |word: &&str| (1..=6).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
                words.len() <= 2 && words.iter().all(is_word)
            };
            let is_prime = |prime: &Value| {
                prime.as_object().unwrap().len() == 2
                    && [2.0, 3.0, 5.0, 7.0, 11.0, 13.0].contains(&whole(&prime["value"]))
                    && prime.get("note").is_some_and(|note| note.is_null() || is_note(note.as_str().unwrap()))
            };
            value["limit"] == 13 && (1..=4).contains(&primes.len()) && primes.iter().all(is_prime)
        },
    ),
    (
        "a choice of forms",
        r#"{"anyOf": [{"type": "object", "properties": {"tool": {"const": "add"}, "terms": {"type": "array", "items":
            {"type": "integer", "minimum": -9, "maximum": 9}, "minItems": 2, "maxItems": 3}}, "required": ["tool", "terms"],
            "additionalProperties": false}, {"type": "object", "properties": {"tool": {"const": "when"}, "date":
            {"type": "string", "format": "date"}, "ratio": {"type": "number", "minimum": 0, "maximum": 1,
            "multipleOf": 0.25}}, "required": ["tool", "date"], "additionalProperties": false}]}"#,
        |value| match value["tool"].as_str().unwrap() {
            "add" => {
                let terms = value["terms"].as_array().unwrap();
                (2..=3).contains(&terms.len()) && terms.iter().all(|term| (-9.0..=9.0).contains(&whole(term)))
            }
            "when" => {
                let date: Vec<u32> =
                    value["date"].as_str().unwrap().split('-').map(|part| part.parse().unwrap()).collect();
                let ratio = value.get("ratio").map_or(0.0, |ratio| ratio.as_f64().unwrap());
                date.len() == 3
                    && (1..=12).contains(&date[1])
                    && (1..=31).contains(&date[2])
                    && (0.0..=1.0).contains(&ratio)
                    && (ratio * 4.0).fract() == 0.0
            }
            other => panic!("tool {other}"),
        },
    ),
];

/// A number without a fraction; zero may have a sign, which no integer of serde_json has.
fn whole(value: &Value) -> f64 {
    let number = value.as_f64().unwrap();
    assert_eq!(number.fract(), 0.0);
    number
}

fn open() -> Engine {
    let mut options = EngineOptions::new(crate::tree::root().join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.max_model_len = Some(512);
    options.max_num_seqs = Some(32);
    options.kv_cache_bytes = Some(64 << 20);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn chat(engine: &Engine, text: &str) -> String {
    let messages = serde_json::json!([{"role": "user", "content": text}]).to_string();
    engine.handle().chat_template().unwrap().render(&messages, "").unwrap()
}

/// Text and finish of each request in the order of their tags.
fn run(engine: &mut Engine, requests: usize) -> Vec<(String, Option<Finish>)> {
    let mut answers = vec![(String::new(), None); requests];
    let handle = engine.handle().clone();
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            let answer = &mut answers[output.tag as usize];
            answer.0.push_str(&output.text);
            answer.1.clone_from(&output.finish);
        }
    }
    answers
}

#[test]
fn two_hundred_generations_under_three_schemas_parse_and_are_what_these_say() {
    let mut engine = open();
    let prompt = chat(&engine, "introduce yourself");
    for (name, schema, check) in SCHEMAS {
        for i in 0..GENERATIONS {
            let params = SamplingParams {
                tag: i,
                // From what the model thinks likely to nearly anything.
                temperature: [0.0, 0.7, 1.5, 8.0][i as usize % 4],
                seed: Some(1000 + i),
                structure: Some(Structure::JsonSchema((*schema).to_owned()).into()),
                ..SamplingParams::default()
            };
            engine.handle().add_request(Prompt::Text(&prompt), params).unwrap();
        }
        let answers = run(&mut engine, GENERATIONS as usize);
        let mut texts = BTreeSet::new();
        for (text, finish) in &answers {
            assert!(matches!(finish, Some(Finish::Stop)), "{name}: {finish:?} after {text:?}");
            let value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error} in {text:?}"));
            assert!(check(&value), "{name}: {text}");
            texts.insert(text);
        }
        assert!(texts.len() > 30, "{name}: {} different texts", texts.len());
    }
}

#[test]
fn any_json_is_json_and_a_structure_that_the_answer_fits_changes_nothing() {
    let mut engine = open();
    let prompt = chat(&engine, "list all prime numbers within 50");
    let free = SamplingParams { tag: 0, ..SamplingParams::default() };
    let fits = Structure::Regex("Prime numbers within [0-9]+: [0-9]+(, [0-9]+)*\\.".to_owned());
    let held = SamplingParams { tag: 1, structure: Some(fits.into()), ..SamplingParams::default() };
    let json = Structure::JsonSchema("{}".to_owned());
    let json =
        SamplingParams { tag: 2, max_tokens: Some(60), structure: Some(json.into()), ..SamplingParams::default() };
    let list = Structure::Lark("start: \"[\" NUMBER (\", \" NUMBER){2,5} \"]\"\nNUMBER: /[1-9][0-9]?/\n".to_owned());
    let list = SamplingParams { tag: 3, structure: Some(list.into()), eos: Eos::Ignored, ..SamplingParams::default() };
    for params in [free, held, json, list] {
        engine.handle().add_request(Prompt::Text(&prompt), params).unwrap();
    }
    let answers = run(&mut engine, 4);
    assert_eq!(answers[0].0, answers[1].0);
    assert!(answers[0].0.ends_with("43, 47."), "{}", answers[0].0);
    let first = answers[2].0.trim_start().chars().next().unwrap();
    assert!("{[\"-0123456789tfn".contains(first), "{}", answers[2].0);
    if matches!(answers[2].1, Some(Finish::Stop)) {
        serde_json::from_str::<Value>(&answers[2].0).unwrap();
    }
    let list: Vec<u32> = serde_json::from_str(&answers[3].0).unwrap();
    assert!((3..=6).contains(&list.len()) && list.iter().all(|number| (1..100).contains(number)), "{list:?}");
}
