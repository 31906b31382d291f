//! Answers against what transformers makes of them by the same `response_template`.
//!
//! The expected messages lie in tests/golden/text/answer; tests/golden/text/make_answers.py made them.

use serde_json::{Map, Value as Json};
use text::answer::{AnswerParser, Format, Message};

/// The message of a text that arrives in pieces of this many characters.
fn read(format: &Format, tools: &Json, prompt: &str, text: &str, piece: usize) -> Message {
    let mut parser = AnswerParser::new(format, tools, prompt);
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(piece) {
        parser.feed(&piece.iter().collect::<String>());
    }
    parser.finish().1
}

fn has_odd_arguments(calls: &Json) -> bool {
    calls.as_array().into_iter().flatten().any(|call| !call["function"]["arguments"].is_object())
}

#[test]
fn every_answer_becomes_the_message_that_transformers_makes_of_it() {
    let path = crate::tree::root().join("tests/golden/text/answer/cases.json");
    let golden: Json = serde_json::from_str(&std::fs::read_to_string(path).expect("a committed file")).expect("JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert!(cases.len() > 900, "{} cases", cases.len());
    let mut formats: Map<String, Json> = Map::new();
    formats.extend(golden["templates"].as_object().expect("templates").clone());
    let mut wrong = Vec::new();
    let mut format: Option<(String, Format)> = None;
    for case in cases {
        let name = case["template"].as_str().expect("a name");
        if format.as_ref().is_none_or(|(opened, _)| opened != name) {
            let template =
                Format::of_response_template(&formats[name]).unwrap_or_else(|error| panic!("{name}: {error}"));
            format = Some((name.to_string(), template));
        }
        let (_, format) = format.as_ref().expect("a format");
        let tools = if case["tools"] == true { &golden["tools"] } else { &Json::Null };
        let (prompt, text) = (case["prompt"].as_str().expect("a prompt"), case["text"].as_str().expect("a text"));
        let message = read(format, tools, prompt, text, usize::MAX);
        for piece in [1, 2, 5] {
            assert_eq!(read(format, tools, prompt, text, piece), message, "in pieces of {piece}: {case:#}");
        }
        let agrees = match case["message"].as_object() {
            // A call whose arguments are no object is one for transformers.
            Some(wanted) => {
                *wanted == message.fields && (message.malformed.is_empty() || has_odd_arguments(&wanted["tool_calls"]))
            }
            None => !message.malformed.is_empty(),
        };
        let keeps_text = |name: &str, text: &str| {
            let last = message.fields.get(name).and_then(Json::as_str).unwrap_or_default();
            !message.malformed.is_empty() || text.trim_end().ends_with(last.trim())
        };
        let agrees = agrees && keeps_text("content", &message.content) && keeps_text("thinking", &message.reasoning);
        if !agrees {
            wrong.push(format!("{case:#}\nbut here {message:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases differ, such as\n{}", wrong.len(), cases.len(), wrong[0]);
}
