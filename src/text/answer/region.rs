//! What an answer is made of: regions, each with the markers around it and what is inside.
//!
//! A `response_template` and the formats of [`built_in`](super::built_in) are both lists of regions, and one
//! [parser](super::parser) reads them.

use super::fields::Field;
use super::pattern::Pattern;
use super::sink::Trim;
use super::value::Notation;
use serde_json::{Map, Value as Json};

/// A part of an answer.
#[derive(Debug)]
pub(super) struct Region {
    pub name: String,
    /// What it begins with. Without one it is the region of all text outside the others. Its groups `name` and `id` are those of a
    /// call. A group `body` is the begin of what is inside.
    pub open: Option<Pattern>,
    /// What it ends with; otherwise what is inside says so, or the answer ends.
    pub close: Option<Pattern>,
    pub inside: Inside,
}

/// What a region has inside.
#[derive(Debug)]
pub(super) enum Inside {
    /// Text.
    Text(Voice),
    /// Calls.
    Calls(Calls),
    /// A value that is made when the region ends, of a `response_template`.
    Field(Box<Field>),
}

/// To whom a text is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Content,
    Reasoning,
}

/// How calls are written.
#[derive(Debug)]
pub(super) enum Calls {
    /// Objects with name and arguments. `only_known`: any other object is an answer and no call.
    Objects { only_known: bool },
    /// The arguments of the call that the marker names.
    Arguments(Notation),
    /// The arguments of the call that the marker names, each between markers of its own.
    Tags(Box<Tags>),
    /// Calls as Python writes them.
    Python { only_known: bool },
}

/// Arguments between markers. Their values are text, which has the type that the tool's schema says.
#[derive(Debug)]
pub(super) struct Tags {
    /// Before a value. Group `key`, and group `string` where the model says itself whether the value is a string.
    pub parameter: Pattern,
    /// After a value.
    pub value_end: Pattern,
    /// After the last value.
    pub end: Pattern,
    pub untyped: Untyped,
}

/// What a value is if the schema does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untyped {
    /// A string.
    String,
    /// JSON if it is JSON, and a string otherwise.
    Json,
}

/// How the answers of a model are written.
#[derive(Debug)]
pub(super) struct Grammar {
    pub name: String,
    pub regions: Vec<Region>,
    /// The region without a begin.
    pub implicit: Option<usize>,
    pub opened: Opened,
    /// Of a `response_template`: what the message has in any case, and fields that it has to have.
    pub defaults: Map<String, Json>,
    pub content_trim: Trim,
    pub reasoning_trim: Trim,
    /// Bytes with which a marker may begin outside regions.
    pub begins: Box<[bool; 256]>,
}

/// Where in the prompt the answer has begun already.
#[derive(Debug)]
pub(super) enum Opened {
    /// After the last match; at the begin of the prompt if there is none.
    After(Pattern),
    /// After the last of the words with which the templates of known models begin an answer. What lies before the last
    /// of these ends of reasoning has been thought already.
    AfterKnown { reasoning_ends: Vec<&'static str> },
}

impl Grammar {
    /// Finds the region of all other text, and where markers may begin.
    pub(super) fn new(name: &str, regions: Vec<Region>, opened: Opened) -> Grammar {
        let implicit = regions.iter().position(|region| region.open.is_none());
        let mut begins = Box::new([false; 256]);
        let watched = regions.iter().enumerate().filter_map(|(index, region)| match &region.open {
            Some(open) => Some(open),
            None => region.close.as_ref().filter(|_| Some(index) == implicit),
        });
        for pattern in watched {
            for byte in 0..=255u8 {
                begins[usize::from(byte)] |= pattern.may_begin(byte);
            }
        }
        Grammar {
            name: name.to_string(),
            regions,
            implicit,
            opened,
            defaults: Map::new(),
            content_trim: Trim::AtRegions,
            reasoning_trim: Trim::Both,
            begins,
        }
    }
}
