//! What does a structure cost on the host: the compilation of its text, the copy per request, and the mask per token?
//!
//! ```text
//! cargo bench --bench structure [FOLDER]
//! ```
//!
//! FOLDER contains a tokenizer.json; the default is that of the demo model. For each structure, a conforming text is tokenized,
//! and its tokens are consumed as a sequence does it: the first token makes the copy. Times are in microseconds.

use formats::source::Source;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::answer::{Begun, Format, Marks, ToolChoice, ToolList, ToolUse};
use text::structure::{Follower, Structure, Structures, Wanted};
use text::tokenizer::{AddedTokens, Encoding, SpelledTokens, Tokenizer};

/// Copies that follow the text.
const REQUESTS: usize = 30;

struct Case {
    name: &'static str,
    structure: Structure,
    text: String,
}

fn cases() -> Vec<Case> {
    let json = |text: &str| Structure::JsonSchema(text.to_owned());
    let person = r#"{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0,
        "maximum": 150}, "role": {"enum": ["admin", "editor", "reader"]}}, "required": ["name", "age", "role"],
        "additionalProperties": false}"#;
    let order = r##"{"$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "city": {"type": "string", "maxLength": 40}},
        "required": ["street", "zip", "city"]}}, "type": "object", "properties": {"id": {"type": "string", "format": "uuid"},
        "placed": {"type": "string", "format": "date-time"}, "to": {"$ref": "#/$defs/address"}, "items": {"type": "array",
        "minItems": 1, "maxItems": 20, "items": {"type": "object", "properties": {"sku": {"type": "string"},
        "count": {"type": "integer", "minimum": 1}, "price": {"type": "number"}, "gift": {"type": "boolean"}},
        "required": ["sku", "count", "price"]}}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["id", "placed", "to", "items"]}"##;
    let items: Vec<String> = (1..=6)
        .map(|i| format!(r#"{{"sku": "tin-{i}-of-green-paint", "count": {i}, "price": {i}.25, "gift": false}}"#))
        .collect();
    let order_text = format!(
        r#"{{"id": "2f1b6a3c-9d0e-4c6f-8a57-0b1c2d3e4f50", "placed": "2026-03-14T09:26:53Z", "to": {{"street": "12 Long Lane", "zip": "10115", "city": "Berlin"}}, "items": [{}], "note": "Leave it with the neighbours, please."}}"#,
        items.join(", ")
    );
    let any_text = r#"{"title": "A walk in the woods", "tags": ["forest", "autumn", "rain"], "length": {"km": 12.5, "hours": 3}, "stops": [{"name": "the old mill", "km": 4}, {"name": "a bench with a view", "km": 9}], "open": true, "closed": null}"#;
    let arithmetic = "start: expr\nexpr: term ((\"+\" | \"-\") term)*\nterm: factor ((\"*\" | \"/\") factor)*\n\
        factor: NUMBER | \"(\" expr \")\"\nNUMBER: /[0-9]+(\\.[0-9]+)?/\n%ignore / {1,4}/\n";
    vec![
        Case {
            name: "object of three fields",
            structure: json(person),
            text: r#"{"name": "Grace Brewster Murray Hopper", "age": 85, "role": "admin"}"#.to_owned(),
        },
        Case { name: "order with items", structure: json(order), text: order_text },
        Case { name: "any JSON", structure: json("{}"), text: any_text.to_owned() },
        Case {
            name: "regular expression",
            structure: Structure::Regex(r"([A-Z][a-z]+ ){2,6}\d{4}-\d{2}-\d{2}".to_owned()),
            text: "Long Day In The Garden 2026-03-14".to_owned(),
        },
        Case {
            name: "Lark arithmetic",
            structure: Structure::Lark(arithmetic.to_owned()),
            text: "(12 + 30.5) * 7 - 4 / (2 + 2 * (19 - 3))".to_owned(),
        },
    ]
}

/// A call, and text, under the grammar of a tool in the format of Hermes.
fn tool_cases(tokenizer: &Tokenizer, vocab_size: usize) -> Vec<Case> {
    let tools = r#"[{"name": "hire", "parameters": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type":
        "integer", "minimum": 0, "maximum": 150}, "role": {"enum": ["admin", "editor", "reader"]}}, "required": ["name", "age",
        "role"], "additionalProperties": false}}]"#;
    let call = r#"{"name": "hire", "arguments": {"name": "Grace Brewster Murray Hopper", "age": 85, "role": "admin"}}"#;
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let said = "It is a pleasure to tell you about <the> sea, which is [as all of us know] deep & 'blue'. ".repeat(4);
    let format = Format::of_chat_template("<tool_call>");
    let marks = Marks::new(tokenizer, vocab_size);
    let case = |name, choice, text: String| {
        let list = ToolList::parse(tools).expect("tools");
        let tools = ToolUse { list, choice, ..ToolUse::default() };
        let grammar = format.tool_grammar(&tools, Begun::Content, &marks, &[]).expect("a grammar").expect("a choice");
        Case { name, structure: Structure::Lark(grammar), text }
    };
    vec![
        case("a required tool", ToolChoice::Required, call.clone()),
        case("text before a tool", ToolChoice::Auto, said.clone()),
        case("a tool after text", ToolChoice::Auto, call),
    ]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Follows `tokens`, and tells what each token and the mask after it took.
fn follow(structures: &Structures, answer: &mut Follower, tokens: &[u32]) -> Vec<f64> {
    (1..=tokens.len())
        .map(|known| {
            let late = structures.late_masks().expect("there is a structure");
            let started = Instant::now();
            late.begin(None);
            // Another process may have had the processor for so long that the mask is late.
            while answer
                .advance(&tokens[..known], Wanted::Mask, &[])
                .map(|standing| standing.expect("it fits"))
                .is_none()
            {
                late.begin(None);
                std::thread::yield_now();
            }
            micros(started.elapsed())
        })
        .collect()
}

fn share(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo"));
    let tokenizer = Arc::new(
        Tokenizer::open(&Source::open(&folder).expect("a folder"))
            .expect("a tokenizer.json")
            .expect("a tokenizer.json"),
    );
    let vocab_size = tokenizer.vocab_size();
    let structures = Structures::new(Some(tokenizer.clone()), vocab_size);
    let started = Instant::now();
    structures.compile(&Structure::Regex("a".to_owned())).expect("a good expression");
    println!("{vocab_size} tokens; the first request of all: {:.1} ms", micros(started.elapsed()) / 1e3);
    println!(
        "{:<24} {:>7} {:>9} {:>7} {:>11} {:>9} {:>7} {:>7}",
        "", "tokens", "compile", "copy", "per token:", "mean", "p99", "max"
    );
    for Case { name, structure, text } in cases().into_iter().chain(tool_cases(&tokenizer, vocab_size)) {
        let plain = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
        let tokens = tokenizer.encode(&text, plain).expect("tokens");
        let started = Instant::now();
        let compiled_structure = structures.compile(&structure).expect("a good structure");
        let compiled = micros(started.elapsed());
        let (mut copies, mut masks) = (0.0, Vec::new());
        for _ in 0..REQUESTS {
            let started = Instant::now();
            drop(compiled_structure.matcher());
            copies += micros(started.elapsed());
            let mut answer = Follower::new(structures.opening(&structure, &[]).expect("it is kept"));
            masks.extend(follow(&structures, &mut answer, &tokens));
        }
        let mean = masks.iter().sum::<f64>() / masks.len() as f64;
        masks.sort_by(f64::total_cmp);
        println!(
            "{name:<24} {:>7} {compiled:>9.0} {:>7.0} {:>11} {mean:>9.1} {:>7.0} {:>7.0} {:>7.1}",
            tokens.len(),
            copies / REQUESTS as f64,
            "",
            share(&masks, 0.99),
            share(&masks, 1.0),
            share(&masks, 0.5)
        );
    }
}
