//! An answer to a message: content, reasoning and tool calls, while the model still writes.
//!
//! [`AnswerParser`] takes pieces of text and returns [`Event`]s, and at the end a [`Message`]. How a model writes is its [`Format`]: the
//! `response_template` of its folder, or one of the built-in formats, found by the markers of its chat template.
//!
//! What holds for every format and every text:
//!
//! * The pieces in which a text arrives change nothing but where events are cut.
//! * No text is lost but markers, and white space beside them. A call that cannot be read is content, markers included, and
//!   [`Message::malformed`] says why. A `response_template` without a field for all other text leaves that text out, as in transformers.
//! * The events of one kind, put together, are what the message has.
//! * Arguments are handed out as they are written: byte by byte, or value by value where the type of a value depends on its end. A
//!   `response_template` makes a call of a whole region, so its arguments come at once.
//! * Work is linear in the length of the answer, and limited; so are the number of calls and the levels of their arguments.

mod built_in;
mod calls;
mod fields;
mod parser;
mod pattern;
mod region;
mod response_template;
mod sink;
mod tool_grammar;
mod tools;
mod typed;
mod value;
mod writing;

pub use parser::AnswerParser;
pub use tool_grammar::Marks;
pub use tools::{ParallelCalls, Tool, ToolChoice, ToolList, ToolSchemas, ToolUse};

use base::error::{Error, Result};
use formats::source::{DEFAULT_TEMPLATE, Source};
use region::{Calls, Grammar, Inside, Untyped, Voice};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use writing::Writing;

/// How a model writes its answers. Cheap to clone; may be used from any thread.
#[derive(Clone, Debug)]
pub struct Format {
    grammar: Arc<Grammar>,
    /// How it writes tool calls.
    writing: Option<&'static Writing>,
}

/// What a prompt has begun of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing, or nothing that matters.
    Nothing,
    /// Reasoning, which goes on.
    Reasoning,
    /// Content, or reasoning that has ended.
    Content,
    /// A tool call.
    Call,
}

impl Format {
    /// The format of a model: that of its `response_template`, or else the built-in one that its chat template has the markers of.
    ///
    /// # Errors
    ///
    /// Those of [`Source::response_template`] and [`Source::chat_templates`], and [`Error::ModelFile`] for a `response_template` that
    /// [`Format::of_response_template`] refuses.
    pub fn open(source: &Source) -> Result<Format> {
        if let Some((path, template)) = source.response_template()? {
            let refused = |reason| Error::ModelFile { path, reason: format!("response_template: {reason}") };
            let grammar = response_template::grammar(&template).map_err(refused)?;
            // The parser is that of the template; what the model was taught to write is known by its chat template.
            let writing = source.chat_templates().ok().flatten().and_then(|found| {
                let (_, text) = found.templates.get("tool_use").or_else(|| found.templates.get(DEFAULT_TEMPLATE))?;
                writing::of(built_in::name_for(text), text)
            });
            return Ok(Format { grammar: Arc::new(grammar), writing });
        }
        let templates = source.chat_templates()?.map(|found| found.templates).unwrap_or_default();
        let template = templates.get("tool_use").or_else(|| templates.get(DEFAULT_TEMPLATE));
        Ok(Format::of_chat_template(template.map_or("", |(_, text)| text)))
    }

    /// The format of a `response_template`, as tokenizer_config.json has it.
    ///
    /// # Errors
    ///
    /// [`Error::Json`] for a template that is malformed, goes beyond a limit, or has an expression that needs back-tracking.
    ///
    /// One thing differs from transformers: `$` is the end of the answer alone, and not the place before a last line end too.
    pub fn of_response_template(template: &Json) -> Result<Format> {
        match response_template::grammar(template) {
            Ok(grammar) => Ok(Format { grammar: Arc::new(grammar), writing: None }),
            Err(reason) => Err(Error::Json { what: "response_template", reason }),
        }
    }

    /// The built-in format whose markers a chat template has. Without any, an answer is content alone.
    pub fn of_chat_template(source: &str) -> Format {
        let name = built_in::name_for(source);
        let format = Format::built_in(name).expect("a name of the table");
        Format { writing: writing::of(name, source), ..format }
    }

    /// The built-in format of this name, one of [`Format::names`].
    pub fn built_in(name: &str) -> Option<Format> {
        let grammar = built_in::grammar(name)?.expect("expressions of the table, which tests compile");
        Some(Format { grammar: Arc::new(grammar), writing: writing::of(name, "") })
    }

    /// The names of the built-in formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        built_in::names()
    }

    /// What a prompt has begun of an answer: `prompt` is the text after which the model writes.
    pub fn begun(&self, prompt: &str) -> Begun {
        AnswerParser::new(self, &Json::Null, prompt).begun()
    }

    /// How the model ends its reasoning.
    pub fn reasoning_end(&self) -> ReasoningEnd {
        let reasons = self.grammar.regions.iter().any(|region| match &region.inside {
            Inside::Text(voice) => *voice == Voice::Reasoning,
            Inside::Field(field) => field.voice == Some(Voice::Reasoning) || field.late_voice == Some(Voice::Reasoning),
            Inside::Calls(_) => false,
        });
        let end = self.writing.and_then(|writing| writing.reasoning).map(|(_, end)| end);
        match (reasons, end, self.name()) {
            (false, ..) => ReasoningEnd::NoReasoning,
            (true, Some(end), _) => ReasoningEnd::Text(end),
            (true, None, "think") => ReasoningEnd::Text("</think>"),
            (true, None, "gemma4") => ReasoningEnd::Text("<channel|>"),
            (true, None, _) => ReasoningEnd::Unknown,
        }
    }

    /// What a value between tags is if its schema does not say.
    fn untyped(&self) -> Untyped {
        let tags = self.grammar.regions.iter().find_map(|region| match &region.inside {
            Inside::Calls(Calls::Tags(tags)) => Some(tags.untyped),
            _ => None,
        });
        tags.unwrap_or(Untyped::String)
    }

    /// The name of this format: `response_template`, or that of the built-in one.
    pub fn name(&self) -> &str {
        &self.grammar.name
    }
}

/// How a model ends its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningEnd {
    /// It does not reason.
    NoReasoning,
    /// By this marker.
    Text(&'static str),
    /// Only how it is read is known.
    Unknown,
}

/// What became known of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A further piece of the content.
    Content(String),
    /// A further piece of the reasoning.
    Reasoning(String),
    /// A tool call begins.
    ToolCallBegin {
        /// Counts the calls of the answer from 0.
        index: usize,
        /// The name of the tool.
        name: String,
    },
    /// A further piece of the arguments of a call, as JSON text.
    ToolCallArguments {
        /// Which call.
        index: usize,
        /// The piece. All of them together are the JSON text of an object.
        text: String,
    },
    /// A tool call is complete.
    ToolCallEnd {
        /// Which call.
        index: usize,
        /// The id that the model gave to it.
        id: Option<String>,
    },
    /// A call that was begun cannot be read and is none. Its text follows as content.
    ToolCallBroken {
        /// Which call.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// What is said to the user.
    pub content: String,
    /// What was thought.
    pub reasoning: String,
    /// Calls, in their order. Those that broke are left out.
    pub tool_calls: Vec<ToolCall>,
    /// What could not be read. Its text is part of `content`.
    pub malformed: Vec<Malformed>,
    /// With a `response_template`: the message as transformers returns it. There, content that follows other content replaces it;
    /// `content` above has both.
    pub fields: Map<String, Json>,
}

impl Message {
    /// The message as a chat template takes it: `role`, `content`, and where there are some `reasoning_content` and `tool_calls`.
    /// Arguments are objects.
    pub fn to_chat_message(&self) -> Json {
        let call = |call: &ToolCall| {
            let mut json = Map::new();
            json.insert("type".to_string(), "function".into());
            if let Some(id) = &call.id {
                json.insert("id".to_string(), id.as_str().into());
            }
            json.insert("function".to_string(), json!({"name": call.name, "arguments": call.arguments}));
            Json::Object(json)
        };
        let mut message = Map::new();
        message.insert("role".to_string(), "assistant".into());
        message.insert("content".to_string(), self.content.as_str().into());
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_string(), self.reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            message.insert("tool_calls".to_string(), self.tool_calls.iter().map(call).collect());
        }
        Json::Object(message)
    }
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The index of its events.
    pub index: usize,
    /// The id that the model gave to it.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// An object. Where the format has text without types, each value has the type that the tool's schema says.
    pub arguments: Json,
}

/// A part of an answer that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The text, markers included. Empty if something is missing.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

#[cfg(test)]
mod tests;
