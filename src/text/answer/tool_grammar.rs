//! Tools become a grammar: the answers in which each call is well formed, and its arguments follow the schema of its tool.
//!
//! The grammar is in `llguidance`'s dialect of Lark, for [`Structure::Lark`](crate::structure::Structure). Markers that are tokens of the model
//! are matched as tokens, and nowhere as text: what a parser would take for the begin of a call can be written as that alone.

mod gemma;

use super::region::Untyped;
use super::tools::{ParallelCalls, Tool, ToolChoice, ToolSchemas, ToolUse};
use super::typed::{Tools, typed};
use super::value::json as read_json;
use super::writing::{Arguments, Shape, Writing};
use super::{Begun, Format};
use crate::structure::guided_schema;
use crate::tokenizer::Tokenizer;
use base::TokenId;
use base::error::{Error, Result};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;

/// Keys of a schema that say nothing about values.
const ANNOTATIONS: &[&str] =
    &["title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "nullable"];

/// References within references that are followed.
const REFERENCES: usize = 16;

/// The tokens of a model that stand for marks, not for text.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// With their spelling, the longest first.
    by_spelling: Vec<(String, TokenId)>,
}

/// A part of a text that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Mark(TokenId),
    Text(String),
}

impl Marks {
    /// Those of a model of `vocab_size` tokens.
    pub fn new(tokenizer: &Tokenizer, vocab_size: usize) -> Marks {
        let mark = |token: TokenId| {
            let bytes = tokenizer.token_bytes(token).filter(|bytes| !bytes.is_empty() && tokenizer.is_mark(token))?;
            Some((std::str::from_utf8(bytes).ok()?.to_string(), token))
        };
        let mut by_spelling: Vec<_> = (0..vocab_size as TokenId).filter_map(mark).collect();
        by_spelling.sort_by_key(|(spelling, token)| (std::cmp::Reverse(spelling.len()), *token));
        Marks { by_spelling }
    }

    /// The marks in a text, and what is between them.
    fn pieces(&self, text: &str) -> Vec<Piece> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(char) = rest.chars().next() {
            match self.by_spelling.iter().find(|(spelling, _)| rest.starts_with(spelling.as_str())) {
                Some((spelling, token)) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Mark(*token));
                    rest = &rest[spelling.len()..];
                }
                None => {
                    plain.push(char);
                    rest = &rest[char.len_utf8()..];
                }
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        pieces
    }
}

impl Format {
    /// A grammar, in Lark, of the answers that `tools` ask for, after what the prompt has [`begun`](Format::begun); `None` if they may be anything.
    /// Tokens of `ending` end an answer, and are in none of its texts.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if a call is asked for that no grammar of this format can say, and [`Error::Json`] for a schema that it cannot.
    pub fn tool_grammar(
        &self,
        tools: &ToolUse,
        begun: Begun,
        marks: &Marks,
        ending: &[TokenId],
    ) -> Result<Option<String>> {
        let is_asked = match tools.choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Auto if tools.list.is_empty() => return Ok(None),
            ToolChoice::Auto => false,
            ToolChoice::Required | ToolChoice::Named(_) => true,
        };
        let refuse = |why: &str| {
            let what = format!("tool_choice: {why}, so no call can be required: set tool_choice to auto");
            if is_asked { Err(Error::Unsupported { what }) } else { Ok(None) }
        };
        let Some(writing) = self.writing else {
            return refuse(&format!("the model's format of answers, {:?}, has no grammar of tool calls", self.name()));
        };
        if begun == Begun::Content && writing.shape != Shape::Text {
            return refuse("the prompt has begun the content of the answer");
        }
        if begun == Begun::Call {
            return refuse("the prompt ends inside a tool call");
        }
        let mut lark = Lark { writing, marks, ending, grammar: self, rules: String::new(), is_asked, texts: 0 };
        let called: Vec<Tool> = match &tools.choice {
            ToolChoice::Named(name) => tools.list.iter().filter(|tool| tool.name == name).collect(),
            _ => tools.list.iter().collect(),
        };
        lark.calls(&called, tools)?;
        lark.start(&called, begun, is_asked, tools.parallel);
        Ok(Some(lark.rules))
    }
}

impl ToolUse {
    /// The schemas that arguments follow, by the names of their tools.
    pub fn held_schemas(&self) -> impl Iterator<Item = (&str, Json)> {
        let is_held = |tool: &Tool| tool.strict.unwrap_or(self.schemas == ToolSchemas::Held);
        self.list.iter().filter(is_held).filter_map(|tool| Some((tool.name, tool.parameters?.clone())))
    }
}

/// A grammar that is being written.
struct Lark<'a> {
    writing: &'static Writing,
    marks: &'a Marks,
    ending: &'a [TokenId],
    grammar: &'a Format,
    rules: String,
    /// A call is asked for.
    is_asked: bool,
    /// Rules for texts up to a marker.
    texts: usize,
}

impl Lark<'_> {
    fn rule(&mut self, name: &str, body: &str) {
        let body = if body.trim().is_empty() { "\"\"" } else { body };
        writeln!(self.rules, "{name}: {body}").expect("a string");
    }

    /// A text as a sequence of tokens and strings, with numbers where it says so.
    fn written(&self, text: &str) -> String {
        self.spelled(text, with_index)
    }

    /// The same, where `spell` writes what is no token.
    fn spelled(&self, text: &str, spell: fn(&str) -> String) -> String {
        let mut out = Vec::new();
        for piece in self.marks.pieces(text) {
            out.push(match piece {
                Piece::Mark(token) => format!("<[{token}]>"),
                Piece::Text(text) => spell(&text),
            });
        }
        out.join(" ")
    }

    /// Marks that may be in a text: those that `reserved` does not have first. `None` if there are none.
    fn other_marks(&self, reserved: &[&str]) -> Option<String> {
        let first = |text: &&str| {
            self.marks.pieces(text).into_iter().find_map(|piece| match piece {
                Piece::Mark(token) => Some(token),
                Piece::Text(_) => None,
            })
        };
        let reserved: Vec<TokenId> = reserved.iter().filter_map(first).collect();
        let mut tokens: Vec<TokenId> = self.marks.by_spelling.iter().map(|(_, token)| *token).collect();
        tokens.retain(|token| !reserved.contains(token) && !self.ending.contains(token));
        tokens.sort_unstable();
        let mut ranges: Vec<(TokenId, TokenId)> = Vec::new();
        for token in tokens {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == token => *last = token,
                _ => ranges.push((token, token)),
            }
        }
        let ranges: Vec<String> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        (!ranges.is_empty()).then(|| format!("<[{}]>", ranges.join(",")))
    }

    /// A rule for text up to `marker`, which it includes. Marks may be in the text, but not those of `reserved`, unless that is `None`.
    fn until(&mut self, marker: &str, reserved: Option<&[&str]>) -> String {
        self.texts += 1;
        let number = self.texts;
        let name = format!("until_{number}");
        let pieces = self.marks.pieces(marker);
        let others = reserved.and_then(|reserved| self.other_marks(&[&[marker], reserved].concat()));
        let spelled = self.text_without(&[marker]);
        let free = format!("FREE_{number}");
        // Text between other marks, and of what lies after the last of these the part before the marker.
        let between = |out: &mut Self| match &others {
            Some(others) => {
                out.rule(&free, &spelled);
                format!("({free}? {others})*")
            }
            None => String::new(),
        };
        match (pieces.first(), pieces.get(1)) {
            (Some(Piece::Mark(token)), _) => {
                let rest = self.written(&marker[self.spelling(*token).len()..]);
                self.rule(&free, &spelled);
                let body = match &others {
                    Some(others) => format!("({free} | {others})*"),
                    None => format!("{free}?"),
                };
                self.rule(&name, &format!("{body} <[{token}]> {rest}"));
            }
            (Some(Piece::Text(text)), Some(Piece::Mark(token))) => {
                let lead = format!("LEAD_{number}");
                let rest = self.written(&marker[text.len() + self.spelling(*token).len()..]);
                self.rule(&lead, &format!("/(?s:.*){}/", regex(text)));
                let between = between(self);
                self.rule(&name, &format!("{between} {lead} <[{token}]> {rest}"));
            }
            _ => {
                let end = format!("end_{number}");
                self.rule(&format!("{end}[lazy]"), &format!("/(?s:.*){}/", regex(marker)));
                let between = between(self);
                self.rule(&name, &format!("{between} {end}"));
            }
        }
        name
    }

    /// A terminal: text that does not spell any of these. Where calls are not asked for, what is a token may be spelled: the mask of text
    /// is then found at once, and no model spells its own marks.
    fn text_without(&self, markers: &[&str]) -> String {
        let is_spelled =
            |marker: &&&str| self.is_asked || !matches!(self.marks.pieces(marker)[..], [Piece::Mark(_), ..]);
        without(&markers.iter().filter(is_spelled).copied().collect::<Vec<&str>>())
    }

    fn spelling(&self, token: TokenId) -> &str {
        self.marks.by_spelling.iter().find(|(_, known)| *known == token).map_or("", |(spelling, _)| spelling)
    }

    // ---- the answer ----

    /// The rules of a whole answer.
    fn start(&mut self, tools: &[Tool], begun: Begun, is_asked: bool, parallel: ParallelCalls) {
        let Writing { reasoning, marker, also, section, shape, .. } = self.writing;
        let more = match parallel {
            ParallelCalls::Many => format!("({} call)*", self.written(section[1])),
            ParallelCalls::One => String::new(),
        };
        let (before, after) = (self.written(section[0]), self.written(section[2]));
        if *shape == Shape::Channels {
            return self.channels(begun, is_asked);
        }
        self.rule("calls", &format!("{before} call {more} {after}"));
        let thought = reasoning.map(|(open, close)| (open, self.until(close, Some(&[]))));
        // The reasoning that may or has to come first.
        let first = match (&thought, begun) {
            (Some((_, thought)), Begun::Reasoning) => format!("{thought} SPACE?"),
            (Some((open, thought)), Begun::Nothing) => format!("({} {thought} SPACE?)?", self.written(open)),
            _ => "SPACE?".to_string(),
        };
        if is_asked {
            self.rule("SPACE", r"/[ \n]{1,4}/");
            return self.rule("start", &format!("{first} calls"));
        }
        let first = first.replace(" SPACE?", "").replace("SPACE?", "");
        let mut reserved: Vec<&str> = also.to_vec();
        if !marker.is_empty() {
            reserved.push(marker);
        }
        let opens_thought =
            thought.as_ref().filter(|(open, _)| matches!(self.marks.pieces(open)[..], [Piece::Mark(_)]));
        reserved.extend(opens_thought.map(|(open, _)| *open));
        let others = self.other_marks(&reserved);
        let others = others.map_or(String::new(), |others| format!(" | {others}"));
        let thoughts = opens_thought.map(|(open, thought)| format!(" | {} {thought}", self.written(open)));
        let thoughts = thoughts.unwrap_or_default();
        if *shape == Shape::Either {
            // What the parser takes for the begin of a call of one of the tools.
            let names: Vec<String> = tools.iter().map(|tool| regex(tool.name)).collect();
            let object =
                format!(r#"/\s*(\[?\s*\{{\s*"(name|parameters|type|function)"|\[\s*({})\()(?s:.*)/"#, names.join("|"));
            self.rule("FREE", &format!("{} & ~{object}", without(also)));
            self.rule("LATER", &without(also));
            let more = if others.is_empty() { String::new() } else { format!("({} LATER?)*", &others[3..]) };
            let tagged = match self.marks.pieces("<|python_tag|>")[..] {
                [Piece::Mark(token)] if also.contains(&"<|python_tag|>") => format!(" | <[{token}]> calls"),
                _ => String::new(),
            };
            return self.rule("start", &format!("calls{tagged} | FREE? {more}"));
        }
        let free = self.text_without(&reserved);
        self.rule("FREE", &free);
        if let Some(Piece::Mark(_)) = self.marks.pieces(marker).first() {
            let text = format!("(FREE{others}{thoughts})*");
            let body = match parallel {
                ParallelCalls::Many => format!("{first} (FREE | calls{others}{thoughts})*"),
                ParallelCalls::One => format!("{first} {text} (calls {text})?"),
            };
            return self.rule("start", &body);
        }
        // The text before a marker that is text ends with it.
        let opened = self.until(marker, Some(&reserved));
        let call = match section[0].strip_prefix(marker) {
            Some(rest) => format!("{} call", self.written(rest)),
            None => "first".to_string(),
        };
        let many = if parallel == ParallelCalls::Many { "*" } else { "?" };
        self.rule("opened", &format!("{opened} {call} {more} {after}"));
        self.rule("start", &format!("{first} opened{many} (FREE{others})*"));
    }

    /// The answers of gpt-oss: messages, of which the last is a call, or for the user.
    fn channels(&mut self, begun: Begun, is_asked: bool) {
        let (open, close) = self.writing.reasoning.unwrap_or_default();
        let end = self.until(close, None);
        self.rule("thought", &format!("{} {end}", self.written(open)));
        self.rule("told", &format!("{} {end}", self.written("<|channel|>commentary<|message|>")));
        self.rule("FINAL", "/(?s:.+)/");
        self.rule("final", &format!("{} FINAL?", self.written("<|channel|>final<|message|>")));
        let first = if begun == Begun::Reasoning { end.as_str() } else { "" };
        match (is_asked, begun) {
            (true, _) => self.rule("start", &format!("{first} (thought | told)* call")),
            (false, Begun::Content) => self.rule("start", "FINAL?"),
            (false, _) => self.rule("start", &format!("{first} (thought | told)* (call | final)?")),
        }
    }

    // ---- calls ----

    /// The rules of calls: `call`, and `first`, in which the marker is missing.
    fn calls(&mut self, tools: &[Tool], asked: &ToolUse) -> Result<()> {
        let Writing { before, after, marker, arguments, .. } = self.writing;
        let (mut calls, mut firsts) = (Vec::new(), Vec::new());
        for (index, tool) in tools.iter().enumerate() {
            let is_held = tool.strict.unwrap_or(asked.schemas == ToolSchemas::Held);
            let named = |text: &str| text.replace("%NAME%", tool.name);
            let written = match arguments {
                Arguments::Json => json_arguments(tool, is_held).map(|schema| format!("%json {schema}")),
                Arguments::Tags { .. } => self.tags(index, tool, is_held),
                Arguments::Gemma => self.gemma(index, tool, is_held),
            };
            let written = written.map_err(|reason| Error::Json {
                what: "tools",
                reason: format!("{}: {reason}: change the schema, or set strict_tools to 0", tool.name),
            })?;
            self.rule(&format!("arguments_{index}"), &written);
            let rest = format!("arguments_{index} {}", self.written(&named(after)));
            calls.push(format!("{} {rest}", self.written(&named(before))));
            if let Some(stripped) = before.strip_prefix(marker) {
                firsts.push(format!("{} {rest}", self.written(&named(stripped))));
            }
        }
        self.rule("call", &calls.join(" | "));
        if !firsts.is_empty() {
            self.rule("first", &firsts.join(" | "));
        }
        Ok(())
    }

    /// Arguments between tags.
    fn tags(&mut self, index: usize, tool: &Tool, is_held: bool) -> std::result::Result<String, String> {
        let Arguments::Tags { before, lead, stop, after } = self.writing.arguments else { return Ok(String::new()) };
        let begin = |key: &str, is_text: bool| {
            before.replace("%KEY%", key).replace("%STRING%", if is_text { "true" } else { "false" })
        };
        let text = match self.texts_of_tags() {
            Some(text) => text,
            None => {
                let text = self.until(stop, None);
                self.rule("tag_text", &text);
                "tag_text".to_string()
            }
        };
        let after = self.written(after);
        if !is_held {
            let (first, second) = before.split_once("%KEY%").unwrap_or((before, ""));
            let second = second.replace("%STRING%", "true");
            let key = format!("KEY_{index}");
            self.rule(&key, "/[A-Za-z0-9_]{1,40}/");
            return Ok(format!("({} {key} {} {text} {after})*", self.written(first), self.written(&second)));
        }
        let none = json!({"type": "object", "properties": {}});
        let root = tool.parameters.unwrap_or(&none);
        for key in root.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
            let is_known = ANNOTATIONS.contains(&key)
                || [
                    "type",
                    "properties",
                    "required",
                    "additionalProperties",
                    "$defs",
                    "definitions",
                    "$schema",
                    "$id",
                    "strict",
                ]
                .contains(&key);
            if !is_known {
                return Err(format!(
                    "{key:?} of the parameters cannot be held where arguments are written between tags"
                ));
            }
        }
        if root.get("type").is_some_and(|kind| kind != "object") {
            return Err("the parameters must have the type \"object\"".to_string());
        }
        let empty = Map::new();
        let properties = root.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let required: Vec<&str> =
            root.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let any = Json::Bool(true);
        let unlisted = required.iter().filter(|key| !properties.contains_key(**key)).map(|key| (*key, &any));
        let listed = properties.iter().map(|(key, schema)| (key.as_str(), schema));
        let mut parts = Vec::new();
        for (number, (key, schema)) in listed.chain(unlisted).enumerate() {
            if key.is_empty() || key.trim() != key || key.contains(['<', '>', '"', '\n']) {
                return Err(format!("the name {key:?} of an argument cannot be written between tags"));
            }
            let value = self.tag_value(root, schema, tool, key)?;
            let (is_text, value) = match value {
                TagValue::Text => (true, text.clone()),
                TagValue::One { is_text, texts } => {
                    let choices: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                    (is_text, format!("({}) {}", choices.join(" | "), self.written(&format!("{lead}{stop}"))))
                }
                TagValue::Json(schema) => (false, format!("%json {schema} {}", self.written(&format!("{lead}{stop}")))),
            };
            let name = format!("argument_{index}_{number}");
            let body = format!("{} {value} {after}", self.written(&begin(key, is_text)));
            self.rule(&name, &body);
            parts.push(name + if required.contains(&key) { "" } else { "?" });
        }
        Ok(parts.join(" "))
    }

    /// The rule for texts between tags, if there is one.
    fn texts_of_tags(&self) -> Option<String> {
        self.rules.contains("\ntag_text:").then(|| "tag_text".to_string())
    }

    /// How the value of an argument is written.
    fn tag_value(&self, root: &Json, schema: &Json, tool: &Tool, key: &str) -> std::result::Result<TagValue, String> {
        let refuse = |what: &str| Err(format!("the argument {key:?} {what}"));
        let schema = followed(root, schema)?;
        let types = Tools::new(&json!([{"name": tool.name, "parameters": root}])).types(tool.name, key);
        let Json::Object(entries) = schema else {
            return if schema == &Json::Bool(false) { refuse("must not be there") } else { Ok(TagValue::Text) };
        };
        let fixed = entries.get("enum").and_then(Json::as_array).cloned();
        if let Some(values) = fixed.or_else(|| entries.get("const").map(|value| vec![value.clone()])) {
            let untyped = self.grammar.untyped();
            let is_text = values.iter().all(Json::is_string);
            let mut texts = Vec::new();
            for value in &values {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                let read = match (types.is_empty(), untyped) {
                    (false, _) => typed(&text, &types),
                    (true, Untyped::String) => Json::from(text.as_str()),
                    (true, Untyped::Json) => read_json(&text).unwrap_or_else(|| Json::from(text.as_str())),
                };
                let is_safe = !text.contains('<') && text.trim() == text;
                if &read != value || !is_safe {
                    return refuse(&format!("has the value {value}, which cannot be written between tags"));
                }
                texts.push(text);
            }
            return if texts.is_empty() {
                refuse("has no possible value")
            } else {
                Ok(TagValue::One { is_text, texts })
            };
        }
        if types.is_empty() {
            return match entries.keys().find(|key| !ANNOTATIONS.contains(&key.as_str())) {
                Some(other) => refuse(&format!("has {other:?} but no \"type\"")),
                None => Ok(TagValue::Text),
            };
        }
        if types.iter().any(|name| name == "string") {
            return match constraint(schema) {
                Some(other) => refuse(&format!("is text with {other:?}, which cannot be held between tags")),
                None => Ok(TagValue::Text),
            };
        }
        let mut alone = entries.clone();
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(name) {
                alone.insert(name.to_string(), definitions.clone());
            }
        }
        Ok(TagValue::Json(guided_schema(Json::Object(alone))?))
    }
}

/// How the value of an argument is written between tags.
enum TagValue {
    /// As text.
    Text,
    /// As one of these.
    One { is_text: bool, texts: Vec<String> },
    /// As JSON of this schema.
    Json(Json),
}

/// The schema of the arguments of a tool as a JSON object.
fn json_arguments(tool: &Tool, is_held: bool) -> std::result::Result<Json, String> {
    let schema = match (is_held, tool.parameters) {
        (false, _) => json!({"type": "object"}),
        (true, None) => json!({"type": "object", "properties": {}, "additionalProperties": false}),
        (true, Some(parameters)) => {
            let mut parameters = parameters.clone();
            match parameters.get("type") {
                None => parameters["type"] = "object".into(),
                Some(Json::String(name)) if name == "object" => {}
                Some(_) => return Err("the parameters must have the type \"object\"".to_string()),
            }
            parameters
        }
    };
    guided_schema(schema)
}

/// The schema that a schema refers to.
fn followed<'s>(root: &'s Json, schema: &'s Json) -> std::result::Result<&'s Json, String> {
    let mut schema = schema;
    for _ in 0..REFERENCES {
        let Some(reference) = schema.get("$ref").and_then(Json::as_str) else { return Ok(schema) };
        let target = reference.strip_prefix('#').and_then(|path| root.pointer(path));
        schema = target.ok_or_else(|| format!("{reference:?} refers to nothing"))?;
    }
    Err(format!("more than {REFERENCES} references lead to each other"))
}

/// A key of a schema, or of its choices, that says more than a type.
fn constraint(schema: &Json) -> Option<&str> {
    let entries = schema.as_object()?;
    entries.iter().find_map(|(key, value)| match key.as_str() {
        "type" => None,
        "anyOf" | "oneOf" => value.as_array()?.iter().find_map(constraint),
        key if ANNOTATIONS.contains(&key) => None,
        key => Some(key),
    })
}

/// A terminal: text that does not spell any of these.
fn without(markers: &[&str]) -> String {
    let spelled: Vec<String> = markers.iter().map(|marker| regex(marker)).collect();
    match spelled.is_empty() {
        true => "/(?s:.+)/".to_string(),
        false => format!("/(?s:.+)/ & ~/(?s:.*)({})(?s:.*)/", spelled.join("|")),
    }
}

/// A text as a regular expression between slashes.
fn regex(text: &str) -> String {
    regex_syntax::escape(text).replace('/', r"\/").replace('\n', r"\n").replace('\r', r"\r")
}

fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

/// A text that may have a number in it.
fn with_index(text: &str) -> String {
    let parts: Vec<String> =
        text.split("%INDEX%").map(|part| if part.is_empty() { String::new() } else { quoted(part) }).collect();
    parts.join(" /[0-9]{1,2}/ ")
}
