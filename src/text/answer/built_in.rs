//! The formats of models whose folder has no `response_template`, each found by the markers in its chat template.
//!
//! Markers are expressions of Python's syntax, as those of a `response_template` are. Where each syntax is defined: the chat
//! template of the family, and the tool parser of vLLM (`vllm/tool_parsers`) that is named beside it.

use super::pattern::Pattern;
use super::region::{Calls, Grammar, Inside, Opened, Region, Tags, Untyped, Voice};
use super::value::Notation;

/// A format: its name, markers of its chat templates, and its regions. One of the lists of markers has to be in the template as a whole.
struct Row {
    name: &'static str,
    marks: &'static [&'static [&'static str]],
    regions: &'static [Part],
}

/// A region of a format: what it begins with, what is inside, what it ends with.
struct Part(&'static str, Within, &'static str);

enum Within {
    Reasoning,
    Content,
    Objects,
    KnownObjects,
    Json,
    Gemma,
    Python,
    KnownPython,
    /// Markers before and after a value, and what a value without a type is.
    Tags(&'static str, &'static str, Untyped),
}

use Within::{Content, Gemma, Json, KnownObjects, KnownPython, Objects, Python, Reasoning};

const THINK: Part = Part("<think>", Reasoning, "</think>");

/// The end of a message of gpt-oss.
const HARMONY_END: &str = r"<\|end\|>|<\|return\|>|<\|call\|>";

/// In the order in which they are looked for: what is special comes first.
const ROWS: &[Row] = &[
    // OpenAI harmony; openai_tool_parser.py.
    Row {
        name: "gpt-oss",
        marks: &[&["<|channel|>", "<|message|>"]],
        regions: &[
            Part(r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>", Reasoning, HARMONY_END),
            Part(
                r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)(?:\s*<\|constrain\|>[A-Za-z_]+)?<\|message\|>",
                Content,
                HARMONY_END,
            ),
            Part(
                r"(?:<\|start\|>assistant)?<\|channel\|>(?:commentary|analysis)\s+to=(?:functions\.)?(?P<name>[A-Za-z0-9_.\-]+)(?:\s*<\|constrain\|>\s*[A-Za-z_]+|\s+[A-Za-z_]+)?\s*<\|message\|>",
                Json,
                r"\s*(?:<\|call\|>|<\|end\|>|<\|return\|>)",
            ),
            Part(
                r"(?:<\|start\|>assistant)?\s+to=(?:functions\.)?(?P<name>[A-Za-z0-9_.\-]+)\s*<\|channel\|>(?:commentary|analysis)(?:\s*<\|constrain\|>\s*[A-Za-z_]+|\s+[A-Za-z_]+)?\s*<\|message\|>",
                Json,
                r"\s*(?:<\|call\|>|<\|end\|>|<\|return\|>)",
            ),
        ],
    },
    // gemma4_tool_parser.py.
    Row {
        name: "gemma4",
        marks: &[&["<|tool_call>"], &["<|channel>"]],
        regions: &[
            Part(r"<\|channel>thought\n", Reasoning, r"<channel\|>"),
            Part(r"<\|tool_call>call:(?P<name>[A-Za-z0-9_.\-]+)(?P<body>\{)", Gemma, r"<tool_call\|>"),
        ],
    },
    // mistral_tool_parser.py: a list before tokenizer v11, then a name and `[ARGS]`.
    Row {
        name: "mistral",
        marks: &[&["[TOOL_CALLS]"], &["[THINK]"]],
        regions: &[
            Part(r"\[THINK\]", Reasoning, r"\[/THINK\]"),
            Part(r"\[TOOL_CALLS\]\s*(?P<body>[\[\{])", Objects, ""),
            Part(
                r"\[TOOL_CALLS\]\s*(?P<name>[A-Za-z0-9_.\-]+)\s*(?:\[CALL_ID\](?P<id>[A-Za-z0-9_\-]+))?(?:\[ARGS\])?\s*(?P<body>\{)",
                Json,
                "",
            ),
        ],
    },
    // deepseekv32_tool_parser.py.
    Row {
        name: "deepseek-v3.2",
        marks: &[&["｜DSML｜"]],
        regions: &[
            THINK,
            Part(
                r#"(?:<｜DSML｜function_calls>\s*)?<｜DSML｜invoke name="(?P<name>[^"<\n]+)">"#,
                Within::Tags(
                    r#"\s*<｜DSML｜parameter name="(?P<key>[^"<\n]+)"(?: string="(?P<string>true|false)")?>"#,
                    r"</｜DSML｜parameter>",
                    Untyped::Json,
                ),
                r"\s*</｜DSML｜invoke>(?:\s*</｜DSML｜function_calls>)?",
            ),
        ],
    },
    // deepseekv3_tool_parser.py and deepseekv31_tool_parser.py.
    Row {
        name: "deepseek-v3",
        marks: &[&["<｜tool▁calls▁begin｜>"], &["<｜tool▁call▁begin｜>"]],
        regions: &[
            THINK,
            Part(
                r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\s*(?P<body>\{)",
                Json,
                r"\s*```\s*<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?",
            ),
            Part(
                r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(?P<name>[^\n<]+)<｜tool▁sep｜>\s*(?P<body>\{)",
                Json,
                r"\s*<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?",
            ),
        ],
    },
    // kimi_k2_tool_parser.py: the id is functions.NAME:INDEX.
    Row {
        name: "kimi-k2",
        marks: &[&["<|tool_calls_section_begin|>"], &["<|tool_call_begin|>"]],
        regions: &[
            THINK,
            Part(
                r"(?:<\|tool_calls_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[A-Za-z0-9_.\-]+)(?::[0-9]+)?)\s*<\|tool_call_argument_begin\|>\s*(?P<body>\{)",
                Json,
                r"\s*<\|tool_call_end\|>(?:\s*<\|tool_calls_section_end\|>)?",
            ),
        ],
    },
    // minimax_m2_tool_parser.py.
    Row {
        name: "minimax-m2",
        marks: &[&["<minimax:tool_call>"]],
        regions: &[
            THINK,
            Part(
                r#"(?:<minimax:tool_call>\s*)?<invoke name="?(?P<name>[^"<>\n]+)"?>"#,
                Within::Tags(r#"\s*<parameter name="?(?P<key>[^"<>\n]+)"?>"#, "</parameter>", Untyped::String),
                r"\s*</invoke>(?:\s*</minimax:tool_call>)?",
            ),
        ],
    },
    // minimax_tool_parser.py.
    Row {
        name: "minimax-m1",
        marks: &[&["<tool_calls>"]],
        regions: &[THINK, Part(r"<tool_calls>\s*(?P<body>[\{\[])", Objects, r"\s*</tool_calls>")],
    },
    // glm4_moe_tool_parser.py and glm47_moe_tool_parser.py.
    Row {
        name: "glm",
        marks: &[&["<arg_key>"]],
        regions: &[
            THINK,
            Part(
                r"<tool_call>\s*(?P<name>[A-Za-z0-9_.\-]+)",
                Within::Tags(r"\s*<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>", "</arg_value>", Untyped::Json),
                r"\s*</tool_call>",
            ),
        ],
    },
    // qwen3coder_tool_parser.py and seed_oss_tool_parser.py.
    Row {
        name: "qwen3-coder",
        marks: &[&["<function="]],
        regions: &[
            THINK,
            Part("<seed:think>", Reasoning, "</seed:think>"),
            Part(
                r"(?:<tool_call>\s*|<seed:tool_call>\s*)?<function=(?P<name>[^<>\n]+)>",
                Within::Tags(r"\s*<parameter=(?P<key>[^<>\n]+)>\n?", r"\n?</parameter>", Untyped::String),
                r"\s*</function>(?:\s*</tool_call>|\s*</seed:tool_call>)?",
            ),
        ],
    },
    // lfm2_tool_parser.py; the model may be told to write JSON.
    Row {
        name: "lfm2",
        marks: &[&["<|tool_call_start|>"]],
        regions: &[
            THINK,
            Part(r"<\|tool_call_start\|>\s*(?P<body>\[?\s*\{)", Objects, r"\s*<\|tool_call_end\|>"),
            Part(r"<\|tool_call_start\|>\s*(?P<body>\[?\s*[A-Za-z_])", Python, r"\s*<\|tool_call_end\|>"),
        ],
    },
    // cohere_command_tool_parser.py.
    Row {
        name: "command",
        marks: &[&["<|START_ACTION|>"], &["<|START_THINKING|>"]],
        regions: &[
            Part(r"<\|START_THINKING\|>", Reasoning, r"<\|END_THINKING\|>"),
            Part(r"<\|START_RESPONSE\|>", Content, r"<\|END_RESPONSE\|>"),
            Part(r"<\|START_TEXT\|>", Content, r"<\|END_TEXT\|>"),
            Part(r"<\|START_ACTION\|>\s*(?P<body>[\[\{])", Objects, r"\s*<\|END_ACTION\|>"),
        ],
    },
    // granite_tool_parser.py and phi4mini_tool_parser.py. Granite 4 writes as Hermes does.
    Row {
        name: "granite",
        marks: &[&["<|tool_call|>"]],
        regions: &[
            THINK,
            Part("<response>", Content, "</response>"),
            Part(
                r"(?:<\|tool_call\|>|<tool_call>)\s*(?P<body>[\[\{])",
                Objects,
                r"\s*(?:<\|/tool_call\|>|</tool_call>)",
            ),
        ],
    },
    // llama4_pythonic_tool_parser.py; the published template asks for JSON.
    Row {
        name: "llama4",
        marks: &[&["<|python_start|>"], &["<|header_start|>"]],
        regions: &[
            Part(r"<\|python_start\|>\s*(?P<body>\[?\s*[A-Za-z_])", KnownPython, r"\s*<\|python_end\|>"),
            Part(r"<\|python_start\|>\s*(?P<body>\[?\s*\{)", KnownObjects, r"\s*<\|python_end\|>"),
            Part(r"\A\s*(?P<body>\[\s*[A-Za-z_])", KnownPython, ""),
            Part(r"\A\s*(?P<body>\{)", KnownObjects, ""),
        ],
    },
    // llama_tool_parser.py.
    Row {
        name: "llama3",
        marks: &[&["<|python_tag|>"], &["<|start_header_id|>", "\"parameters\""]],
        regions: &[
            Part(r"<\|python_tag\|>\s*(?P<body>\{)", KnownObjects, ""),
            Part(r"<\|python_tag\|>\s*(?P<body>[A-Za-z_])", KnownPython, ""),
            Part(r"\A\s*(?P<body>\{)", KnownObjects, ""),
        ],
    },
    // SmolLM3 has JSON and Python, as its system prompt says.
    Row {
        name: "smollm3",
        marks: &[&["<tool_call>", "<code>"]],
        regions: &[
            THINK,
            Part(r"<tool_call>\s*(?P<body>[\{\[])", Objects, r"\s*</tool_call>"),
            Part(r"<code>\s*(?P<body>[A-Za-z_\[])", KnownPython, r"\s*</code>"),
        ],
    },
    // hermes_tool_parser.py: Hermes, Qwen 2.5 and 3, Granite 4.
    Row {
        name: "hermes",
        marks: &[&["<tool_call>"]],
        regions: &[THINK, Part(r"<tool_call>\s*(?P<body>[\{\[])", Objects, r"\s*</tool_call>")],
    },
    Row { name: "think", marks: &[&["<think>"]], regions: &[THINK] },
    Row { name: "text", marks: &[], regions: &[] },
];

/// The names of the formats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// The format whose markers are in a chat template; text alone if there is none.
pub(super) fn name_for(chat_template: &str) -> &'static str {
    let has = |marks: &&[&str]| marks.iter().all(|mark| chat_template.contains(mark));
    ROWS.iter().find(|row| row.marks.iter().any(has)).map_or("text", |row| row.name)
}

/// The regions of the format of this name.
pub(super) fn grammar(name: &str) -> Option<Result<Grammar, String>> {
    let row = ROWS.iter().find(|row| row.name == name)?;
    let mut reasoning_ends = Vec::new();
    let mut regions =
        vec![Ok(Region { name: "content".to_string(), open: None, close: None, inside: Inside::Text(Voice::Content) })];
    for (index, part) in row.regions.iter().enumerate() {
        // A literal, as far as the formats go whose templates write it.
        if matches!(part.1, Reasoning) && !part.2.contains('|') && !part.2.contains('\\') {
            reasoning_ends.push(part.2);
        }
        regions.push(region(index, part));
    }
    let regions: Result<Vec<Region>, String> = regions.into_iter().collect();
    Some(regions.map(|regions| Grammar::new(name, regions, Opened::AfterKnown { reasoning_ends })))
}

fn region(index: usize, Part(open, within, close): &Part) -> Result<Region, String> {
    let mut end = Some(*close).filter(|close| !close.is_empty());
    let inside = match within {
        Reasoning => Inside::Text(Voice::Reasoning),
        Content => Inside::Text(Voice::Content),
        Objects => Inside::Calls(Calls::Objects { only_known: false }),
        KnownObjects => Inside::Calls(Calls::Objects { only_known: true }),
        Json => Inside::Calls(Calls::Arguments(Notation::Json)),
        Gemma => Inside::Calls(Calls::Arguments(Notation::Gemma)),
        Python => Inside::Calls(Calls::Python { only_known: false }),
        KnownPython => Inside::Calls(Calls::Python { only_known: true }),
        Within::Tags(parameter, value_end, untyped) => Inside::Calls(Calls::Tags(Box::new(Tags {
            parameter: Pattern::python(parameter)?,
            value_end: Pattern::python(value_end)?,
            end: Pattern::python(end.take().unwrap_or_default())?,
            untyped: *untyped,
        }))),
    };
    let close = end.map(Pattern::python).transpose()?;
    Ok(Region { name: format!("region {index}"), open: Some(Pattern::python(open)?), close, inside })
}
