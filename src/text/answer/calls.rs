//! Calls within a region, byte by byte: a list of JSON objects, or calls as Python writes them.

use super::sink::Sink;
use super::value::{Notation, Progress, ValueReader};
use base::limits;
use serde_json::Value as Json;

/// What a byte did to a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on.
    More,
    /// A call ended with this byte. The body goes on.
    CallEnded,
    /// It ended at this place: all bytes before are read.
    EndedAt(usize),
    /// It cannot be read.
    Bad(String),
}

/// The body of a region with calls.
#[derive(Debug)]
pub(super) enum Body {
    /// Objects with a name and arguments.
    Objects(Objects),
    /// The arguments of a call whose name is known.
    Arguments { reader: ValueReader, name: String, id: Option<String>, out: Vec<u8> },
    /// `f(a=1, b='x')`, alone or in a list.
    Python(Python),
}

impl Body {
    /// Arguments in a notation, for a call whose name stood in the marker.
    pub(super) fn arguments(notation: Notation, name: String, id: Option<String>) -> Body {
        Body::Arguments { reader: ValueReader::new(notation), name, id, out: Vec::new() }
    }

    pub(super) fn step(&mut self, at: usize, byte: u8, sink: &mut Sink) -> Step {
        match self {
            Body::Objects(objects) => objects.step(at, byte, sink),
            Body::Python(python) => python.step(at, byte, sink),
            Body::Arguments { reader, name, id, out } => {
                if !sink.has_call() {
                    if byte.is_ascii_whitespace() {
                        return Step::More;
                    }
                    if byte != b'{' {
                        return Step::Bad("the arguments are no object".to_string());
                    }
                    if let Err(reason) = may_begin(sink) {
                        return Step::Bad(reason);
                    }
                    sink.begin_call(name);
                }
                match reader.step(byte, out) {
                    Progress::More => Step::More,
                    Progress::Bad(reason) => Step::Bad(reason.to_string()),
                    Progress::Ended | Progress::EndedBefore => {
                        hand_out(out, sink);
                        match sink.end_call(id.as_deref()) {
                            Ok(()) => Step::EndedAt(at + 1),
                            Err(reason) => Step::Bad(reason),
                        }
                    }
                }
            }
        }
    }

    /// Hands out what is known of the arguments. To be called between characters only.
    pub(super) fn hand_out(&mut self, sink: &mut Sink) {
        match self {
            Body::Arguments { out, .. } => hand_out(out, sink),
            Body::Objects(objects) => objects.hand_out(sink),
            Body::Python(python) => hand_out(&mut python.out, sink),
        }
    }

    /// The text ends. Whether the body is complete, or between two calls.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Body::Arguments { .. } => false,
            Body::Objects(objects) => objects.calls > 0 && objects.state == ObjectState::Between,
            Body::Python(python) => python.calls > 0 && matches!(python.state, PythonState::Between { .. }),
        }
    }
}

fn may_begin(sink: &Sink) -> Result<(), String> {
    match sink.calls_begun() < limits::ANSWER_CALLS {
        true => Ok(()),
        false => Err(format!("more than {} calls", limits::ANSWER_CALLS)),
    }
}

fn hand_out(out: &mut Vec<u8>, sink: &mut Sink) {
    if let Ok(text) = std::str::from_utf8(out) {
        sink.arguments(text);
        out.clear();
    }
}

/// Keys under which objects have what makes a call.
const NAME_KEYS: [&str; 3] = ["name", "tool_name", "function"];
const ARGUMENT_KEYS: [&str; 2] = ["arguments", "parameters"];
const ID_KEYS: [&str; 2] = ["id", "tool_call_id"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectState {
    /// Before the first object, or between two.
    Between,
    /// A key, or with `may_end` the end of the object.
    Key {
        may_end: bool,
    },
    InKey,
    Colon,
    InMember(Member),
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Name,
    Arguments,
    Id,
    Other,
}

/// Objects such as `{"name": "f", "arguments": {}}`, alone, one after another, or in a list.
#[derive(Debug)]
pub(super) struct Objects {
    state: ObjectState,
    is_list: bool,
    /// Where the last object ended.
    end: usize,
    /// Calls that have ended.
    calls: usize,
    reader: ValueReader,
    /// JSON text of the member that is being read.
    out: Vec<u8>,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that were read before the name was, or that are a string.
    arguments: Option<Vec<u8>>,
    /// Names that count, if only known ones do.
    known: Option<Vec<String>>,
}

impl Objects {
    /// With `known`, an object of another name is none.
    pub(super) fn new(known: Option<Vec<String>>) -> Objects {
        Objects {
            state: ObjectState::Between,
            is_list: false,
            end: 0,
            calls: 0,
            reader: ValueReader::new(Notation::Json),
            out: Vec::new(),
            name: None,
            id: None,
            arguments: None,
            known,
        }
    }

    fn step(&mut self, at: usize, byte: u8, sink: &mut Sink) -> Step {
        match self.state {
            ObjectState::InKey => {
                match self.reader.step(byte, &mut self.out) {
                    Progress::Ended => self.state = ObjectState::Colon,
                    Progress::More => {}
                    _ => return Step::Bad("a key that is no string".to_string()),
                }
                Step::More
            }
            ObjectState::InMember(member) => match self.reader.step(byte, &mut self.out) {
                Progress::More => {
                    if member == Member::Arguments {
                        return self.begin(sink);
                    }
                    Step::More
                }
                Progress::Bad(reason) => Step::Bad(reason.to_string()),
                Progress::Ended => self.end_member(member, sink),
                Progress::EndedBefore => match self.end_member(member, sink) {
                    Step::More => self.step(at, byte, sink),
                    other => other,
                },
            },
            ObjectState::Between => self.between(at, byte),
            _ if byte.is_ascii_whitespace() => Step::More,
            ObjectState::Key { may_end } => match byte {
                b'"' => {
                    self.read(ObjectState::InKey);
                    self.step(at, byte, sink)
                }
                b'}' if may_end => self.end_object(at, sink),
                _ => Step::Bad("an object without a key in quotes".to_string()),
            },
            ObjectState::Colon => {
                if byte != b':' {
                    return Step::Bad("a key without a colon".to_string());
                }
                let key: String = serde_json::from_slice(&self.out).unwrap_or_default();
                let member = match key.as_str() {
                    key if NAME_KEYS.contains(&key) && self.name.is_none() => Member::Name,
                    key if ARGUMENT_KEYS.contains(&key) && self.arguments.is_none() && !sink.has_call() => {
                        Member::Arguments
                    }
                    key if ID_KEYS.contains(&key) => Member::Id,
                    _ => Member::Other,
                };
                self.read(ObjectState::InMember(member));
                Step::More
            }
            ObjectState::After => match byte {
                b',' => {
                    self.state = ObjectState::Key { may_end: false };
                    Step::More
                }
                b'}' => self.end_object(at, sink),
                _ => Step::Bad("neither a comma nor an end after a value".to_string()),
            },
        }
    }

    fn between(&mut self, at: usize, byte: u8) -> Step {
        match byte {
            _ if byte.is_ascii_whitespace() => {}
            b'{' => {
                (self.name, self.id, self.arguments) = (None, None, None);
                self.state = ObjectState::Key { may_end: true };
            }
            b'[' if !self.is_list && self.calls == 0 => self.is_list = true,
            b',' | b';' if self.calls > 0 => {}
            b']' if self.is_list && self.calls > 0 => return Step::EndedAt(at + 1),
            _ if !self.is_list && self.calls > 0 => return Step::EndedAt(self.end),
            _ => return Step::Bad("no object of a call".to_string()),
        }
        Step::More
    }

    fn read(&mut self, state: ObjectState) {
        self.out.clear();
        self.reader = ValueReader::new(Notation::Json);
        self.state = state;
    }

    /// Begins the call, once its name is known and its arguments are an object.
    fn begin(&mut self, sink: &mut Sink) -> Step {
        if !sink.has_call()
            && let (Some(name), Some(b'{')) = (&self.name, self.out.first())
        {
            if let Err(reason) = may_begin(sink) {
                return Step::Bad(reason);
            }
            sink.begin_call(name);
        }
        Step::More
    }

    fn hand_out(&mut self, sink: &mut Sink) {
        if sink.has_call() && self.state == ObjectState::InMember(Member::Arguments) {
            hand_out(&mut self.out, sink);
        }
    }

    fn end_member(&mut self, member: Member, sink: &mut Sink) -> Step {
        self.state = ObjectState::After;
        match member {
            Member::Name => match serde_json::from_slice::<String>(&self.out) {
                Ok(name) if !name.is_empty() => {
                    if self.known.as_ref().is_some_and(|known| !known.contains(&name)) {
                        return Step::Bad("an object with the name of no tool".to_string());
                    }
                    self.name = Some(name);
                }
                _ => return Step::Bad("the name is no string".to_string()),
            },
            Member::Id => self.id = serde_json::from_slice::<String>(&self.out).ok(),
            Member::Arguments if sink.has_call() => hand_out(&mut self.out, sink),
            Member::Arguments => self.arguments = Some(std::mem::take(&mut self.out)),
            Member::Other => {}
        }
        Step::More
    }

    fn end_object(&mut self, at: usize, sink: &mut Sink) -> Step {
        let ended = match self.begin_late(sink) {
            Ok(()) => sink.end_call(self.id.as_deref()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            return Step::Bad(reason);
        }
        self.calls += 1;
        (self.end, self.state) = (at + 1, ObjectState::Between);
        Step::CallEnded
    }

    /// Begins the call if its arguments came before its name, as a string, or as null.
    fn begin_late(&mut self, sink: &mut Sink) -> Result<(), String> {
        if sink.has_call() {
            return Ok(());
        }
        let Some(name) = &self.name else { return Err("an object without a name".to_string()) };
        let Some(arguments) = &self.arguments else { return Err("an object without arguments".to_string()) };
        let arguments = match serde_json::from_slice::<Json>(arguments) {
            Ok(Json::Null) => "{}".to_string(),
            Ok(Json::String(text)) => match serde_json::from_str::<Json>(&text) {
                Ok(arguments @ Json::Object(_)) => arguments.to_string(),
                _ => return Err("the arguments are a string that is no object".to_string()),
            },
            Ok(Json::Object(_)) => String::from_utf8_lossy(arguments).into_owned(),
            _ => return Err("the arguments are no object".to_string()),
        };
        may_begin(sink)?;
        sink.begin_call(name);
        sink.arguments(&arguments);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PythonState {
    /// Before the first call, or between two. A separator is needed before a further one.
    Between {
        separated: bool,
    },
    InName,
    /// A key, or the end of the call.
    Key {
        may_end: bool,
    },
    InKey,
    AfterKey,
    InValue,
    After,
}

/// `[f(a=1), g()]`, or calls without the brackets.
#[derive(Debug)]
pub(super) struct Python {
    state: PythonState,
    is_list: bool,
    end: usize,
    calls: usize,
    word: Vec<u8>,
    reader: ValueReader,
    out: Vec<u8>,
    /// The call has an argument.
    has_arguments: bool,
    known: Option<Vec<String>>,
}

impl Python {
    pub(super) fn new(known: Option<Vec<String>>) -> Python {
        Python {
            state: PythonState::Between { separated: true },
            is_list: false,
            end: 0,
            calls: 0,
            word: Vec::new(),
            reader: ValueReader::new(Notation::Python),
            out: Vec::new(),
            has_arguments: false,
            known,
        }
    }

    fn step(&mut self, at: usize, byte: u8, sink: &mut Sink) -> Step {
        let is_name = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | 128..);
        match self.state {
            PythonState::InValue => match self.reader.step(byte, &mut self.out) {
                Progress::More => Step::More,
                Progress::Ended => self.go(PythonState::After),
                Progress::EndedBefore => {
                    self.state = PythonState::After;
                    self.step(at, byte, sink)
                }
                Progress::Bad(reason) => Step::Bad(reason.to_string()),
            },
            PythonState::InName => match byte {
                _ if is_name || matches!(byte, b'.' | b'-') => {
                    self.word.push(byte);
                    Step::More
                }
                b'(' => {
                    let name = String::from_utf8_lossy(&self.word).into_owned();
                    if self.known.as_ref().is_some_and(|known| !known.contains(&name)) {
                        return Step::Bad("a call of no tool".to_string());
                    }
                    if let Err(reason) = may_begin(sink) {
                        return Step::Bad(reason);
                    }
                    sink.begin_call(&name);
                    self.out.push(b'{');
                    self.has_arguments = false;
                    self.go(PythonState::Key { may_end: true })
                }
                _ => Step::Bad("a name without arguments".to_string()),
            },
            PythonState::InKey if is_name => {
                self.word.push(byte);
                Step::More
            }
            PythonState::InKey => {
                self.state = PythonState::AfterKey;
                self.step(at, byte, sink)
            }
            _ if byte.is_ascii_whitespace() => Step::More,
            PythonState::Between { separated } => match byte {
                b'[' if !self.is_list && self.calls == 0 => {
                    self.is_list = true;
                    Step::More
                }
                b',' | b';' if self.calls > 0 => self.go(PythonState::Between { separated: true }),
                b']' if self.is_list && self.calls > 0 => Step::EndedAt(at + 1),
                _ if is_name && separated && !byte.is_ascii_digit() && (self.is_list || self.calls == 0) => {
                    self.word.clear();
                    self.word.push(byte);
                    self.go(PythonState::InName)
                }
                _ if !self.is_list && self.calls > 0 => Step::EndedAt(self.end),
                _ => Step::Bad("no call".to_string()),
            },
            PythonState::Key { may_end } => match byte {
                b')' if may_end => self.end_call(at, sink),
                _ if is_name && !byte.is_ascii_digit() => {
                    self.word.clear();
                    self.word.push(byte);
                    self.go(PythonState::InKey)
                }
                _ => Step::Bad("an argument without a name".to_string()),
            },
            PythonState::AfterKey => {
                if byte != b'=' {
                    return Step::Bad("an argument without a name".to_string());
                }
                if std::mem::replace(&mut self.has_arguments, true) {
                    self.out.push(b',');
                }
                let key = String::from_utf8_lossy(&self.word).into_owned();
                self.out.extend(Json::from(key).to_string().into_bytes());
                self.out.push(b':');
                self.reader = ValueReader::new(Notation::Python);
                self.go(PythonState::InValue)
            }
            PythonState::After => match byte {
                b',' => self.go(PythonState::Key { may_end: true }),
                b')' => self.end_call(at, sink),
                _ => Step::Bad("neither a comma nor an end after an argument".to_string()),
            },
        }
    }

    fn go(&mut self, state: PythonState) -> Step {
        self.state = state;
        Step::More
    }

    fn end_call(&mut self, at: usize, sink: &mut Sink) -> Step {
        self.out.push(b'}');
        hand_out(&mut self.out, sink);
        if let Err(reason) = sink.end_call(None) {
            return Step::Bad(reason);
        }
        self.calls += 1;
        (self.end, self.state) = (at + 1, PythonState::Between { separated: false });
        Step::CallEnded
    }
}
