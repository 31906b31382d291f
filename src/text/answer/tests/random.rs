//! Random messages, written as each format writes them, become the same messages again.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// A message to be written.
#[derive(Clone, Debug)]
struct Wanted {
    reasoning: String,
    content: String,
    calls: Vec<(String, Map<String, Json>)>,
}

/// Parts of texts: white space, letters of all lengths, quotes, and what markers begin with.
const PARTS: &[&str] = &[
    "a", "word", " ", "\n", "\t", "é", "中", "😀", "<", ">", "</", "<tool_", "<thin", "</thin", "[TOOL_", "[", "]",
    "{", "}", "\"", "'", "\\", "\\n", ":", ",", "=", "(", ")", "<|", "|>", "<|chan", "<｜", "1", "true", "```",
    "<para", "</para", "</func", "<arg_", "\r", "\u{1}",
];

/// Parts that arguments have besides, in formats that know where strings end.
const MARKERS: &[&str] =
    &["</tool_call>", "<think>", "[TOOL_CALLS]", "<|call|>", "<tool_call|>", "<｜tool▁call▁end｜>", "]}", "\"}"];

fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(parts), 0..12).prop_map(|parts| parts.concat())
}

fn value(has_markers: bool) -> impl Strategy<Value = Json> {
    let string = (text(PARTS), text(MARKERS), any::<bool>())
        .prop_map(move |(text, markers, both)| Json::from(if has_markers && both { text + &markers } else { text }));
    let leaf = prop_oneof![
        4 => string,
        1 => any::<i64>().prop_map(Json::from),
        1 => (-1000i32..1000).prop_map(|number| Json::from(f64::from(number) + 0.5)),
        1 => any::<bool>().prop_map(Json::from),
        1 => Just(Json::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec(("[a-z_]{1,5}", inner), 0..4)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

fn wanted(has_markers: bool) -> impl Strategy<Value = Wanted> {
    let arguments = prop::collection::vec(("[a-z_]{1,6}", value(has_markers)), 0..4);
    let calls = prop::collection::vec(("[a-z_]{1,8}", arguments), 0..4);
    (text(PARTS), text(PARTS), calls).prop_map(|(reasoning, content, calls)| Wanted {
        reasoning: reasoning.trim().to_string(),
        content: content.trim().to_string(),
        // Names differ, because the types of arguments are those of their tool.
        calls: calls
            .into_iter()
            .enumerate()
            .map(|(index, (name, arguments))| (format!("{name}{index}"), arguments.into_iter().collect()))
            .collect(),
    })
}

/// Tools with the types that the arguments have.
fn tools_of(wanted: &Wanted) -> Json {
    let type_of = |value: &Json| match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    let tool = |(name, arguments): &(String, Map<String, Json>)| {
        let properties: Map<String, Json> =
            arguments.iter().map(|(key, value)| (key.clone(), json!({"type": type_of(value)}))).collect();
        json!({"type": "function", "function": {"name": name, "parameters": {"properties": properties}}})
    };
    Json::Array(wanted.calls.iter().map(tool).collect())
}

/// A value as text between tags: strings as they are, others as JSON.
fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn tags(arguments: &Map<String, Json>, write: impl Fn(&str, &Json) -> String) -> String {
    arguments.iter().map(|(key, value)| write(key, value)).collect()
}

fn python(value: &Json) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Json::Null => "None".to_string(),
        Json::Bool(true) => "True".to_string(),
        Json::Bool(false) => "False".to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => {
            let escaped = |char: char| match char {
                '\'' | '\\' => format!("\\{char}"),
                '\n' => "\\n".to_string(),
                '\r' => "\\r".to_string(),
                char if char.is_control() => format!("\\x{:02x}", char as u32),
                char if char as u32 > 0xffff => format!("\\U{:08x}", char as u32),
                char => char.to_string(),
            };
            format!("'{}'", text.chars().map(escaped).collect::<String>())
        }
        Json::Array(items) => format!("[{}]", list(items.iter().map(python).collect())),
        Json::Object(entries) => {
            format!("{{{}}}", list(entries.iter().map(|(key, value)| format!("'{key}': {}", python(value))).collect()))
        }
    }
}

fn gemma(value: &Json) -> String {
    match value {
        Json::String(text) => format!("<|\"|>{text}<|\"|>"),
        Json::Array(items) => format!("[{}]", items.iter().map(gemma).collect::<Vec<_>>().join(",")),
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| format!("{key}:{}", gemma(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// The text that a model with this format writes.
fn written(format: &str, wanted: &Wanted) -> String {
    let Wanted { reasoning, content, calls } = wanted;
    let object =
        |(name, arguments): &(String, Map<String, Json>), key: &str| json!({"name": name, key: arguments}).to_string();
    let objects = |key: &str| calls.iter().map(|call| object(call, key)).collect::<Vec<_>>();
    let each = |write: &dyn Fn(&str, &Map<String, Json>) -> String| {
        calls.iter().map(|(name, arguments)| write(name, arguments)).collect::<Vec<_>>()
    };
    let json = |arguments: &Map<String, Json>| serde_json::to_string_pretty(arguments).expect("JSON");
    let unless_empty = |before: &str, texts: Vec<String>, between: &str, after: &str| match texts.is_empty() {
        true => String::new(),
        false => format!("{before}{}{after}", texts.join(between)),
    };
    let thought = format!("<think>\n{reasoning}\n</think>\n\n{content}\n");
    let python_calls = || {
        each(&|name, arguments| {
            let arguments: Vec<String> =
                arguments.iter().map(|(key, value)| format!("{key}={}", python(value))).collect();
            format!("{name}({})", arguments.join(", "))
        })
    };
    match format {
        "text" => content.clone(),
        "think" => thought,
        "hermes" | "smollm3" => {
            thought
                + &unless_empty(
                    "<tool_call>\n",
                    objects("arguments"),
                    "\n</tool_call>\n<tool_call>\n",
                    "\n</tool_call>",
                )
        }
        "minimax-m1" => thought + &unless_empty("<tool_calls>\n", objects("arguments"), "\n", "\n</tool_calls>"),
        "granite" => thought + &unless_empty("<|tool_call|>[", objects("arguments"), ", ", "]"),
        "llama3" if calls.is_empty() => content.clone(),
        "llama3" => objects("parameters").join("; "),
        "llama4" if calls.is_empty() => content.clone(),
        "llama4" => format!("[{}]", python_calls().join(", ")),
        "lfm2" => thought + &unless_empty("<|tool_call_start|>[", python_calls(), ", ", "]<|tool_call_end|>"),
        "mistral" => {
            let calls = each(&|name, arguments| format!("[TOOL_CALLS]{name}[ARGS]{}", json(arguments)));
            format!("[THINK]{reasoning}[/THINK]{content}{}", calls.concat())
        }
        "command" => {
            let actions = unless_empty("<|START_ACTION|>[", objects("parameters"), ",\n", "]<|END_ACTION|>");
            format!("<|START_THINKING|>{reasoning}<|END_THINKING|>{actions}<|START_RESPONSE|>{content}<|END_RESPONSE|>")
        }
        "gpt-oss" => {
            let calls = each(&|name, arguments| {
                format!(
                    "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{}<|call|>",
                    json(arguments)
                )
            });
            format!(
                "<|channel|>analysis<|message|>{reasoning}<|end|>{}<|start|>assistant<|channel|>final<|message|>{content}<|return|>",
                calls.concat()
            )
        }
        "gemma4" => {
            let calls = each(&|name, arguments| {
                format!("<|tool_call>call:{name}{}<tool_call|>", gemma(&Json::Object(arguments.clone())))
            });
            format!("<|channel>thought\n{reasoning}<channel|>{content}{}", calls.concat())
        }
        "deepseek-v3" => {
            let calls = each(&|name, arguments| {
                format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{}<｜tool▁call▁end｜>", json(arguments))
            });
            thought + &unless_empty("<｜tool▁calls▁begin｜>", calls, "\n", "<｜tool▁calls▁end｜>")
        }
        "deepseek-v3.2" => {
            let calls = each(&|name, arguments| {
                let parameters = tags(arguments, |key, value| {
                    let (is_string, value) = (value.is_string(), plain(value));
                    format!("<｜DSML｜parameter name=\"{key}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n")
                });
                format!("<｜DSML｜invoke name=\"{name}\">\n{parameters}</｜DSML｜invoke>")
            });
            thought + &unless_empty("<｜DSML｜function_calls>\n", calls, "\n", "\n</｜DSML｜function_calls>")
        }
        "kimi-k2" => {
            let calls = each(&|name, arguments| {
                format!(
                    "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                    json(arguments)
                )
            });
            thought + &unless_empty("<|tool_calls_section_begin|>", calls, "", "<|tool_calls_section_end|>")
        }
        "minimax-m2" => {
            let calls = each(&|name, arguments| {
                let parameters =
                    tags(arguments, |key, value| format!("<parameter name=\"{key}\">{}</parameter>\n", plain(value)));
                format!("<invoke name=\"{name}\">\n{parameters}</invoke>")
            });
            thought + &unless_empty("<minimax:tool_call>\n", calls, "\n", "\n</minimax:tool_call>")
        }
        "glm" => {
            let calls = each(&|name, arguments| {
                let pairs = tags(arguments, |key, value| {
                    format!("<arg_key>{key}</arg_key>\n<arg_value>{}</arg_value>\n", plain(value))
                });
                format!("<tool_call>{name}\n{pairs}</tool_call>")
            });
            thought + &calls.concat()
        }
        "qwen3-coder" => {
            let calls = each(&|name, arguments| {
                let parameters =
                    tags(arguments, |key, value| format!("<parameter={key}>\n{}\n</parameter>\n", plain(value)));
                format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
            });
            thought + &calls.join("\n")
        }
        other => panic!("{other} has nobody who writes it"),
    }
}

/// Formats that know where a string ends, whatever it has.
const KNOWS_STRINGS: [&str; 12] = [
    "hermes",
    "smollm3",
    "minimax-m1",
    "granite",
    "llama3",
    "llama4",
    "lfm2",
    "mistral",
    "command",
    "gpt-oss",
    "deepseek-v3",
    "kimi-k2",
];

/// Formats without reasoning, and those that have either content or calls.
const WITHOUT_REASONING: [&str; 3] = ["text", "llama3", "llama4"];
const EITHER: [&str; 2] = ["llama3", "llama4"];

/// 64 cases per format, or as many as `PROPTEST_CASES` says.
fn config() -> Config {
    let config = Config { failure_persistence: None, ..Config::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => Config { cases: 64, ..config },
    }
}

#[test]
fn random_messages_are_read_as_they_were_written() {
    for name in Format::names() {
        let format = Format::built_in(name).expect(name);
        let mut runner = TestRunner::new(config());
        let input = (wanted(KNOWS_STRINGS.contains(&name)), 1..9usize);
        let outcome = runner.run(&input, |(wanted, piece)| {
            let (tools, text) = (tools_of(&wanted), written(name, &wanted));
            // A string of Gemma has no way to have its own quotation mark.
            let has_quote = wanted.calls.iter().any(|(_, arguments)| json!(arguments).to_string().contains("<|\\\"|>"));
            prop_assume!(name != "gemma4" || !has_quote);
            let (events, message) = read_in_pieces(&format, &tools, "", &text, usize::MAX);
            let (others, other) = read_in_pieces(&format, &tools, "", &text, piece);
            let shown = format!("{text}\n{message:#?}");
            prop_assert_eq!(&other, &message, "pieces of {}: {}", piece, &shown);
            prop_assert_eq!(others, events, "pieces of {}: {}", piece, &shown);
            let wants_calls = !matches!(name, "text" | "think");
            let calls: Vec<(String, Json)> =
                message.tool_calls.into_iter().map(|call| (call.name, call.arguments)).collect();
            let wanted_calls: Vec<(String, Json)> =
                wanted.calls.iter().map(|(name, arguments)| (name.clone(), Json::Object(arguments.clone()))).collect();
            prop_assert_eq!(calls, if wants_calls { wanted_calls } else { Vec::new() }, "{}", &shown);
            // Without markers, an answer that begins like a call is one only if it goes on like one.
            let may_begin_like_a_call = EITHER.contains(&name) && wanted.calls.is_empty();
            prop_assert!(message.malformed.is_empty() || may_begin_like_a_call, "{}", &shown);
            if !WITHOUT_REASONING.contains(&name) {
                prop_assert_eq!(&message.reasoning, &wanted.reasoning, "{}", &shown);
            }
            if !EITHER.contains(&name) || wanted.calls.is_empty() {
                prop_assert_eq!(message.content.trim(), &wanted.content, "{}", &shown);
            }
            Ok::<(), TestCaseError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Texts made of the markers of all formats and of parts of them.
fn rubbish() -> impl Strategy<Value = String> {
    const MARKS: &[&str] = &[
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        "{\"name\": \"f\", \"arguments\": {",
        "\"a\": [1, 2",
        "}}",
        "]",
        "}",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[THINK]",
        "[/THINK]",
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        "<|end|>",
        "<|start|>assistant",
        " to=functions.f",
        "commentary",
        "<|tool_call>call:f{",
        "<|\"|>",
        "<tool_call|>",
        "<|channel>thought\n",
        "<channel|>",
        "<tool_call>f",
        "<arg_key>a</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "function<｜tool▁sep｜>f\n```json\n",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<minimax:tool_call>",
        "<invoke name=\"f\">",
        "<parameter name=\"a\">",
        "</invoke>",
        "<|tool_call_start|>",
        "[f(a=",
        "'x'",
        ")",
        "<|tool_call_end|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|python_tag|>",
        "<code>",
        "</code>",
        "f(",
        "<｜DSML｜invoke name=\"f\">",
        "</｜DSML｜invoke>",
        "<tool_calls>",
        "\n",
        " ",
        "a",
        "é",
        "<",
        "\"",
        "\\",
        "1",
        ",",
        "null",
    ];
    prop::collection::vec(prop::sample::select(MARKS), 0..24).prop_map(|marks| marks.concat())
}

#[test]
fn no_text_is_lost_and_the_pieces_change_nothing() {
    let tools = json!([{"name": "f"}]);
    for name in Format::names() {
        let format = Format::built_in(name).expect(name);
        let outcome = TestRunner::new(config()).run(&(rubbish(), 1..5usize), |(text, piece)| {
            let (events, message) = read_in_pieces(&format, &tools, "", &text, usize::MAX);
            let (others, other) = read_in_pieces(&format, &tools, "", &text, piece);
            prop_assert_eq!(&other, &message, "pieces of {}: {}", piece, &text);
            prop_assert_eq!(others, events, "pieces of {}: {}", piece, &text);
            for malformed in &message.malformed {
                let text = malformed.text.trim();
                prop_assert!(message.content.contains(text), "{:?} is in {:#?}", text, &message);
            }
            if message.reasoning.is_empty() && message.tool_calls.is_empty() && !text.contains("<｜DSML｜") {
                let letters = |text: &str| text.matches(['a', 'é']).count();
                let all = letters(&text);
                // Markers of empty reasoning and of messages may go.
                let marks = ["think", "THINK", "analysis", "commentary", "final", "<|channel", "<channel|>"];
                if !marks.iter().any(|mark| text.contains(mark)) {
                    prop_assert_eq!(letters(&message.content), all, "{} {:#?}", &text, &message);
                }
            }
            Ok::<(), TestCaseError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
