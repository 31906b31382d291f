//! Answers and templates that try to take time or memory. Work is counted, and no clock is read.

use super::*;
use base::limits;

/// The visits of states and the message of a text that arrives in pieces of 1 KiB.
fn work(format: &Format, prompt: &str, text: &str) -> (u64, Message) {
    let mut parser = AnswerParser::new(format, &tools(), prompt);
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(1024.min(rest.len())));
        parser.feed(piece);
        rest = after;
    }
    let work = parser.work();
    (work, parser.finish().1)
}

#[test]
fn work_is_linear_in_the_length_of_an_answer() {
    let parts = [
        "<",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>\n<function=f>",
        "<tool_call>\n<function=f><parameter=a>",
        "</",
        "<think>",
        "</think>",
        "<function=",
        "<function=f><parameter=",
        " ",
        "\n",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]f[ARGS]",
        "[TOOL_CALLS][",
        "<|channel|>",
        "<|start|>assistant",
        " to=functions.f",
        "<|channel|>commentary to=f ",
        "<|tool_call>call:f{",
        "<|tool_call>call:f",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f",
        "<|tool_call_begin|>",
        "<|tool_call_begin|>f",
        "<minimax:tool_call>",
        "<invoke name=",
        "<invoke name=\"f\"><parameter name=\"a\">",
        "<arg_key>",
        "<tool_call>f<arg_key>a</arg_key> ",
        "<|tool_call_start|>[",
        "<|tool_call_start|>[f(",
        "<|START_ACTION|>",
        "{\"name\": \"clock\"",
        "{\"name\": \"clock\", \"parameters\": {}};",
        "[clock(), ",
        "<｜DSML｜invoke name=\"",
        "<code>",
        "{",
        "[",
        "\"",
        "\\",
    ];
    for name in Format::names() {
        let format = Format::built_in(name).expect(name);
        for part in parts {
            for begin in ["", "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": \""] {
                let text = begin.to_string() + &part.repeat((1 << 16) / part.len());
                let (work, _) = work(&format, "", &text);
                let most = 64 * text.len() as u64;
                assert!(work < most, "{name}: {part:?} after {begin:?} takes {work} for {} bytes", text.len());
            }
        }
    }
}

#[test]
fn a_megabyte_of_brackets_is_content() {
    for (name, text) in [("hermes", "<"), ("mistral", "["), ("gpt-oss", "<|"), ("text", "<")] {
        let format = Format::built_in(name).expect(name);
        let text = text.repeat((1 << 20) / text.len());
        let (work, message) = work(&format, "", &text);
        assert_eq!(message.content, text);
        assert!(work < 32 << 20, "{name} takes {work}");
    }
}

#[test]
fn levels_and_calls_are_limited() {
    let hermes = Format::built_in("hermes").expect("a format");
    let deep = format!("<tool_call>{{\"name\": \"clock\", \"arguments\": {{\"a\": {}", "[".repeat(100_000));
    let message = read_in_pieces(&hermes, &tools(), "", &deep, 4096).1;
    assert!(message.malformed[0].reason.contains("levels"), "{:?}", message.malformed[0].reason);
    assert_eq!(message.content, deep);

    let call = "<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>";
    let many = call.repeat(limits::ANSWER_CALLS + 2);
    let message = read_in_pieces(&hermes, &tools(), "", &many, 4096).1;
    assert_eq!(message.tool_calls.len(), limits::ANSWER_CALLS);
    assert!(message.malformed[0].reason.contains("calls"), "{:?}", message.malformed[0].reason);
    assert!(message.content.contains("clock"));
}

#[test]
fn what_is_unfinished_is_content() {
    let cases = [
        ("hermes", "<tool_call>{\"name\": \"clock\", \"argu", 0),
        ("hermes", "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": 1", 1),
        ("hermes", "<tool_call>{\"name\": \"clock\"}</tool_call>", 0),
        ("hermes", "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>", 0),
        ("hermes", "<tool_call>{\"name\": \"clock\", \"arguments\": [1]}</tool_call>", 0),
        ("hermes", "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>", 1),
        ("qwen3-coder", "<tool_call>\n<function=clock>\n<parameter=a>\n1\n", 1),
        ("qwen3-coder", "<tool_call>\n<function=clock>\nrubbish", 0),
        ("gemma4", "<|tool_call>call:clock{a:<|\"|>x", 1),
        ("lfm2", "<|tool_call_start|>[clock(1)]<|tool_call_end|>", 1),
        ("mistral", "[TOOL_CALLS]clock[ARGS]{\"a\": 1,}", 1),
    ];
    for (name, text, broken) in cases {
        let format = Format::built_in(name).expect(name);
        let (events, message) = read_in_pieces(&format, &tools(), "", text, 3);
        assert_eq!(message.content, text, "{name}");
        assert!(message.tool_calls.is_empty(), "{name}: {text}");
        assert_eq!(message.malformed.len(), 1, "{name}: {text}");
        let breaks = events.iter().filter(|event| matches!(event, Event::ToolCallBroken { .. })).count();
        assert_eq!(breaks, broken, "{name}: {text}");
    }
}

#[test]
fn templates_that_go_beyond_a_limit_are_refused_by_name() {
    let template = |field: Json| json!({"start_anchor": "A", "fields": {"tool_calls": field}});
    let deep =
        (0..60).fold(json!({"name": "text"}), |inner, _| json!({"name": "kv-lines", "args": {"value_parser": inner}}));
    let pattern = r"\w{40}(?P<x>\d{40})";
    let classes: Map<String, Json> =
        (0..40).map(|index| (format!("f{index}"), json!({"open_pattern": pattern, "transform": "{x}"}))).collect();
    let many: Map<String, Json> =
        (0..limits::ANSWER_FIELDS + 1).map(|index| (index.to_string(), json!({"open": "x"}))).collect();
    let cases = [
        (json!([]), "no object"),
        (json!({"version": 2}), "version"),
        (json!({"start_anchor": "A", "fields": {}}), "fields"),
        (json!({"fields": {"content": {}}}), "start_anchor"),
        (json!({"start_anchor": "A", "fields": {"content": {}}, "more": 1}), "\"more\""),
        (json!({"start_anchor": "A", "fields": {"a": {}, "b": {}}}), "at most one"),
        (json!({"start_anchor": "A", "fields": many}), "fields, but the limit"),
        (json!({"start_anchor": "A", "fields": classes}), "states together"),
        (json!({"start_anchor": "", "fields": {"content": {}}}), "start_anchor"),
        (template(json!({"open": "x", "colour": 1})), "\"colour\""),
        (template(json!({"open": "x", "open_pattern": "x"})), "both"),
        (template(json!({"open": []})), "neither a string"),
        (template(json!({"open": ["x", 1]})), "neither a string"),
        (template(json!({"open_pattern": "x*"})), "can be empty"),
        (template(json!({"open_pattern": "x(?=y)"})), "look-around"),
        (template(json!({"open_pattern": r"(x)\1"})), "refers back"),
        (template(json!({"open_pattern": "x{1000}{1000}{1000}"})), "larger than"),
        (template(json!({"open_pattern": "(?P<name>x)"})), "\"name\""),
        (template(json!({"open": "x", "content": "yaml"})), "\"yaml\""),
        (template(json!({"open": "x", "content": "xml-inline"})), "tag_pattern"),
        (
            template(json!({"open": "x", "content": "xml-inline", "content_args": {"tag_pattern": "(?P<k>x)"}})),
            "\"key\"",
        ),
        (template(json!({"open": "x", "content": "kv-lines", "content_args": {"kv_sep": ""}})), "kv_sep"),
        (template(json!({"open": "x", "content": "kv-lines", "content_args": {"value_parser": deep}})), "levels"),
        (template(json!({"open": "x", "transform": "call {content}"})), "beside a placeholder"),
        (template(json!({"open": "x", "transform_each": true})), "transform"),
        (template(json!({"open": "x", "join": "\n"})), "repeats"),
        (template(json!({"open": "x".repeat(limits::ANSWER_TEMPLATE_BYTES)})), "the limit is"),
    ];
    for (template, reason) in cases {
        let refused = Format::of_response_template(&template).expect_err(reason).to_string();
        assert!(refused.starts_with("response_template: "), "{refused}");
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
}

#[test]
fn expressions_of_a_template_stop_at_their_work() {
    let text = "a".repeat(1 << 16);
    let patterns = [r"(?:a|b|ab)*c", r"(?:.*a){50}b", r"a.*b|a", r"(?:a?){200}b", r"\w+\s", r"[a-z]{1,200}!"];
    for pattern in patterns {
        for field in [
            json!({"x": {"open_pattern": pattern, "close": "z"}, "content": {}}),
            json!({"x": {"open": "a", "close_pattern": pattern}, "content": {}}),
            json!({"content": {"close_pattern": pattern}}),
            json!({"x": {"open": "a", "content": "xml-inline", "content_args": {"tag_pattern": format!("(?P<key>{pattern})")}}, "content": {}}),
        ] {
            let template = json!({"start_anchor": "A", "fields": field});
            let format = Format::of_response_template(&template).expect("a template");
            let (work, message) = work(&format, "", &text);
            let most = limits::ANSWER_WORK + limits::ANSWER_WORK_PER_BYTE * text.len() as u64;
            assert!(work <= most, "{template} takes {work}");
            let letters =
                message.content.len() + message.fields.values().map(|value| value.to_string().len()).sum::<usize>();
            assert!(letters <= 4 * text.len() + 100, "{template} makes {letters} of {}", text.len());
        }
    }
}

#[test]
fn a_transform_cannot_make_much_of_little() {
    let constant = "x".repeat(30_000);
    let template = json!({"start_anchor": "A", "fields": {"rows": {
        "open": "<", "content": "json", "transform_each": true, "transform": {"a": constant, "b": "{n}"}}, "content": {}}});
    let format = Format::of_response_template(&template).expect("a template");
    let text = format!("<[{}{{\"n\": 1}}]", "{\"n\": 1},".repeat(20_000));
    let (_, message) = work(&format, "", &text);
    assert!(message.fields.get("rows").is_none(), "600 MB of text");
    assert!(message.malformed[0].reason.contains("work"), "{}", message.malformed[0].reason);
}
