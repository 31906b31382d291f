//! A value in the notation of a model becomes JSON text, byte by byte.
//!
//! Three notations: JSON; Gemma's, with `<|"|>` around strings and bare keys; and Python's literals. The JSON that is written
//! is compact. Memory is the stack of open lists and objects and one bare word, however long the value is.

use base::limits;
use serde_json::Value as Json;

/// Bytes of a number or of another word without quotes.
const WORD_BYTES: usize = 512;

/// What is around a string of Gemma's notation.
const GEMMA_QUOTE: &[u8] = b"<|\"|>";

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    /// JSON. Control characters in strings are accepted, because models write them, and escaped.
    Json,
    /// `{key:<|"|>text<|"|>,n:1,list:[true]}`.
    Gemma,
    /// Literals of Python.
    Python,
}

/// What a byte did to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The value goes on.
    More,
    /// The value ended with this byte.
    Ended,
    /// The value ended before this byte, which is not part of it.
    EndedBefore,
    /// The byte is not allowed here.
    Bad(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    List,
    Tuple,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value, or with `may_end` the end of the list.
    Value {
        may_end: bool,
    },
    /// A key, or with `may_end` the end of the object.
    Key {
        may_end: bool,
    },
    Colon,
    /// A comma or the end of a list or object.
    After,
    /// A string between this byte and its like.
    Text {
        quote: u8,
        is_key: bool,
    },
    /// After a backslash in a string.
    Escape {
        quote: u8,
        is_key: bool,
    },
    /// Digits of an escape: how many are left, the number so far.
    Digits {
        quote: u8,
        is_key: bool,
        left: u8,
        number: u32,
        base: u32,
    },
    /// The quotation mark of Gemma, of which `matched` bytes were read.
    GemmaOpen {
        is_key: bool,
        matched: usize,
    },
    GemmaText {
        is_key: bool,
        matched: usize,
    },
    /// A word without quotes.
    Word {
        is_key: bool,
    },
    Ended,
}

/// Reads one value.
#[derive(Clone, Debug)]
pub(super) struct ValueReader {
    notation: Notation,
    state: State,
    open: Vec<Container>,
    word: Vec<u8>,
    /// A comma was read and is not written yet.
    comma: bool,
}

impl ValueReader {
    pub(super) fn new(notation: Notation) -> ValueReader {
        ValueReader {
            notation,
            state: State::Value { may_end: false },
            open: Vec::new(),
            word: Vec::new(),
            comma: false,
        }
    }

    /// Reads a byte, and appends to `out` what is known of the JSON text.
    pub(super) fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> Progress {
        match self.state {
            State::Text { quote, is_key } => self.text(byte, quote, is_key, out),
            State::Escape { quote, is_key } => self.escape(byte, quote, is_key, out),
            State::Digits { quote, is_key, left, number, base } => {
                self.digit(byte, (quote, is_key), (left, number, base), out)
            }
            State::GemmaOpen { is_key, matched } => match byte == GEMMA_QUOTE[matched] {
                true if matched + 1 == GEMMA_QUOTE.len() => {
                    self.lead(out);
                    out.push(b'"');
                    self.go(State::GemmaText { is_key, matched: 0 })
                }
                true => self.go(State::GemmaOpen { is_key, matched: matched + 1 }),
                false => Progress::Bad("a < that begins no string"),
            },
            State::GemmaText { is_key, matched } => self.gemma_text(byte, is_key, matched, out),
            State::Word { is_key } => self.word(byte, is_key, out),
            State::Ended => Progress::EndedBefore,
            _ if byte.is_ascii_whitespace() => Progress::More,
            State::Value { may_end } => self.value(byte, may_end, out),
            State::Key { may_end } => self.key(byte, may_end, out),
            State::Colon => match byte {
                b':' => {
                    out.push(b':');
                    self.go(State::Value { may_end: false })
                }
                _ => Progress::Bad("a key without a colon"),
            },
            State::After => self.after(byte, out),
        }
    }

    /// The text ends. Whether the value is complete.
    fn end(&mut self, out: &mut Vec<u8>) -> bool {
        if self.open.is_empty() && matches!(self.state, State::Word { is_key: false }) {
            return self.end_word(out).is_ok();
        }
        self.state == State::Ended
    }

    fn go(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::More
    }

    /// A value or a container has ended with this byte.
    fn ended(&mut self) -> Progress {
        match self.open.is_empty() {
            true => {
                self.state = State::Ended;
                Progress::Ended
            }
            false => self.go(State::After),
        }
    }

    fn value(&mut self, byte: u8, may_end: bool, out: &mut Vec<u8>) -> Progress {
        let container = match byte {
            b'[' => Some(Container::List),
            b'{' => Some(Container::Object),
            b'(' if self.notation == Notation::Python => Some(Container::Tuple),
            _ => None,
        };
        if let Some(container) = container {
            if self.open.len() >= limits::ANSWER_LEVELS {
                return Progress::Bad("more levels of lists and objects than the limit allows");
            }
            self.open.push(container);
            self.lead(out);
            return match container {
                Container::Object => {
                    out.push(b'{');
                    self.go(State::Key { may_end: true })
                }
                Container::List | Container::Tuple => {
                    out.push(b'[');
                    self.go(State::Value { may_end: true })
                }
            };
        }
        match byte {
            b']' | b')' if may_end => self.close(byte, out),
            b'"' => self.begin_text(byte, false, out),
            b'\'' if self.notation == Notation::Python => self.begin_text(byte, false, out),
            b'<' if self.notation == Notation::Gemma => self.go(State::GemmaOpen { is_key: false, matched: 1 }),
            b',' | b':' | b']' | b'}' | b')' => Progress::Bad("a value is missing"),
            _ => {
                self.word.clear();
                self.word.push(byte);
                self.go(State::Word { is_key: false })
            }
        }
    }

    fn key(&mut self, byte: u8, may_end: bool, out: &mut Vec<u8>) -> Progress {
        match (byte, self.notation) {
            (b'}', _) if may_end => self.close(byte, out),
            (b'"', _) | (b'\'', Notation::Python) => self.begin_text(byte, true, out),
            (b'<', Notation::Gemma) => self.go(State::GemmaOpen { is_key: true, matched: 1 }),
            (b',' | b':' | b'}' | b'{' | b'[' | b']', _) | (_, Notation::Json) => {
                Progress::Bad("an object without a key in quotes")
            }
            _ => {
                self.word.clear();
                self.word.push(byte);
                self.go(State::Word { is_key: true })
            }
        }
    }

    fn after(&mut self, byte: u8, out: &mut Vec<u8>) -> Progress {
        let may_end = self.notation != Notation::Json;
        match (byte, self.open.last()) {
            (b',', container) => {
                self.comma = true;
                match container {
                    Some(Container::Object) => self.go(State::Key { may_end }),
                    _ => self.go(State::Value { may_end }),
                }
            }
            (b']' | b'}' | b')', _) => self.close(byte, out),
            _ => Progress::Bad("neither a comma nor an end after a value"),
        }
    }

    /// Ends the innermost list or object.
    fn close(&mut self, byte: u8, out: &mut Vec<u8>) -> Progress {
        self.comma = false;
        let (wanted, written) = match self.open.pop() {
            Some(Container::List) => (b']', b']'),
            Some(Container::Tuple) => (b')', b']'),
            Some(Container::Object) => (b'}', b'}'),
            None => return Progress::Bad("an end without a beginning"),
        };
        if byte != wanted {
            return Progress::Bad("a list or an object that ends as another kind");
        }
        out.push(written);
        self.ended()
    }

    /// Writes the comma before a value or a key. It was read, but an end may have followed it.
    fn lead(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.comma) {
            out.push(b',');
        }
    }

    fn begin_text(&mut self, quote: u8, is_key: bool, out: &mut Vec<u8>) -> Progress {
        self.lead(out);
        out.push(b'"');
        self.go(State::Text { quote, is_key })
    }

    fn end_text(&mut self, is_key: bool, out: &mut Vec<u8>) -> Progress {
        out.push(b'"');
        match is_key {
            true => self.go(State::Colon),
            false => self.ended(),
        }
    }

    fn text(&mut self, byte: u8, quote: u8, is_key: bool, out: &mut Vec<u8>) -> Progress {
        match byte {
            _ if byte == quote => return self.end_text(is_key, out),
            b'\\' => self.state = State::Escape { quote, is_key },
            b'\n' if self.notation == Notation::Python => return Progress::Bad("a string of Python with a line end"),
            _ => escaped(byte, out),
        }
        Progress::More
    }

    fn gemma_text(&mut self, byte: u8, is_key: bool, matched: usize, out: &mut Vec<u8>) -> Progress {
        if byte == GEMMA_QUOTE[matched] {
            if matched + 1 == GEMMA_QUOTE.len() {
                return self.end_text(is_key, out);
            }
            return self.go(State::GemmaText { is_key, matched: matched + 1 });
        }
        GEMMA_QUOTE[..matched].iter().for_each(|&byte| escaped(byte, out));
        if byte == GEMMA_QUOTE[0] {
            return self.go(State::GemmaText { is_key, matched: 1 });
        }
        escaped(byte, out);
        self.go(State::GemmaText { is_key, matched: 0 })
    }

    fn escape(&mut self, byte: u8, quote: u8, is_key: bool, out: &mut Vec<u8>) -> Progress {
        let text = State::Text { quote, is_key };
        let digits = |left, base| State::Digits { quote, is_key, left, number: 0, base };
        if self.notation != Notation::Python {
            return match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                    out.extend([b'\\', byte]);
                    self.go(text)
                }
                b'u' => {
                    out.extend(*b"\\u");
                    self.go(digits(4, 16))
                }
                _ => Progress::Bad("an escape that JSON does not have"),
            };
        }
        match byte {
            b'n' => escaped(b'\n', out),
            b't' => escaped(b'\t', out),
            b'r' => escaped(b'\r', out),
            b'b' => escaped(8, out),
            b'f' => escaped(12, out),
            b'a' => escaped(7, out),
            b'v' => escaped(11, out),
            b'\\' | b'\'' | b'"' => escaped(byte, out),
            b'\n' => {}
            b'x' => return self.go(digits(2, 16)),
            b'u' => return self.go(digits(4, 16)),
            b'U' => return self.go(digits(8, 16)),
            b'0'..=b'7' | b'N' => return Progress::Bad("an octal or a named escape of Python"),
            // Python keeps the backslash of an escape that it does not know.
            _ => {
                escaped(b'\\', out);
                escaped(byte, out);
            }
        }
        self.go(text)
    }

    fn digit(
        &mut self,
        byte: u8,
        (quote, is_key): (u8, bool),
        (left, number, base): (u8, u32, u32),
        out: &mut Vec<u8>,
    ) -> Progress {
        let Some(digit) = char::from(byte).to_digit(base) else {
            return Progress::Bad("an escape with too few digits");
        };
        let number = number.wrapping_mul(base).wrapping_add(digit);
        if self.notation != Notation::Python {
            out.push(byte);
        }
        if left > 1 {
            return self.go(State::Digits { quote, is_key, left: left - 1, number, base });
        }
        if self.notation == Notation::Python {
            let Some(char) = char::from_u32(number) else { return Progress::Bad("an escape that is no character") };
            char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escaped(byte, out));
        }
        self.go(State::Text { quote, is_key })
    }

    fn word(&mut self, byte: u8, is_key: bool, out: &mut Vec<u8>) -> Progress {
        let ends = match byte {
            b',' | b']' | b'}' => true,
            b'[' | b'{' => return Progress::Bad("a word that goes on with a bracket"),
            // A string of Gemma may be without quotes, and may then have any other character.
            _ if self.notation == Notation::Gemma && !is_key => false,
            b':' | b')' | b'\n' | b' ' | b'\t' | b'\r' => true,
            b'"' | b'\'' | b'(' => return Progress::Bad("a word that goes on with a quotation mark or a bracket"),
            _ => false,
        };
        if !ends {
            if self.word.len() >= WORD_BYTES {
                return Progress::Bad("a number or a word that is too long");
            }
            self.word.push(byte);
            return Progress::More;
        }
        if is_key {
            let key = String::from_utf8_lossy(&self.word).trim().to_string();
            let key = match self.notation {
                Notation::Python => python_word(&key).map(|value| match value {
                    Json::String(text) => text,
                    value => value.to_string(),
                }),
                _ => Some(key),
            };
            let Some(key) = key else { return Progress::Bad("a key that is no literal") };
            self.lead(out);
            out.extend(Json::from(key).to_string().into_bytes());
            self.state = State::Colon;
            return self.step(byte, out);
        }
        if let Err(reason) = self.end_word(out) {
            return Progress::Bad(reason);
        }
        match self.open.is_empty() {
            true => {
                self.state = State::Ended;
                Progress::EndedBefore
            }
            false => {
                self.state = State::After;
                self.step(byte, out)
            }
        }
    }

    /// Writes the word as a JSON value.
    fn end_word(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let word = String::from_utf8_lossy(&std::mem::take(&mut self.word)).trim().to_string();
        let word = word.as_str();
        let value = match self.notation {
            Notation::Json => serde_json::from_str::<Json>(word).ok().or_else(|| huge_number(word)),
            Notation::Python => python_word(word),
            Notation::Gemma => Some(gemma_word(word)),
        };
        let Some(value) = value else { return Err("a word that is neither a number, nor true, false or null") };
        self.lead(out);
        match (self.notation, value.is_number()) {
            (Notation::Json, true) if huge_number(word).is_none() => out.extend(word.bytes()),
            _ => out.extend(value.to_string().into_bytes()),
        }
        Ok(())
    }
}

/// A byte of a string, as JSON writes it.
pub(super) fn escaped(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend([b'\\', byte]),
        b'\n' => out.extend(*b"\\n"),
        b'\r' => out.extend(*b"\\r"),
        b'\t' => out.extend(*b"\\t"),
        0..=31 => out.extend(format!("\\u{byte:04x}").into_bytes()),
        _ => out.push(byte),
    }
}

/// `True`, `False`, `None` or a number of Python, and the words of JSON for the former.
fn python_word(word: &str) -> Option<Json> {
    match word {
        "True" | "true" => Some(Json::Bool(true)),
        "False" | "false" => Some(Json::Bool(false)),
        "None" | "null" => Some(Json::Null),
        _ => python_number(word),
    }
}

/// A number as Python's `int` and `float` read it, without those that JSON does not have.
pub(super) fn python_number(word: &str) -> Option<Json> {
    let plain = word.strip_prefix('+').unwrap_or(word);
    let digits_only = plain.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    if digits_only && !plain.is_empty() {
        if let Ok(number) = plain.parse::<i64>() {
            return Some(number.into());
        }
        if let Ok(number) = plain.parse::<u64>() {
            return Some(number.into());
        }
    }
    let is_number = plain.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let number = plain.parse::<f64>().ok().filter(|_| is_number)?;
    serde_json::Number::from_f64(number.clamp(f64::MIN, f64::MAX)).map(Json::Number)
}

/// A number of JSON that is too large, as the largest one: grammars have no bound for exponents.
fn huge_number(word: &str) -> Option<Json> {
    let is_number = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(|c: char| c.is_ascii_digit());
    let number = word.parse::<f64>().ok().filter(|number| is_number && number.is_infinite())?;
    serde_json::Number::from_f64(number.clamp(f64::MIN, f64::MAX)).map(Json::Number)
}

/// JSON, in which numbers may be too large.
pub(super) fn json(text: &str) -> Option<Json> {
    let parsed = serde_json::from_str(text).ok();
    parsed.or_else(|| {
        let (mut reader, mut out) = (ValueReader::new(Notation::Json), Vec::new());
        let text = text.trim();
        let is_whole = text.bytes().all(|byte| matches!(reader.step(byte, &mut out), Progress::More | Progress::Ended));
        if !is_whole || !reader.end(&mut out) {
            return None;
        }
        serde_json::from_slice(&out).ok()
    })
}

/// A value of Gemma without quotes: what is no number is a string.
fn gemma_word(word: &str) -> Json {
    match word {
        "true" => Json::Bool(true),
        "false" => Json::Bool(false),
        "null" | "none" | "None" | "nil" => Json::Null,
        _ => python_number(word).unwrap_or_else(|| Json::from(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(notation: Notation, text: &str) -> Result<String, &'static str> {
        let (mut reader, mut out) = (ValueReader::new(notation), Vec::new());
        for byte in text.bytes() {
            match reader.step(byte, &mut out) {
                Progress::More | Progress::Ended => {}
                Progress::EndedBefore => return Err("more text after the value"),
                Progress::Bad(reason) => return Err(reason),
            }
        }
        assert!(reader.end(&mut out), "{text} has an end");
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn values_become_compact_json() {
        let cases = [
            (
                Notation::Json,
                r#" { "a" : [ 1 , -2.50e3 , true , null ] , "b" : { } , "c" : [ ] }"#,
                r#"{"a":[1,-2.50e3,true,null],"b":{},"c":[]}"#,
            ),
            (Notation::Json, r#"{"q\"}{": "é\u00e9\n</tool_call>"}"#, r#"{"q\"}{":"é\u00e9\n</tool_call>"}"#),
            (Notation::Json, "\"a\nb\"", "\"a\\nb\""),
            (
                Notation::Gemma,
                r#"{a:<|"|>x "y" <| <|"|>,n:1,l:[true,null,{k:<|"|><|"|>}],t:12:30 h}"#,
                r#"{"a":"x \"y\" <| ","n":1,"l":[true,null,{"k":""}],"t":"12:30 h"}"#,
            ),
            (Notation::Gemma, r#"{a:<|"|><<|"|>}"#, r#"{"a":"<"}"#),
            (
                Notation::Python,
                r#"{'a': ("x", 'it\'s\x41\u00e9\d'), 1: [None, True, -1.5, +2,], }"#,
                r#"{"a":["x","it'sAé\\d"],"1":[null,true,-1.5,2]}"#,
            ),
            (Notation::Python, "()", "[]"),
        ];
        for (notation, text, wanted) in cases {
            assert_eq!(read(notation, text).as_deref(), Ok(wanted), "{text}");
            serde_json::from_str::<Json>(wanted).expect("JSON");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let deep = "[".repeat(limits::ANSWER_LEVELS + 1);
        let long = "1".repeat(WORD_BYTES + 1);
        let cases = [
            (Notation::Json, "{a:1}"),
            (Notation::Json, "[1,]"),
            (Notation::Json, "{\"a\" 1}"),
            (Notation::Json, "[True]"),
            (Notation::Json, "[01]"),
            (Notation::Json, "[1 2]"),
            (Notation::Json, "{]"),
            (Notation::Json, r#""\x""#),
            (Notation::Json, r#""\u00g0""#),
            (Notation::Json, &deep),
            (Notation::Json, &long),
            (Notation::Json, "[] x"),
            (Notation::Python, "[f(1)]"),
            (Notation::Python, "[nan]"),
            (Notation::Python, "'a\nb'"),
            (Notation::Gemma, "{a:<|x"),
        ];
        for (notation, text) in cases {
            assert!(read(notation, text).is_err(), "{text}");
        }
    }
}
