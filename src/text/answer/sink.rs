//! Where what was read becomes events, and at the end a message.

use super::{Event, Malformed, Message, ToolCall};
use base::limits::{self, json_values};
use serde_json::{Map, Value as Json};

/// Which white space around a text is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    /// None.
    Nothing,
    /// All at the begin and at the end.
    Both,
    /// At the begin if a region lies before the text, and at the end if one lies after it. An answer that is text alone stays as it is.
    AtRegions,
}

/// The events of one text, content or reasoning, and what is held back of it.
#[derive(Debug)]
struct Text {
    trim: Trim,
    /// White space that is written if more text follows.
    held: String,
    /// What is written before the next text, which begins a region of its own.
    join: Option<String>,
    /// A text that is not white space was written.
    has_begun: bool,
    /// A region lies before the text.
    after_region: bool,
    /// A region lies after the text.
    before_region: bool,
    whole: String,
}

impl Text {
    fn new(trim: Trim) -> Text {
        Text {
            trim,
            held: String::new(),
            join: None,
            has_begun: false,
            after_region: false,
            before_region: false,
            whole: String::new(),
        }
    }

    /// What to hand out after `piece` was read.
    fn add(&mut self, piece: &str) -> String {
        if self.trim == Trim::Nothing {
            (self.has_begun, self.before_region) = (true, false);
            return self.join.take().unwrap_or_default() + piece;
        }
        let end = piece.trim_end().len();
        if end == 0 {
            self.hold(piece);
            return String::new();
        }
        let mut text = std::mem::take(&mut self.held);
        if let Some(join) = self.join.take() {
            self.hold(&piece[end..]);
            return join + piece[..end].trim_start();
        }
        let drops = !self.has_begun && (self.trim == Trim::Both || self.after_region);
        text.push_str(&piece[..end]);
        if drops {
            text.drain(..text.len() - text.trim_start().len());
        }
        (self.has_begun, self.before_region) = (true, false);
        self.hold(&piece[end..]);
        text
    }

    fn hold(&mut self, space: &str) {
        if self.join.is_none() {
            self.held.push_str(space);
        }
    }

    /// A region begins or ends here.
    fn region(&mut self) {
        self.after_region = true;
        self.before_region = true;
        if !self.has_begun && self.trim != Trim::Nothing {
            self.held.clear();
        }
    }

    /// What to hand out at the end.
    fn end(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        match self.trim == Trim::AtRegions && !self.before_region {
            true => held,
            false => String::new(),
        }
    }
}

/// A call whose begin was handed out.
#[derive(Debug)]
struct OpenCall {
    index: usize,
    name: String,
    arguments: String,
}

/// Collects events and the message.
#[derive(Debug)]
pub(super) struct Sink {
    events: Vec<Event>,
    content: Text,
    reasoning: Text,
    call: Option<OpenCall>,
    /// Calls that were begun.
    begun: usize,
    calls: Vec<ToolCall>,
    malformed: Vec<Malformed>,
    /// Of a `response_template`: the message as transformers returns it.
    pub fields: Map<String, Json>,
}

impl Sink {
    pub(super) fn new(content: Trim, reasoning: Trim) -> Sink {
        Sink {
            events: Vec::new(),
            content: Text::new(content),
            reasoning: Text::new(reasoning),
            call: None,
            begun: 0,
            calls: Vec::new(),
            malformed: Vec::new(),
            fields: Map::new(),
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Calls that were begun, those that broke included.
    pub(super) fn calls_begun(&self) -> usize {
        self.begun
    }

    pub(super) fn content(&mut self, piece: &str) {
        let text = self.content.add(piece);
        self.write_content(text);
    }

    fn write_content(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        self.content.whole.push_str(&text);
        match self.events.last_mut() {
            Some(Event::Content(last)) => last.push_str(&text),
            _ => self.events.push(Event::Content(text)),
        }
    }

    pub(super) fn reasoning(&mut self, piece: &str) {
        let text = self.reasoning.add(piece);
        if text.is_empty() {
            return;
        }
        self.reasoning.whole.push_str(&text);
        match self.events.last_mut() {
            Some(Event::Reasoning(last)) => last.push_str(&text),
            _ => self.events.push(Event::Reasoning(text)),
        }
    }

    /// Reasoning goes on in another region, after `join`.
    pub(super) fn join_reasoning(&mut self, join: &str) {
        if self.reasoning.has_begun {
            self.reasoning.held.clear();
            self.reasoning.join = Some(join.to_string());
        }
    }

    /// Whether nothing was read, neither text nor a region.
    pub(super) fn is_untouched(&self) -> bool {
        let has_text = self.content.has_begun || self.reasoning.has_begun;
        !has_text && !self.content.after_region && self.begun == 0
    }

    /// A region other than content begins or ends.
    pub(super) fn region(&mut self) {
        self.content.region();
    }

    pub(super) fn begin_call(&mut self, name: &str) {
        let index = self.begun;
        self.begun += 1;
        self.call = Some(OpenCall { index, name: name.to_string(), arguments: String::new() });
        self.events.push(Event::ToolCallBegin { index, name: name.to_string() });
    }

    /// Whether a call is open.
    pub(super) fn has_call(&self) -> bool {
        self.call.is_some()
    }

    /// A further piece of the arguments of the open call, as JSON text.
    pub(super) fn arguments(&mut self, piece: &str) {
        let Some(call) = self.call.as_mut().filter(|_| !piece.is_empty()) else { return };
        call.arguments.push_str(piece);
        match self.events.last_mut() {
            Some(Event::ToolCallArguments { index, text }) if *index == call.index => text.push_str(piece),
            _ => self.events.push(Event::ToolCallArguments { index: call.index, text: piece.to_string() }),
        }
    }

    /// Ends the open call. Its arguments have to be an object.
    pub(super) fn end_call(&mut self, id: Option<&str>) -> Result<(), String> {
        let Some(call) = &self.call else { return Err("no call".to_string()) };
        if json_values(&call.arguments) > limits::JSON_VALUES {
            return Err(format!("the arguments have more than {} values", limits::JSON_VALUES));
        }
        let arguments = match serde_json::from_str::<Json>(&call.arguments) {
            Ok(arguments @ Json::Object(_)) => arguments,
            Ok(_) => return Err("the arguments are no object".to_string()),
            Err(error) => return Err(format!("the arguments are no JSON: {error}")),
        };
        let Some(call) = self.call.take() else { return Err("no call".to_string()) };
        let id = id.map(str::to_string);
        self.events.push(Event::ToolCallEnd { index: call.index, id: id.clone() });
        self.calls.push(ToolCall { index: call.index, id, name: call.name, arguments });
        Ok(())
    }

    /// A whole call.
    pub(super) fn call(&mut self, name: &str, arguments: &Json, id: Option<&str>) -> Result<(), String> {
        self.begin_call(name);
        self.arguments(&arguments.to_string());
        self.end_call(id)
    }

    /// A region cannot be read. Its text, markers included, is content, and the call that it has begun is none.
    pub(super) fn malformed(&mut self, text: &str, reason: String) {
        if let Some(call) = self.call.take() {
            self.events.push(Event::ToolCallBroken { index: call.index, reason: reason.clone() });
        }
        self.content(text);
        self.malformed.push(Malformed { text: text.to_string(), reason });
    }

    /// The message of the events that were handed out.
    pub(super) fn message(&self) -> Message {
        Message {
            content: self.content.whole.clone(),
            reasoning: self.reasoning.whole.clone(),
            tool_calls: self.calls.clone(),
            malformed: self.malformed.clone(),
            fields: self.fields.clone(),
        }
    }

    /// The message. Hands out what was held back.
    pub(super) fn end(mut self) -> (Vec<Event>, Message) {
        let held = self.content.end();
        self.write_content(held);
        let message = Message {
            content: self.content.whole,
            reasoning: self.reasoning.whole,
            tool_calls: self.calls,
            malformed: self.malformed,
            fields: self.fields,
        };
        (self.events, message)
    }
}
