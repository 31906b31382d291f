//! Which texts an answer may be: a structure that a request asks for, and the tokens that it leaves at each place.
//!
//! The crate `llguidance` knows the grammars. Here is what an engine needs around it: [`Structures`] compiles on the
//! caller's thread, and once for as long as requests come with the same text; each sequence has a [`Matcher`] of its own,
//! which takes in its tokens and says which may be next.

mod matcher;
mod vocabulary;

pub use matcher::{Matcher, Standing};

use super::tokenizer::Tokenizer;
use crate::backend::lock::Mutex;
use crate::error::{Error, Result};
use crate::log::{Level, log};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{JsonCompileOptions, ParserFactory};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use vocabulary::Vocabulary;

/// Compiled structures that are kept for the next request with the same text.
const KEPT: usize = 32;

/// What JSON may have between its tokens: a space, or a new line and its indentation. Without a bound a model that is at a
/// loss would fill its answer with spaces.
const JSON_SPACE: &str = r"(\x20|\x0A[\x20\x09]{0,20})";

/// States that the lexer of one request may reach, at one or two kilobytes each.
const LEXER_STATES_MAX: usize = 50_000;

/// What the text of an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// JSON that this JSON schema accepts; `{}` accepts any.
    JsonSchema(String),
    /// A text that this regular expression, of Rust's syntax, matches from begin to end.
    Regex(String),
    /// A text of this context-free grammar, in the dialect of Lark that `llguidance` reads.
    Lark(String),
}

impl Structure {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Structure::JsonSchema(text) | Structure::Regex(text) | Structure::Lark(text) => text,
        }
    }

    /// What its text is called in an error.
    fn name(&self) -> &'static str {
        match self {
            Structure::JsonSchema(_) => "JSON schema",
            Structure::Regex(_) => "regular expression",
            Structure::Lark(_) => "Lark grammar",
        }
    }

    /// The grammar in the crate's terms.
    fn grammar(&self) -> Result<TopLevelGrammar> {
        Ok(TopLevelGrammar::from_grammar(match self {
            Structure::JsonSchema(text) => GrammarWithLexer::from_json_schema(schema(text)?),
            Structure::Regex(text) => GrammarWithLexer::from_regex(text),
            Structure::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
        }))
    }

    fn refusal(&self, reason: &str) -> Error {
        Error::Structure { what: self.name(), reason: in_one_line(reason) }
    }
}

/// A schema with this library's settings, unless it brings some itself.
fn schema(text: &str) -> Result<Value> {
    let mut schema: Value = serde_json::from_str(text)
        .map_err(|error| Error::Structure { what: "JSON schema", reason: format!("not JSON: {error}") })?;
    if schema == Value::Bool(true) {
        schema = Value::Object(serde_json::Map::new());
    }
    if schema.is_object() && schema.get("x-guidance").is_none() {
        let settings =
            JsonCompileOptions { whitespace_pattern: Some(JSON_SPACE.to_owned()), ..JsonCompileOptions::default() };
        settings.apply_to(&mut schema);
    }
    Ok(schema)
}

/// The crate's words without the marks it ends them with.
fn in_one_line(reason: &str) -> String {
    let reason = reason.split("\n<non-verbose/>").next().unwrap_or_default();
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The structures that the requests of one engine ask for.
pub struct Structures {
    tokenizer: Option<Arc<Tokenizer>>,
    /// Tokens of the model, which may be more or fewer than those of the tokenizer.
    vocab_size: usize,
    /// Made for the first request that asks for a structure: others need not pay for it.
    factory: OnceLock<Result<ParserFactory>>,
    /// The one that was asked for last comes first.
    compiled: Mutex<VecDeque<(Structure, Matcher)>>,
}

impl Structures {
    /// Structures over the tokens of a model of `vocab_size` tokens.
    pub fn new(tokenizer: Option<Arc<Tokenizer>>, vocab_size: usize) -> Structures {
        Structures { tokenizer, vocab_size, factory: OnceLock::new(), compiled: Mutex::default() }
    }

    /// What follows `structure` from its beginning.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`]; [`Error::Unsupported`] when the tokenizer does not tell what a token spells;
    /// [`Error::Structure`] when the text is none of its kind, or asks for more than the crate or its limits can do.
    pub fn matcher(&self, structure: &Structure) -> Result<Matcher> {
        if let Some(matcher) = self.kept(structure) {
            return Ok(matcher);
        }
        let factory = self.factory()?;
        let grammar = structure.grammar()?;
        let matcher = Matcher::new(factory, grammar).map_err(|reason| structure.refusal(&reason))?;
        for warning in matcher.warnings() {
            log(Level::Warn, format_args!("structure: {}: {}", structure.name(), in_one_line(warning)));
        }
        let mut compiled = self.compiled.lock();
        compiled.truncate(KEPT - 1);
        compiled.push_front((structure.clone(), matcher.clone()));
        Ok(matcher)
    }

    fn kept(&self, structure: &Structure) -> Option<Matcher> {
        let mut compiled = self.compiled.lock();
        let index = compiled.iter().position(|(kept, _)| kept == structure)?;
        let found = compiled.remove(index)?;
        let matcher = found.1.clone();
        compiled.push_front(found);
        Some(matcher)
    }

    fn factory(&self) -> Result<&ParserFactory> {
        let tokenizer = self.tokenizer.as_ref().ok_or(Error::NoTokenizer)?;
        let made = self.factory.get_or_init(|| self.make_factory(tokenizer));
        made.as_ref().map_err(|error| Error::Unsupported { what: error.to_string() })
    }

    fn make_factory(&self, tokenizer: &Arc<Tokenizer>) -> Result<ParserFactory> {
        let vocabulary = Vocabulary::new(tokenizer.clone(), self.vocab_size)?;
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&(Arc::new(vocabulary) as _), InferenceCapabilities::default(), &slices)
            .map_err(|error| Error::Unsupported { what: format!("structure: {error}") })?;
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = LEXER_STATES_MAX;
        factory.quiet();
        Ok(factory)
    }
}
