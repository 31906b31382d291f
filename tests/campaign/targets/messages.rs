//! Messages and options, which a chat template makes a prompt of.

use super::folders::{Built, with_template};
use super::{json, templates};
use crate::capi::Engine;
use crate::case::{self, Bounds, Input, Session, Target, root};
use crate::random::{self, Rng};
use serde_json::{Value, json};
use std::fs;

const MESSAGES: &str = "messages.json";
const OPTIONS: &str = "options.json";

/// Messages and options, put into the templates of the repository.
pub struct Messages;

impl Target for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 1000, heap_bytes: 64 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        5000
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        let cases: Value =
            serde_json::from_slice(&fs::read(root().join("tests/golden/text/chat/cases.json")).unwrap()).unwrap();
        let list = |value: &Value| -> Vec<Value> {
            match value {
                Value::Object(fields) => fields.values().cloned().collect(),
                Value::Array(items) => items.clone(),
                _ => Vec::new(),
            }
        };
        let options = list(&cases["options"]);
        let talks = list(&cases["conversations"]).into_iter().enumerate();
        let talks =
            talks.map(|(i, talk)| conversation("golden", &talk.to_string(), &options[i % options.len()].to_string()));
        let made =
            hostile_messages().into_iter().map(|(origin, messages, options)| conversation(origin, &messages, &options));
        case::hostile("messages", MESSAGES).into_iter().chain(made).chain(talks).collect()
    }

    fn generate(&self, rng: &mut Rng, corpus: &[Input]) -> Input {
        let from = &corpus[rng.below(corpus.len())];
        let mut changed = |name: &str| {
            let mut bytes = from.bytes(name).to_vec();
            bytes.truncate(32 << 10);
            match serde_json::from_slice::<Value>(&bytes) {
                Ok(mut value) if !rng.one_in(6) => {
                    json::mutate(rng, &mut value, NAMES);
                    value.to_string()
                }
                _ => String::from_utf8_lossy(&random::mutate(rng, bytes, NAMES, &[])).into_owned(),
            }
        };
        let (messages, options) = (changed(MESSAGES), changed(OPTIONS));
        conversation(&format!("{}, changed", from.origin), &messages, &options)
    }

    fn open(&self) -> Box<dyn Session> {
        let built = |(_, bytes): &(String, Vec<u8>)| {
            let built = Built::new(&with_template(bytes));
            Engine::open(&built.0, |config| config.kv_cache_bytes = 1 << 18).expect("the template is good")
        };
        let mut engines: Vec<Engine> = templates::good().iter().map(built).collect();
        engines.push(Engine::demo());
        let texts = engines.iter().map(ask).collect();
        Box::new(Talks { engines, texts })
    }
}

fn conversation(origin: &str, messages: &str, options: &str) -> Input {
    let mut input = Input::of(origin, MESSAGES, messages);
    input.parts.push((OPTIONS.to_owned(), case::Content::Bytes(options.as_bytes().to_vec())));
    input
}

fn ask(engine: &Engine) -> Result<String, (i32, String)> {
    engine.chat(br#"[{"role":"user","content":"Hello there"}]"#, b"")
}

struct Talks {
    engines: Vec<Engine>,
    texts: Vec<Result<String, (i32, String)>>,
}

impl Session for Talks {
    fn run(&mut self, input: &Input) {
        let engine = &self.engines[input.seed as usize % self.engines.len()];
        let _ = engine.chat(input.bytes(MESSAGES), input.bytes(OPTIONS));
    }

    fn probe(&mut self) {
        for (engine, text) in self.engines.iter().zip(&self.texts) {
            if ask(engine) != *text {
                case::violation("a good conversation is put otherwise than before");
            }
        }
    }
}

const NAMES: &[&str] = &[
    "role",
    "content",
    "user",
    "assistant",
    "system",
    "tool",
    "developer",
    "tool_calls",
    "tool_call_id",
    "function",
    "name",
    "arguments",
    "type",
    "text",
    "image",
    "image_url",
    "reasoning_content",
    "thinking",
    "reasoning",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "enable_thinking",
    "messages",
    "parameters",
    "properties",
    "loop",
    "self",
    "range",
    "namespace",
    "raise_exception",
    "tojson",
    "ns",
    "bos_token",
    "eos_token",
    "</think>",
    "<|im_end|>",
    "{{ 1 }}",
    "",
];

/// Conversations that are large, or that cost more than they look.
fn hostile_messages() -> Vec<(&'static str, String, String)> {
    let one = |content: Value| json!([{"role": "user", "content": content}]).to_string();
    let deep = |open: &str, close: &str, n: usize| {
        format!("[{{\"role\":\"user\",\"content\":{}1{}}}]", open.repeat(n), close.repeat(n))
    };
    let tools = |n: usize| json!({"tools": vec![json!({}); n]}).to_string();
    vec![
        ("no messages", "[]".to_owned(), String::new()),
        ("not JSON", "[{".to_owned(), "{".to_owned()),
        ("1 MB of text", one("x".repeat(1 << 20).into()), String::new()),
        ("17 MB of text", one("x".repeat(17 << 20).into()), String::new()),
        (
            "20,000 messages",
            Value::from(vec![json!({"role": "user", "content": "x"}); 20_000]).to_string(),
            String::new(),
        ),
        ("lists 120 deep", deep("[", "]", 120), String::new()),
        ("lists 100,000 deep", deep("[", "]", 100_000), String::new()),
        ("objects 120 deep", deep("{\"a\":", "}", 120), String::new()),
        ("objects 100,000 deep", deep("{\"a\":", "}", 100_000), String::new()),
        ("options 100,000 deep", one("x".into()), format!("{}{}", "{\"a\":[".repeat(50_000), "]}".repeat(50_000))),
        ("20,000 tools", one("x".into()), tools(20_000)),
        ("a million tools", one("x".into()), tools(1_000_000)),
        ("100,000 variables", one("x".into()), {
            let fields: serde_json::Map<String, Value> = (0..100_000).map(|i| (format!("v{i}"), i.into())).collect();
            Value::Object(fields).to_string()
        }),
        ("the same key 100,000 times", one("x".into()), format!("{{{}\"a\":1}}", "\"a\":1,".repeat(100_000))),
        (
            "variables that hide functions",
            one("x".into()),
            json!({"range": 1, "namespace": 1, "raise_exception": 1, "loop": 1, "strftime_now": 1}).to_string(),
        ),
        ("a field that goes on", one("x".into()), json!({"continue_final_message": "x".repeat(100_000)}).to_string()),
        ("numbers", one("1".into()), "{\"a\":1e999,\"b\":-0,\"c\":123456789012345678901234567890}".to_owned()),
        (
            "halves of characters",
            r#"[{"role":"user","content":"\ud800"}]"#.to_owned(),
            r#"{"a":"\udfff\ud800"}"#.to_owned(),
        ),
    ]
}
