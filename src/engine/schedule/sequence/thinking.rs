//! How long does a completion reason, and when is its reasoning ended?
//!
//! The parser of answers says after each token whether reasoning is open, so that a marker inside a tool call is none. Once the limit is
//! used up and reasoning is open, the tokens of the end marker are forced, one per pass. What is forced depends on the tokens of the completion
//! alone, and is known before the pass that samples it: a sequence whose awaited tokens may use up the limit waits for them.

use base::TokenId;
use std::sync::Arc;
use text::answer::{AnswerParser, Begun, Format};
use text::tokenizer::{SpecialTokens, TextStream, Tokenizer};

/// The limit of a request: its completions share it.
pub struct ThinkingLimit {
    /// How the model writes.
    pub format: Format,
    /// What it writes after.
    pub prompt: String,
    /// The end marker of reasoning.
    pub end: Vec<TokenId>,
    /// Tokens of reasoning.
    pub tokens: u32,
}

/// The reasoning of one completion.
pub struct Thinking {
    limit: Arc<ThinkingLimit>,
    parser: Box<AnswerParser>,
    stream: TextStream,
    /// The text of the newest token.
    piece: String,
    is_open: bool,
    tokens: u32,
    /// Tokens of the end marker that were forced.
    forced: usize,
    /// The whole end marker was forced, and is none to the parser.
    is_endless: bool,
}

impl Thinking {
    /// The reasoning of a completion that has not begun; the prompt may have begun it.
    pub fn new(limit: Arc<ThinkingLimit>) -> Thinking {
        let parser = Box::new(AnswerParser::new(&limit.format, &Default::default(), &limit.prompt));
        Thinking {
            is_open: parser.begun() == Begun::Reasoning,
            parser,
            stream: TextStream::continuing(),
            piece: String::new(),
            tokens: 0,
            forced: 0,
            is_endless: false,
            limit,
        }
    }

    /// Tokens between the markers.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Takes in the next token.
    pub fn accept(&mut self, tokenizer: &Tokenizer, token: TokenId) {
        let (was_open, was_forced) = (self.is_open, self.next() == Some(token));
        self.piece.clear();
        self.stream.push_as(tokenizer, token, SpecialTokens::Keep, &mut self.piece);
        self.parser.feed(&self.piece);
        self.is_open = self.parser.begun() == Begun::Reasoning;
        if !self.is_open {
            self.forced = 0;
        } else if was_forced {
            self.forced += 1;
            self.is_endless = self.forced == self.limit.end.len();
        } else if was_open {
            self.tokens += 1;
        }
    }

    /// The token that is next in any case, if there is one.
    pub fn next(&self) -> Option<TokenId> {
        let is_over = self.is_open && !self.is_endless && self.tokens >= self.limit.tokens;
        is_over.then(|| self.limit.end[self.forced])
    }

    /// Whether the token after `awaited` awaited ones may be forced.
    pub fn may_be_over(&self, awaited: usize) -> bool {
        !self.is_endless && self.tokens as usize + awaited >= self.limit.tokens as usize
    }
}
