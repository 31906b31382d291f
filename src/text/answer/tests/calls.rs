//! Whatever a model writes under the grammar of its tools is calls of these tools, valid by their schemas.

use super::*;
use crate::structure::{Standing, Structure, Structures, Wanted};
use crate::tokenizer::Tokenizer;
use base::TokenId;
use std::collections::HashSet;

/// Markers of all formats, which are tokens here unless `SPELLED` has them.
const MARKS: &[&str] = &[
    "<|end_of_text|>",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[THINK]",
    "[/THINK]",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|start|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "｜DSML｜",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<seed:think>",
    "</seed:think>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|tool_call|>",
    "<|python_tag|>",
    "<|python_start|>",
    "<tool_calls>",
    "</tool_calls>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|channel>",
    "<channel|>",
    "<|image|>",
];

/// Chat templates of the formats: what they are found by, and what their variants are.
const TEMPLATES: &[(&str, &str)] = &[
    ("gpt-oss", "<|channel|><|message|>"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS][ARGS]"),
    ("deepseek-v3.2", "｜DSML｜"),
    ("deepseek-v3", "<｜tool▁calls▁begin｜>"),
    ("deepseek-v3", "<｜tool▁calls▁begin｜>```json"),
    ("kimi-k2", "<|tool_calls_section_begin|>"),
    ("minimax-m2", "<minimax:tool_call>"),
    ("minimax-m1", "<tool_calls>"),
    ("glm", "<arg_key>"),
    ("glm", "<arg_key>X</arg_key><arg_value>"),
    ("qwen3-coder", "<function="),
    ("qwen3-coder", "<function=<seed:tool_call>"),
    ("lfm2", "<|tool_call_start|>"),
    ("command", "<|START_ACTION|>"),
    ("granite", "<|tool_call|>"),
    ("gemma4", "<|tool_call>"),
    ("llama4", "<|python_start|>"),
    ("llama3", "<|python_tag|>"),
    ("smollm3", "<tool_call><code>"),
    ("hermes", "<tool_call>"),
];

/// A tokenizer of the 256 bytes, some words, and markers.
fn tokenizer(marks: &[&str]) -> Tokenizer {
    let letter = |byte: u8| -> char {
        // As byte-level tokenizers name bytes.
        let plain = (33..=126).contains(&byte) || (161..=172).contains(&byte) || byte >= 174;
        let before =
            |byte: u8| (0..byte).filter(|&b| !((33..=126).contains(&b) || (161..=172).contains(&b) || b >= 174));
        if plain { char::from(byte) } else { char::from_u32(256 + before(byte).count() as u32).expect("a letter") }
    };
    let mut vocab: Map<String, Json> = (0..=255u8).map(|byte| (letter(byte).to_string(), Json::from(byte))).collect();
    for word in ["\":", "{\"", "\"}", "},", ">\n", "</", "true", "<tool_", "call>", "para", "name", "}}"] {
        let spelled: String = word.bytes().map(letter).collect();
        let id = vocab.len();
        vocab.insert(spelled, id.into());
    }
    let added: Vec<Json> = marks
        .iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .enumerate()
        .map(|(index, mark)| {
            json!({"id": vocab.len() + index, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    let whole = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}});
    Tokenizer::from_json(whole.to_string().as_bytes()).expect("a tokenizer")
}

fn tools() -> ToolList {
    let tools = json!([
        {"type": "function", "function": {"name": "give_item", "parameters": {"type": "object", "properties": {
            "item": {"type": "string", "enum": ["sword", "shield of oak"]}, "count": {"type": "integer", "minimum": 1, "maximum": 20},
            "note": {"type": "string"}}, "required": ["item", "count"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "look"}},
        {"type": "function", "function": {"name": "walk.to-place", "parameters": {"type": "object", "$defs": {"place": {"type": "object",
            "properties": {"x": {"type": "number"}, "names": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
            "required": ["x"], "additionalProperties": false}}, "properties": {"to": {"$ref": "#/$defs/place"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "fast": {"type": "boolean"}},
            "required": ["to", "fast"], "additionalProperties": false}}}]);
    ToolList::parse(&tools.to_string()).expect("good tools")
}

/// What is wrong with a value; as much of JSON schema as the tools above use.
fn check(root: &Json, schema: &Json, value: &Json) -> std::result::Result<(), String> {
    let wrong = |what: &str| Err(format!("{value} {what}"));
    if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
        return check(root, root.pointer(&reference[1..]).expect("a reference"), value);
    }
    if let Some(choices) = schema.get("anyOf").and_then(Json::as_array) {
        return match choices.iter().any(|choice| check(root, choice, value).is_ok()) {
            true => Ok(()),
            false => wrong("is none of the choices"),
        };
    }
    let is_of_type = match schema.get("type").and_then(Json::as_str) {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => panic!("the type {other}"),
    };
    if !is_of_type {
        return wrong("has another type");
    }
    if let Some(values) = schema.get("enum").and_then(Json::as_array)
        && !values.contains(value)
    {
        return wrong("is not in enum");
    }
    let bound = |name: &str| schema.get(name).and_then(Json::as_f64);
    if let Some(number) = value.as_f64()
        && (bound("minimum").is_some_and(|least| number < least) || bound("maximum").is_some_and(|most| number > most))
    {
        return wrong("is out of range");
    }
    if let Some(items) = value.as_array() {
        if bound("maxItems").is_some_and(|most| items.len() as f64 > most) {
            return wrong("has too many items");
        }
        for item in items {
            check(root, schema.get("items").unwrap_or(&Json::Null), item)?;
        }
    }
    if let Some(entries) = value.as_object() {
        for key in schema.get("required").and_then(Json::as_array).into_iter().flatten() {
            if !entries.contains_key(key.as_str().expect("a name")) {
                return wrong(&format!("lacks {key}"));
            }
        }
        for (key, value) in entries {
            match schema.get("properties").and_then(|properties| properties.get(key)) {
                Some(schema) => check(root, schema, value)?,
                None if schema.get("additionalProperties") == Some(&Json::Bool(false)) => {
                    return wrong(&format!("has {key}"));
                }
                None => {}
            }
        }
    }
    Ok(())
}

/// Random numbers, the same ones each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % count
    }
}

/// A model that knows nothing but is in a hurry, and its grammar.
struct Model {
    tokenizer: Arc<Tokenizer>,
    structures: Structures,
    marks: Marks,
    end: TokenId,
    /// Tokens that it likes.
    liked: HashSet<TokenId>,
}

impl Model {
    fn new(marks: &[&str]) -> Model {
        let tokenizer = Arc::new(tokenizer(marks));
        let vocab_size = tokenizer.vocab_size();
        let liked = "\"}]>/, 01\nslet".bytes().map(TokenId::from);
        let letter = |token: TokenId| tokenizer.token_bytes(token).map(<[u8]>::to_vec);
        let liked: HashSet<Vec<u8>> = liked.map(|byte| vec![byte as u8]).collect();
        let is_liked =
            |token: &TokenId| letter(*token).is_some_and(|bytes| liked.contains(&bytes)) || tokenizer.is_mark(*token);
        let liked = (0..vocab_size as TokenId).filter(is_liked).collect();
        Model {
            structures: Structures::new(Some(Arc::clone(&tokenizer)), vocab_size),
            marks: Marks::new(&tokenizer, vocab_size),
            end: tokenizer.token_id("<|end_of_text|>").expect("a token"),
            liked,
            tokenizer,
        }
    }

    /// An answer, and whether it came to its end within so many tokens.
    fn answer(&self, grammar: &str, dice: &mut Dice, most: usize) -> (String, bool) {
        let compiled = self.structures.compile(&Structure::Lark(grammar.to_string()));
        let compiled = compiled.unwrap_or_else(|refused| panic!("{refused}\n{grammar}"));
        let mut matcher = compiled.matcher().expect("a copy");
        let mut tokens = Vec::new();
        let mut mask = compiled.first_mask().to_vec();
        let mut may_end = compiled.may_be_empty();
        let mut is_whole = false;
        while tokens.len() < most {
            let allowed: Vec<TokenId> = (0..self.tokenizer.vocab_size() as TokenId)
                .filter(|&token| mask[token as usize / 32] >> (token % 32) & 1 != 0)
                .filter(|&token| token != self.end)
                .collect();
            if allowed.is_empty() || (may_end && dice.below(4) == 0) {
                assert!(may_end, "a token may follow, or the answer is whole");
                is_whole = true;
                break;
            }
            let liked: Vec<TokenId> = allowed.iter().copied().filter(|token| self.liked.contains(token)).collect();
            let from = if liked.is_empty() || dice.below(3) == 0 { &allowed } else { &liked };
            tokens.push(from[dice.below(from.len())]);
            if let Err(reason) = matcher.take_in(&tokens[tokens.len() - 1..], Wanted::Mask) {
                panic!("{reason}\n{}\n{grammar}", self.text(&tokens));
            }
            may_end = matcher.is_complete();
            mask = matcher.mask().to_vec();
            let standing = matcher.standing(&[self.end]);
            may_end |= matcher.mask()[self.end as usize / 32] >> (self.end % 32) & 1 != 0;
            if standing == Standing::Complete || matcher.is_complete() {
                is_whole = true;
                break;
            }
        }
        (self.text(&tokens), is_whole)
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        self.tokenizer.decode(tokens, crate::tokenizer::SpecialTokens::Keep).expect("tokens")
    }
}

/// Answers of a format under `required`: each has calls, which are valid.
fn required(
    model: &Model,
    template: &str,
    prompt: &str,
    parallel: ParallelCalls,
    answers: usize,
    seed: u64,
) -> (usize, usize) {
    let format = Format::of_chat_template(template);
    let list = tools();
    let choice = ToolChoice::Required;
    let asked = ToolUse { list: list.clone(), choice, parallel, schemas: ToolSchemas::Held };
    let grammar = format
        .tool_grammar(&asked, format.begun(prompt), &model.marks, &[model.end])
        .expect("a grammar")
        .expect("a choice");
    let (mut whole, mut calls) = (0, 0);
    for number in 0..answers {
        let mut dice = Dice(seed + number as u64);
        let (text, is_whole) = model.answer(&grammar, &mut dice, 600);
        let mut parser = AnswerParser::new(&format, list.json(), prompt);
        parser.feed(&text);
        let (_, message) = if is_whole { parser.finish() } else { (Vec::new(), parser.message()) };
        assert!(message.malformed.is_empty(), "{template}: {:?}\n{text}", message.malformed);
        if is_whole {
            whole += 1;
            assert!(!message.tool_calls.is_empty(), "{template}: no call\n{text}");
            assert!(
                parallel == ParallelCalls::Many || message.tool_calls.len() == 1,
                "{template}: more than one call\n{text}"
            );
        }
        for call in &message.tool_calls {
            calls += 1;
            let tool = list.iter().find(|tool| tool.name == call.name).unwrap_or_else(|| panic!("{template}: {text}"));
            let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let schema = tool.parameters.unwrap_or(&none);
            if let Err(wrong) = check(schema, schema, &call.arguments) {
                panic!("{template}: {}: {wrong}\n{text}", call.name);
            }
        }
    }
    (whole, calls)
}

fn answers_per_case() -> usize {
    std::env::var("NVLLM_TEST_ANSWERS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn every_required_call_is_well_formed_and_valid_in_each_format() {
    let model = Model::new(MARKS);
    let mut sum = (0, 0);
    for (index, (name, template)) in TEMPLATES.iter().enumerate() {
        assert_eq!(Format::of_chat_template(template).name(), *name);
        for parallel in [ParallelCalls::Many, ParallelCalls::One] {
            let (whole, calls) = required(&model, template, "", parallel, answers_per_case(), 1000 * index as u64);
            assert!(whole * 2 > answers_per_case(), "{template}: {whole} answers came to an end");
            sum = (sum.0 + whole, sum.1 + calls);
        }
    }
    assert!(sum.0 > 0 && sum.1 >= sum.0, "{} answers, {} calls", sum.0, sum.1);
}

#[test]
fn markers_that_are_no_tokens_are_matched_as_text() {
    let model = Model::new(&["<|end_of_text|>", "<|image|>"]);
    for (index, (_, template)) in TEMPLATES.iter().enumerate() {
        required(&model, template, "", ParallelCalls::Many, answers_per_case() / 3, 77 + index as u64);
    }
}

#[test]
fn reasoning_that_the_prompt_has_begun_comes_first() {
    let model = Model::new(MARKS);
    for (prompt, begun) in [
        ("<|im_start|>assistant\n", Begun::Nothing),
        ("<|im_start|>assistant\n<think>\n", Begun::Reasoning),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Begun::Content),
        ("<|im_start|>assistant\nI give", Begun::Content),
        ("<|im_start|>assistant\n<tool_call>\n{\"name\": \"a\"", Begun::Call),
    ] {
        assert_eq!(Format::of_chat_template("<tool_call>").begun(prompt), begun, "{prompt}");
        if begun != Begun::Call {
            required(&model, "<tool_call>", prompt, ParallelCalls::Many, answers_per_case(), 5);
        }
    }
}

#[test]
fn a_model_that_may_choose_writes_text_and_calls_that_are_valid() {
    for marks in [MARKS, &["<|end_of_text|>", "<|image|>"]] {
        let model = Model::new(marks);
        for (index, (_, template)) in TEMPLATES.iter().enumerate() {
            let format = Format::of_chat_template(template);
            for parallel in [ParallelCalls::Many, ParallelCalls::One] {
                let asked = ToolUse { list: tools(), choice: ToolChoice::Auto, parallel, schemas: ToolSchemas::Held };
                let grammar = format
                    .tool_grammar(&asked, Begun::Nothing, &model.marks, &[model.end])
                    .unwrap()
                    .expect("a grammar");
                for number in 0..answers_per_case() {
                    let mut dice = Dice(31 * (1000 * index + number) as u64);
                    let (text, is_whole) = model.answer(&grammar, &mut dice, 200);
                    let mut parser = AnswerParser::new(&format, asked.list.json(), "");
                    let mut events = parser.feed(&text);
                    let (last, message) = if is_whole { parser.finish() } else { (Vec::new(), parser.message()) };
                    events.extend(last);
                    let is_broken = events.iter().any(|event| matches!(event, Event::ToolCallBroken { .. }));
                    // Text that begins as a call of Llama might is read as one for some letters.
                    let is_text = message.malformed.is_empty() || format.name().starts_with("llama");
                    assert!(!is_broken && is_text, "{template}: {:?}\n{text}", message.malformed);
                    assert!(parallel == ParallelCalls::Many || message.tool_calls.len() <= 1, "{template}: {text}");
                    for call in &message.tool_calls {
                        let tool = asked.list.iter().find(|tool| tool.name == call.name).expect("a tool");
                        if let Some(schema) = tool.parameters {
                            check(schema, schema, &call.arguments)
                                .unwrap_or_else(|wrong| panic!("{template}: {wrong}\n{text}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_no_grammar_can_say_is_refused_by_its_name() {
    let marks = Marks::default();
    let asked = |tools: Json, choice: ToolChoice| ToolUse {
        list: ToolList::parse(&tools.to_string()).expect("tools"),
        choice,
        ..ToolUse::default()
    };
    let with = |schema: Json| json!([{"name": "f", "parameters": schema}]);
    let refusal = |template: &str, tools: Json, choice: ToolChoice| {
        let format = Format::of_chat_template(template);
        format.tool_grammar(&asked(tools, choice), Begun::Nothing, &marks, &[]).expect_err("refused").to_string()
    };
    let object = |argument: Json| with(json!({"type": "object", "properties": {"a": argument}}));
    for (template, tools, wanted) in [
        ("", with(json!({})), "\"text\", has no grammar of tool calls"),
        ("<|tool_call>", with(json!({"type": "array"})), "f: the parameters must have the type \"object\""),
        ("<|tool_call>", with(json!({"anyOf": []})), "f: \"anyOf\" cannot be held in Gemma's notation"),
        ("<|tool_call>", object(json!({"type": "string", "pattern": "a"})), "f: \"a\": \"pattern\" cannot be held"),
        ("<|tool_call>", object(json!({"enum": []})), "f: \"a\": a value has no possible value"),
        ("<|tool_call>", object(json!({"const": "<|\"|>"})), "cannot be written"),
        ("<|tool_call>", object(json!({"$ref": "#/properties/a"})), "references lead to each other"),
        (
            "<|tool_call>",
            with(json!({"properties": {"a b": {"type": "string"}}})),
            "f: the name \"a b\" cannot be written",
        ),
        (
            "<|tool_call>",
            object(json!({"type": "array", "items": {"$ref": "#/properties/a"}})),
            "schemas are within each other",
        ),
        ("<tool_call>", with(json!({"type": "array"})), "f: the parameters must have the type \"object\""),
        ("<function=", with(json!({"anyOf": []})), "f: \"anyOf\" of the parameters"),
        (
            "<function=",
            object(json!({"type": "string", "pattern": "a"})),
            "f: the argument \"a\" is text with \"pattern\"",
        ),
        ("<function=", object(json!({"minimum": 1})), "f: the argument \"a\" has \"minimum\" but no \"type\""),
        (
            "<function=",
            object(json!({"type": "string", "enum": ["<b>"]})),
            "f: the argument \"a\" has the value \"<b>\"",
        ),
        ("<function=", object(json!({"enum": [1]})), "f: the argument \"a\" has the value 1"),
        ("<function=", object(json!({"$ref": "#/no"})), "f: \"#/no\" refers to nothing"),
    ] {
        let message = refusal(template, tools, ToolChoice::Required);
        assert!(message.contains(wanted), "{template}: {message}");
    }
    let auto = asked(with(json!({})), ToolChoice::Auto);
    assert_eq!(Format::of_chat_template("").tool_grammar(&auto, Begun::Nothing, &marks, &[]).expect("free"), None);
}

#[test]
fn a_loose_schema_leaves_any_arguments() {
    let model = Model::new(MARKS);
    for template in ["<tool_call>", "<function=", "<arg_key>", "<|tool_call>"] {
        let format = Format::of_chat_template(template);
        let list = ToolList::parse(r#"[{"name": "f", "parameters": {"not": {}}}]"#).expect("tools");
        let asked =
            ToolUse { list, choice: ToolChoice::Required, parallel: ParallelCalls::One, schemas: ToolSchemas::Loose };
        let grammar =
            format.tool_grammar(&asked, Begun::Nothing, &model.marks, &[model.end]).unwrap().expect("a grammar");
        for number in 0..answers_per_case() {
            let (text, is_whole) = model.answer(&grammar, &mut Dice(number as u64), 400);
            let mut parser = AnswerParser::new(&format, asked.list.json(), "");
            parser.feed(&text);
            let (_, message) = parser.finish();
            assert!(
                !is_whole || message.tool_calls.len() == 1 && message.malformed.is_empty(),
                "{template}: {message:?}\n{text}"
            );
        }
    }
}
