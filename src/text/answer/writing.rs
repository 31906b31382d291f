//! How each format writes tool calls: what a model was taught, where [`built_in`](super::built_in) has what it may write.
//!
//! Texts of the chat templates, with placeholders: `%NAME%` is the name of a tool, `%KEY%` that of an argument, `%STRING%` whether its value is
//! a string, `%INDEX%` a number. Texts that are tokens of the model are written as tokens.

/// How a format writes.
#[derive(Debug)]
pub(super) struct Writing {
    pub format: &'static str,
    /// A text of the chat templates that write so. The last row of a format has none.
    pub needs: &'static str,
    /// Markers around reasoning. Between the second one and what follows may be white space.
    pub reasoning: Option<(&'static str, &'static str)>,
    /// What calls begin with, and nothing else does. Empty if they begin as an answer in JSON might.
    pub marker: &'static str,
    /// Further markers that the parser takes for the begin of a call.
    pub also: &'static [&'static str],
    /// Before the first call, between two, and after the last.
    pub section: [&'static str; 3],
    /// Before the arguments of a call.
    pub before: &'static str,
    pub arguments: Arguments,
    /// After the arguments of a call.
    pub after: &'static str,
    pub shape: Shape,
}

/// How arguments are written.
#[derive(Debug)]
pub(super) enum Arguments {
    /// As a JSON object.
    Json,
    /// As an object in Gemma's notation: keys without quotation marks, and strings between `<|"|>`.
    Gemma,
    /// Each between markers: before a value, after one, and after that. `lead` comes before the marker after a value that is no text.
    Tags { before: &'static str, lead: &'static str, stop: &'static str, after: &'static str },
}

/// What an answer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Text, with calls anywhere after the reasoning.
    Text,
    /// One call per answer, after text in messages of its own, as gpt-oss has it.
    Channels,
    /// Calls, or text.
    Either,
}

use Arguments::{Gemma, Json, Tags};
use Shape::{Channels, Either, Text};

const THINK: Option<(&str, &str)> = Some(("<think>", "</think>"));

/// An object in JSON with these names of its members.
macro_rules! object {
    ($name:literal, $arguments:literal) => {
        concat!("{\"", $name, "\": \"%NAME%\", \"", $arguments, "\": ")
    };
}

/// What most rows have.
const PLAIN: Writing = Writing {
    format: "hermes",
    needs: "",
    reasoning: THINK,
    marker: "<tool_call>",
    also: &[],
    section: ["", "\n", ""],
    before: concat!("<tool_call>\n", object!("name", "arguments")),
    arguments: Json,
    after: "}\n</tool_call>",
    shape: Text,
};

const QWEN_CODER: Writing = Writing {
    format: "qwen3-coder",
    also: &["<function=", "<seed:tool_call>"],
    before: "<tool_call>\n<function=%NAME%>\n",
    arguments: Tags { before: "<parameter=%KEY%>\n", lead: "\n", stop: "</parameter>", after: "\n" },
    after: "</function>\n</tool_call>",
    ..PLAIN
};

const GLM: Writing = Writing {
    format: "glm",
    before: "<tool_call>%NAME%\n",
    arguments: Tags { before: "<arg_key>%KEY%</arg_key>\n<arg_value>", lead: "", stop: "</arg_value>", after: "\n" },
    after: "</tool_call>",
    ..PLAIN
};

const DEEPSEEK: Writing = Writing {
    format: "deepseek-v3",
    marker: "<｜tool▁calls▁begin｜>",
    also: &["<｜tool▁call▁begin｜>"],
    section: ["<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"],
    before: "<｜tool▁call▁begin｜>%NAME%<｜tool▁sep｜>",
    after: "<｜tool▁call▁end｜>",
    ..PLAIN
};

const MISTRAL: Writing = Writing {
    format: "mistral",
    reasoning: Some(("[THINK]", "[/THINK]")),
    marker: "[TOOL_CALLS]",
    section: ["[TOOL_CALLS][", ", ", "]"],
    before: object!("name", "arguments"),
    after: "}",
    ..PLAIN
};

const LLAMA: Writing = Writing {
    format: "llama3",
    reasoning: None,
    marker: "",
    section: ["", "; ", ""],
    before: object!("name", "parameters"),
    after: "}",
    shape: Either,
    ..PLAIN
};

const ROWS: &[Writing] = &[
    Writing {
        format: "gpt-oss",
        reasoning: Some(("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")),
        marker: "<|channel|>",
        before: "<|channel|>commentary to=functions.%NAME% <|constrain|>json<|message|>",
        after: "<|call|>",
        shape: Channels,
        ..PLAIN
    },
    Writing { needs: "[ARGS]", section: ["", "", ""], before: "[TOOL_CALLS]%NAME%[ARGS]", after: "", ..MISTRAL },
    MISTRAL,
    Writing {
        format: "deepseek-v3.2",
        marker: "<｜DSML｜function_calls>",
        also: &["<｜DSML｜invoke"],
        section: ["<｜DSML｜function_calls>\n", "\n", "\n</｜DSML｜function_calls>"],
        before: "<｜DSML｜invoke name=\"%NAME%\">\n",
        arguments: Tags {
            before: "<｜DSML｜parameter name=\"%KEY%\" string=\"%STRING%\">",
            lead: "",
            stop: "</｜DSML｜parameter>",
            after: "\n",
        },
        after: "</｜DSML｜invoke>",
        ..PLAIN
    },
    Writing {
        needs: "```json",
        section: ["<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"],
        before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%NAME%\n```json\n",
        after: "\n```<｜tool▁call▁end｜>",
        ..DEEPSEEK
    },
    DEEPSEEK,
    Writing {
        format: "kimi-k2",
        marker: "<|tool_calls_section_begin|>",
        also: &["<|tool_call_begin|>"],
        section: ["<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>"],
        before: "<|tool_call_begin|>functions.%NAME%:%INDEX%<|tool_call_argument_begin|>",
        after: "<|tool_call_end|>",
        ..PLAIN
    },
    Writing {
        format: "minimax-m2",
        marker: "<minimax:tool_call>",
        also: &["<invoke name="],
        section: ["<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>"],
        before: "<invoke name=\"%NAME%\">\n",
        arguments: Tags { before: "<parameter name=\"%KEY%\">", lead: "", stop: "</parameter>", after: "\n" },
        after: "</invoke>",
        ..PLAIN
    },
    Writing {
        format: "minimax-m1",
        marker: "<tool_calls>",
        section: ["<tool_calls>\n", "\n", "\n</tool_calls>"],
        before: object!("name", "arguments"),
        after: "}",
        ..PLAIN
    },
    Writing {
        needs: "</arg_key><arg_value>",
        section: ["", "", ""],
        before: "<tool_call>%NAME%",
        arguments: Tags { before: "<arg_key>%KEY%</arg_key><arg_value>", lead: "", stop: "</arg_value>", after: "" },
        ..GLM
    },
    GLM,
    Writing {
        needs: "<seed:tool_call>",
        reasoning: Some(("<seed:think>", "</seed:think>")),
        marker: "<seed:tool_call>",
        also: &["<function=", "<tool_call>"],
        before: "<seed:tool_call>\n<function=%NAME%>\n",
        arguments: Tags { before: "<parameter=%KEY%>", lead: "", stop: "</parameter>", after: "\n" },
        after: "</function>\n</seed:tool_call>",
        ..QWEN_CODER
    },
    QWEN_CODER,
    Writing {
        format: "lfm2",
        marker: "<|tool_call_start|>",
        section: ["<|tool_call_start|>[", ", ", "]<|tool_call_end|>"],
        before: object!("name", "arguments"),
        after: "}",
        ..PLAIN
    },
    Writing {
        format: "command",
        reasoning: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
        marker: "<|START_ACTION|>",
        section: ["<|START_ACTION|>[\n    ", ",\n    ", "\n]<|END_ACTION|>"],
        before: "{\"tool_call_id\": \"%INDEX%\", \"tool_name\": \"%NAME%\", \"parameters\": ",
        after: "}",
        ..PLAIN
    },
    Writing {
        format: "granite",
        marker: "<|tool_call|>",
        also: &["<tool_call>"],
        section: ["<|tool_call|>[", ", ", "]"],
        before: object!("name", "arguments"),
        after: "}",
        ..PLAIN
    },
    Writing {
        format: "gemma4",
        reasoning: Some(("<|channel>thought\n", "<channel|>")),
        marker: "<|tool_call>",
        section: ["", "", ""],
        before: "<|tool_call>call:%NAME%",
        arguments: Gemma,
        after: "<tool_call|>",
        ..PLAIN
    },
    Writing { format: "llama4", also: &["<|python_start|>"], ..LLAMA },
    Writing { also: &["<|python_tag|>"], ..LLAMA },
    Writing { format: "smollm3", also: &["<code>"], ..PLAIN },
    PLAIN,
];

/// How the format of this name writes tool calls, with a chat template; `None` if it has none, or if no grammar can say it.
pub(super) fn of(format: &str, chat_template: &str) -> Option<&'static Writing> {
    ROWS.iter().find(|row| row.format == format && chat_template.contains(row.needs))
}
