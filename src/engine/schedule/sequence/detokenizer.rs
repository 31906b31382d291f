//! Which text does a completion have so far, and does a stop string end it?
//!
//! Invariant: text that is written is final. Bytes that may become a character wait in the text stream, and text that may
//! become a stop string waits in the search for stop strings.

use crate::api::sampling_params::StopToken;
use crate::results::stop_strings::{Complete, StopSet, StopStrings};
use base::TokenId;
use std::sync::Arc;
use text::tokenizer::{SpecialTokens, TextStream, Tokenizer};

/// Turns the tokens of one completion into text.
pub struct Detokenizer {
    stream: TextStream,
    /// Whether special tokens are spelled out.
    special: SpecialTokens,
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

impl Default for Detokenizer {
    /// That of a completion that has not begun.
    fn default() -> Detokenizer {
        Detokenizer { stream: TextStream::default(), special: SpecialTokens::Skip, stop_strings: None }
    }
}

impl Detokenizer {
    /// The text of a completion, which continues the prompt.
    pub fn new(stop_strings: Option<Arc<StopSet>>, special: SpecialTokens) -> Detokenizer {
        Detokenizer { stream: TextStream::continuing(), special, stop_strings: stop_strings.map(StopStrings::new) }
    }

    /// Appends the text of `token` to `out`; returns whether a stop string ends the text.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: TokenId, rule: StopRule, out: &mut String) -> bool {
        let Some(stops) = &mut self.stop_strings else {
            self.stream.push_as(tokenizer, token, self.special, out);
            return false;
        };
        self.stream.push_as(tokenizer, token, self.special, stops.text());
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
