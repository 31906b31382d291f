//! Answers as models write them, in each format.

use super::*;
use serde_json::json;

mod calls;
mod hostile;
mod random;

/// The tools that the answers below call.
fn tools() -> Json {
    let function = |name: &str, properties: Json| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}});
    json!([
        function(
            "get_weather",
            json!({"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "where": {"type": "object"}})
        ),
        function("clock", json!({})),
        function("print", json!({})),
    ])
}

/// Reads an answer in pieces of at most `piece` characters, checks that events and message agree, and returns both.
fn read_in_pieces(format: &Format, tools: &Json, prompt: &str, text: &str, piece: usize) -> (Vec<Event>, Message) {
    let mut parser = AnswerParser::new(format, tools, prompt);
    let chars: Vec<char> = text.chars().collect();
    let mut events = Vec::new();
    for piece in chars.chunks(piece.max(1)) {
        events.extend(parser.feed(&piece.iter().collect::<String>()));
    }
    let (last, message) = parser.finish();
    events.extend(last);
    let events = merged(events);
    let all = |wanted: fn(&Event) -> Option<&String>| events.iter().filter_map(wanted).cloned().collect::<String>();
    assert_eq!(all(|event| if let Event::Content(text) = event { Some(text) } else { None }), message.content);
    assert_eq!(all(|event| if let Event::Reasoning(text) = event { Some(text) } else { None }), message.reasoning);
    for call in &message.tool_calls {
        let pieces: String = events
            .iter()
            .filter_map(|event| match event {
                Event::ToolCallArguments { index, text } if *index == call.index => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(serde_json::from_str::<Json>(&pieces).expect("JSON"), call.arguments);
    }
    (events, message)
}

/// Events with adjacent pieces of a kind put together.
fn merged(events: Vec<Event>) -> Vec<Event> {
    let mut merged: Vec<Event> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(Event::Content(before)), Event::Content(text)) => before.push_str(&text),
            (Some(Event::Reasoning(before)), Event::Reasoning(text)) => before.push_str(&text),
            (
                Some(Event::ToolCallArguments { index: before, text: arguments }),
                Event::ToolCallArguments { index, text },
            ) if *before == index => arguments.push_str(&text),
            (_, event) => merged.push(event),
        }
    }
    merged
}

/// The message, which is the same in whatever pieces the text arrives.
fn read(format: &Format, prompt: &str, text: &str) -> Message {
    let (events, message) = read_in_pieces(format, &tools(), prompt, text, usize::MAX);
    for piece in [1, 2, 3, 7] {
        let (others, other) = read_in_pieces(format, &tools(), prompt, text, piece);
        assert_eq!(other, message, "in pieces of {piece}: {text}");
        assert_eq!(others, events, "in pieces of {piece}: {text}");
    }
    message
}

struct Case {
    format: &'static str,
    prompt: &'static str,
    text: &'static str,
    reasoning: &'static str,
    content: &'static str,
    calls: &'static [(&'static str, &'static str)],
}

const WEATHER: (&str, &str) = ("get_weather", r#"{"city":"Zürich \"A\"","days":3}"#);
const CLOCK: (&str, &str) = ("clock", "{}");

const CASES: &[Case] = &[
    Case { format: "text", prompt: "", text: "  a <think> b\n", reasoning: "", content: "  a <think> b\n", calls: &[] },
    Case {
        format: "think",
        prompt: "<|im_start|>assistant\n",
        text: "<think>\nhm\n\nso\n</think>\n\nHello\n",
        reasoning: "hm\n\nso",
        content: "Hello\n",
        calls: &[],
    },
    Case {
        format: "think",
        prompt: "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n<think>\n",
        text: "hm</think>Hello",
        reasoning: "hm",
        content: "Hello",
        calls: &[],
    },
    Case {
        format: "think",
        prompt: "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        text: "  Hello",
        reasoning: "",
        content: "Hello",
        calls: &[],
    },
    Case {
        format: "hermes",
        prompt: "<|im_start|>assistant\n",
        text: "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
        reasoning: "",
        content: "I look.",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "hermes",
        prompt: "",
        text: "<think>x</think><tool_call>{\"arguments\": \"{\\\"a\\\": \\\"</tool_call>\\\"}\", \"id\": 7, \"name\": \"clock\"}</tool_call>Done.",
        reasoning: "x",
        content: "Done.",
        calls: &[("clock", r#"{"a":"</tool_call>"}"#)],
    },
    Case {
        format: "qwen3-coder",
        prompt: "<|im_start|>assistant\n<think>\n",
        text: "why\n</think>\n\nNow.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=exact>\ntrue\n</parameter>\n<parameter=where>\n{\"x\": [1]}\n</parameter>\n<parameter=code>\nif a < b:\n    x = \"</b>\"\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
        reasoning: "why",
        content: "Now.",
        calls: &[
            (
                "get_weather",
                r#"{"city":"12","days":3,"exact":true,"where":{"x":[1]},"code":"if a < b:\n    x = \"</b>\""}"#,
            ),
            CLOCK,
        ],
    },
    Case {
        format: "llama3",
        prompt: "<|start_header_id|>assistant<|end_header_id|>\n\n",
        text: "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}}; {\"name\": \"clock\", \"parameters\": {}}",
        reasoning: "",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "llama3",
        prompt: "",
        text: "<|python_tag|>{\"type\": \"function\", \"name\": \"clock\", \"parameters\": {}}",
        reasoning: "",
        content: "",
        calls: &[CLOCK],
    },
    Case {
        format: "llama3",
        prompt: "",
        text: "{\"name\": \"Bob\", \"parameters\": {}}",
        reasoning: "",
        content: "{\"name\": \"Bob\", \"parameters\": {}}",
        calls: &[],
    },
    Case {
        format: "mistral",
        prompt: "[INST]q[/INST]",
        text: "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}, \"id\": \"abcdefghi\"}, {\"name\": \"clock\", \"arguments\": {}}]",
        reasoning: "",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "mistral",
        prompt: "",
        text: "[THINK]hm[/THINK]Wait.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}[TOOL_CALLS]clock[CALL_ID]c1[ARGS]{}[TOOL_CALLS]clock{}",
        reasoning: "hm",
        content: "Wait.",
        calls: &[WEATHER, CLOCK, CLOCK],
    },
    Case {
        format: "gpt-oss",
        prompt: "<|end|><|start|>assistant",
        text: "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}<|call|>",
        reasoning: "Need weather.",
        content: "One moment.",
        calls: &[WEATHER],
    },
    Case {
        format: "gpt-oss",
        prompt: "<|start|>assistant",
        text: " to=functions.clock<|channel|>commentary json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>It is 3.<|return|>",
        reasoning: "",
        content: "It is 3.",
        calls: &[CLOCK],
    },
    Case {
        format: "gemma4",
        prompt: "<|turn>model\n",
        text: "<|channel>thought\nhm<channel|>Yes.<|tool_call>call:get_weather{city:<|\"|>Zürich \"A\"<|\"|>,days:3}<tool_call|><|tool_call>call:clock{}<tool_call|>",
        reasoning: "hm",
        content: "Yes.",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "glm",
        prompt: "<|assistant|>\n",
        text: "<think>hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich \"A\"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>clock</tool_call>",
        reasoning: "hm",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "deepseek-v3",
        prompt: "<｜Assistant｜>",
        text: "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        reasoning: "",
        content: "Let me see.",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "deepseek-v3",
        prompt: "<｜Assistant｜><think>",
        text: "hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        reasoning: "hm",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "deepseek-v3.2",
        prompt: "<｜Assistant｜></think>",
        text: "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zürich \"A\"</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        reasoning: "",
        content: "",
        calls: &[WEATHER],
    },
    Case {
        format: "kimi-k2",
        prompt: "<|im_assistant|>assistant<|im_middle|>",
        text: "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}<|tool_call_end|><|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        reasoning: "",
        content: "Ok.",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "minimax-m2",
        prompt: "]~b]ai\n<think>\n",
        text: "hm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich \"A\"</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"clock\">\n</invoke>\n</minimax:tool_call>",
        reasoning: "hm",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "minimax-m1",
        prompt: "",
        text: "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}}\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_calls>",
        reasoning: "",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "lfm2",
        prompt: "<|im_start|>assistant\n",
        text: "<|tool_call_start|>[get_weather(city='Zürich \"A\"', days=3), clock()]<|tool_call_end|>Looking.",
        reasoning: "",
        content: "Looking.",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "lfm2",
        prompt: "",
        text: "<|tool_call_start|>[{\"name\": \"clock\", \"arguments\": {}}]<|tool_call_end|>",
        reasoning: "",
        content: "",
        calls: &[CLOCK],
    },
    Case {
        format: "granite",
        prompt: "<|start_of_role|>assistant<|end_of_role|>",
        text: "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}}, {\"name\": \"clock\", \"arguments\": {}}]",
        reasoning: "",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "granite",
        prompt: "",
        text: "<think>hm</think>\n<response>Yes.</response>",
        reasoning: "hm",
        content: "Yes.",
        calls: &[],
    },
    Case {
        format: "command",
        prompt: "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        text: "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich \\\"A\\\"\", \"days\": 3}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"clock\", \"parameters\": {}}\n]<|END_ACTION|>",
        reasoning: "hm",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "command",
        prompt: "",
        text: "<|START_RESPONSE|>Hello.<|END_RESPONSE|>",
        reasoning: "",
        content: "Hello.",
        calls: &[],
    },
    Case {
        format: "llama4",
        prompt: "<|header_start|>assistant<|header_end|>\n\n",
        text: "[get_weather(city=\"Zürich \\\"A\\\"\", days=3), clock()]",
        reasoning: "",
        content: "",
        calls: &[WEATHER, CLOCK],
    },
    Case {
        format: "llama4",
        prompt: "",
        text: "<|python_start|>[clock()]<|python_end|>",
        reasoning: "",
        content: "",
        calls: &[CLOCK],
    },
    Case { format: "llama4", prompt: "", text: "[a list]", reasoning: "", content: "[a list]", calls: &[] },
    Case {
        format: "smollm3",
        prompt: "<|im_start|>assistant\n",
        text: "<think>\nhm\n</think>\n<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>",
        reasoning: "hm",
        content: "",
        calls: &[CLOCK],
    },
    Case {
        format: "smollm3",
        prompt: "",
        text: "<code>\nget_weather(city='Zürich \"A\"', days=3)\n</code>",
        reasoning: "",
        content: "",
        calls: &[WEATHER],
    },
];

#[test]
fn answers_as_models_write_them_become_messages() {
    for case in CASES {
        let format = Format::built_in(case.format).expect(case.format);
        let message = read(&format, case.prompt, case.text);
        let calls: Vec<(&str, String)> =
            message.tool_calls.iter().map(|call| (call.name.as_str(), call.arguments.to_string())).collect();
        let wanted: Vec<(&str, String)> = case.calls.iter().map(|(name, text)| (*name, text.to_string())).collect();
        assert_eq!(calls, wanted, "{}: {}\n{message:?}", case.format, case.text);
        assert_eq!(message.reasoning, case.reasoning, "{}: {}", case.format, case.text);
        assert_eq!(message.content, case.content, "{}: {}\n{message:?}", case.format, case.text);
        let wants_malformed = case.content.starts_with(['{', '[']);
        assert_eq!(message.malformed.is_empty(), !wants_malformed, "{}: {message:?}", case.format);
    }
    for name in Format::names() {
        assert!(CASES.iter().any(|case| case.format == name), "{name} has an answer");
    }
}

/// What the chat templates of known models have of their markers.
const TEMPLATES: &[(&str, &str)] = &[
    ("text", "{{ bos_token }}{% for message in messages %}[INST] {{ message.content }} [/INST]{% endfor %}"),
    ("think", "{% if '</think>' in content %}{% endif %}<|im_start|>assistant\n<think>\n"),
    (
        "hermes",
        "return a json object within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}",
    ),
    ("qwen3-coder", "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>"),
    (
        "llama3",
        "<|start_header_id|>ipython<|end_header_id|> {{ '{\"name\": \"' }} {{ '\"parameters\": ' }} <|python_tag|>",
    ),
    ("llama4", "<|header_start|>assistant<|header_end|> <|python_start|>"),
    ("mistral", "[AVAILABLE_TOOLS][/AVAILABLE_TOOLS][TOOL_CALLS]"),
    ("gpt-oss", "<|start|>assistant<|channel|>analysis<|message|>"),
    ("gemma4", "<|turn>model\n<|tool_call>call:"),
    ("glm", "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>"),
    ("deepseek-v3", "<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
    ("deepseek-v3.2", "<｜DSML｜function_calls>"),
    ("kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>"),
    ("minimax-m2", "<minimax:tool_call>\n<invoke name="),
    ("minimax-m1", "<tool_calls>\n{\"name\""),
    ("lfm2", "<|tool_list_start|><|tool_call_start|>"),
    ("granite", "<|tool_call|>"),
    ("command", "<|START_THINKING|><|START_ACTION|>"),
    ("smollm3", "<tool_call>{json}</tool_call> <code>f()</code> /think"),
];

#[test]
fn what_the_prompt_has_begun_is_known() {
    let history = "<｜Assistant｜><think>old</think><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜end▁of▁sentence｜>result";
    let cases = [
        ("deepseek-v3", format!("{history}\n\n<think>"), "hm</think>Hello", "hm", "Hello"),
        ("deepseek-v3", history.to_string(), "Hello", "", "Hello"),
        ("deepseek-v3", "<｜Assistant｜></think>".to_string(), "Hello", "", "Hello"),
        ("gemma4", "<|turn>model\n<|channel>thought\n<channel|>".to_string(), "Hello", "", "Hello"),
        (
            "gemma4",
            "<|turn>model\n<|tool_call>call:clock{}<tool_call|>x<tool_response|>".to_string(),
            "Hello",
            "",
            "Hello",
        ),
        ("gemma4", "<|turn>model\n<|channel>thought\n".to_string(), "hm<channel|>Hello", "hm", "Hello"),
        ("glm", "<|assistant|>\n<think></think>".to_string(), "\nHello", "", "Hello"),
        (
            "mistral",
            "[INST]q[/INST][TOOL_CALLS]clock[ARGS]{}</s>[TOOL_RESULTS]3[/TOOL_RESULTS]".to_string(),
            "Hello",
            "",
            "Hello",
        ),
        (
            "command",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>".to_string(),
            "hm<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>",
            "hm",
            "Hello",
        ),
        ("hermes", "nobody knows this template<think>\n".to_string(), "hm</think>Hello", "hm", "Hello"),
        ("hermes", "<|im_start|>assistant\n<think>one, ".to_string(), "two</think>Hello", "one, two", "Hello"),
        ("hermes", "<|im_start|>assistant\nHel".to_string(), "lo", "", "Hello"),
    ];
    for (name, prompt, text, reasoning, content) in cases {
        let message = read(&Format::built_in(name).expect(name), &prompt, text);
        assert_eq!((message.reasoning.as_str(), message.content.as_str()), (reasoning, content), "{name}: {prompt}");
        assert!(message.tool_calls.is_empty(), "{name}: {prompt}");
    }
}

#[test]
fn the_format_is_found_by_the_markers_of_the_chat_template() {
    for (name, template) in TEMPLATES {
        assert_eq!(Format::of_chat_template(template).name(), *name, "{template}");
    }
    assert_eq!(TEMPLATES.len(), Format::names().count());
    assert!(Format::built_in("none").is_none());
    fn may_be_shared<T: Send + Sync>() {}
    may_be_shared::<Format>();
    may_be_shared::<AnswerParser>();
}

#[test]
fn a_folder_says_how_its_answers_are_read() {
    let folder = std::env::temp_dir().join(format!("nanovllm-answer-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let open = |config: Json| {
        std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).expect("a file");
        Format::open(&Source::open(&folder).expect("a folder"))
    };
    let name = |format: Result<Format>| format.expect("a format").name().to_string();
    assert_eq!(name(open(json!({}))), "text");
    assert_eq!(name(open(json!({"chat_template": "<tool_call>"}))), "hermes");
    let tool_use = json!({"chat_template": [
        {"name": "default", "template": "x"}, {"name": "tool_use", "template": "[TOOL_CALLS]"}]});
    assert_eq!(name(open(tool_use)), "mistral");
    let template = json!({"start_anchor": "A", "fields": {"content": {}}});
    assert_eq!(name(open(json!({"chat_template": "<tool_call>", "response_template": template}))), "response_template");
    let refused =
        open(json!({"response_template": {"start_anchor": "A", "fields": {"content": {"open_pattern": "(?=x)"}}}}));
    let refused = refused.expect_err("a look-around").to_string();
    assert!(
        refused.contains("tokenizer_config.json: response_template: field \"content\"")
            && refused.contains("look-around"),
        "{refused}"
    );
    let _ = std::fs::remove_dir_all(&folder);
}
