//! Which text does a completion have so far, and does a stop string end it?
//!
//! Invariant: text that is written is final. Bytes that may become a character wait in the text stream, and text that may
//! become a stop string waits in the search for stop strings.

use crate::sampling_params::StopToken;
use crate::stop_strings::{Complete, StopSet, StopStrings};
use base::TokenId;
use std::sync::Arc;
use text::tokenizer::{TextStream, Tokenizer};

/// Turns the tokens of one completion into text.
#[derive(Default)]
pub struct Detokenizer {
    stream: TextStream,
    /// `None` without stop strings.
    stop_strings: Option<StopStrings>,
}

/// What complete stop strings do to a text.
#[derive(Clone, Copy, Debug)]
pub struct StopRule {
    /// Whether they end it.
    pub complete: Complete,
    /// Whether they belong to it.
    pub kept: StopToken,
}

impl Detokenizer {
    /// The text of a completion, which continues the prompt.
    pub fn new(stop_strings: Option<Arc<StopSet>>) -> Detokenizer {
        Detokenizer { stream: TextStream::continuing(), stop_strings: stop_strings.map(StopStrings::new) }
    }

    /// Appends the text of `token` to `out`; returns whether a stop string ends the text.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: TokenId, rule: StopRule, out: &mut String) -> bool {
        let Some(stops) = &mut self.stop_strings else {
            self.stream.push(tokenizer, token, out);
            return false;
        };
        self.stream.push(tokenizer, token, stops.text());
        stops.search(rule.complete, rule.kept, out)
    }

    /// Appends to `out` all text that waits; returns whether a stop string ends the text.
    pub fn finish(&mut self, tokenizer: &Tokenizer, rule: StopRule, out: &mut String) -> bool {
        let Some(stops) = &mut self.stop_strings else {
            self.stream.finish(tokenizer, out);
            return false;
        };
        self.stream.finish(tokenizer, stops.text());
        let ends = stops.search(rule.complete, rule.kept, out);
        stops.flush(out);
        ends
    }
}
