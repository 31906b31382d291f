//! Which texts an answer may be: a structure that a request asks for, and the tokens that it leaves at each place.
//!
//! The crate `llguidance` knows the grammars. Here is what an engine needs around it. [`Structures`] compiles, once for as
//! long as requests come with the same text; each sequence has a [`Follower`], which takes in its tokens and says which may
//! be next.
//!
//! The text is whatever a client sent. So it is checked before the crate sees it, the crate runs on threads with stacks of
//! known size, its panics are errors, and whoever waits for it waits for a time that is known before.

mod compiler;
mod follower;
mod grammar_bounds;
mod late_masks;
mod matcher;
mod regex_bounds;
mod schema_bounds;
mod vocabulary;

pub use compiler::disarm_panic_hook;
pub(crate) use compiler::guided_schema;
pub use follower::{Follower, Opening};
pub use late_masks::LateMasks;
pub use matcher::{Compiled, Matcher, Standing, Wanted};

use super::tokenizer::Tokenizer;
use base::TokenId;
use base::contain::contain;
use base::error::{Error, Result};
use base::limits;
use base::log::{Level, log};
use compiler::Compiler;
use llguidance::ParserFactory;
use llguidance::toktrie::InferenceCapabilities;
use os::lock::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use vocabulary::Vocabulary;

/// Compiled structures that are kept for the next request with the same text.
const KEPT: usize = 32;

/// Bytes of a reason that are kept.
const REASON_BYTES: usize = 400;

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

    fn refusal(&self, reason: &str) -> Error {
        Error::Structure { what: self.name(), reason: in_one_line(reason) }
    }
}

/// The crate's words without the marks it ends them with, and without a backtrace.
fn in_one_line(reason: &str) -> String {
    let marks = ["\n<non-verbose/>", "\n<backtrace>", "\n<state>"];
    let end = marks.iter().filter_map(|mark| reason.find(mark)).min().unwrap_or(reason.len());
    let mut line = reason[..end].split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > REASON_BYTES {
        line.truncate(line.floor_char_boundary(REASON_BYTES));
        line.push_str(" ...");
    }
    line
}

/// The structures that the requests of one engine ask for.
pub struct Structures {
    tokenizer: Option<Arc<Tokenizer>>,
    /// Tokens of the model, which may be more or fewer than those of the tokenizer.
    vocab_size: usize,
    /// Made for the first request that asks for a structure: others need not pay for it.
    compiler: OnceLock<Result<Compiler>>,
    /// Started with it, where the system has threads to give.
    late: OnceLock<Arc<LateMasks>>,
    starting: Mutex<()>,
    /// The one that was asked for last comes first.
    kept: Mutex<VecDeque<(Structure, Arc<Compiled>)>>,
}

impl Structures {
    /// Structures over the tokens of a model of `vocab_size` tokens.
    pub fn new(tokenizer: Option<Arc<Tokenizer>>, vocab_size: usize) -> Structures {
        Structures {
            tokenizer,
            vocab_size,
            compiler: OnceLock::new(),
            late: OnceLock::new(),
            starting: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The beginning of `structure`, for answers that the tokens of `ending` end.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile).
    pub fn opening(&self, structure: &Structure, ending: &[TokenId]) -> Result<Arc<Opening>> {
        let compiled = self.compile(structure)?;
        Ok(Arc::new(Opening::new(compiled, self.start_late()?, ending)))
    }

    /// `structure`, ready to be followed. Returns after [`limits::STRUCTURE_COMPILE_MS`] at the latest.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`]; [`Error::NoThread`]; [`Error::Unsupported`] when the tokenizer does not tell what a token
    /// spells; [`Error::Structure`] when the text is none of its kind, or asks for more than the crate or the limits can do.
    pub fn compile(&self, structure: &Structure) -> Result<Arc<Compiled>> {
        if let Some(compiled) = self.kept(structure) {
            return Ok(compiled);
        }
        let bytes = structure.text().len();
        if bytes > limits::STRUCTURE_BYTES {
            let limit = limits::STRUCTURE_BYTES;
            return Err(structure.refusal(&format!("it has {bytes} bytes, but the limit is {limit}")));
        }
        let compiled = self.compiler()?.compile(structure)?;
        for warning in compiled.warnings() {
            log(Level::Warn, format_args!("structure: {}: {}", structure.name(), in_one_line(warning)));
        }
        self.keep(structure, &compiled);
        Ok(compiled)
    }

    /// The masks that come late; `None` before the first request with a structure.
    pub fn late_masks(&self) -> Option<&LateMasks> {
        self.late.get().map(|late| &**late)
    }

    fn kept(&self, structure: &Structure) -> Option<Arc<Compiled>> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|(known, _)| known == structure)?;
        let found = kept.remove(index)?;
        let compiled = found.1.clone();
        kept.push_front(found);
        Some(compiled)
    }

    /// Keeps a structure for the next request with the same text, and forgets those that were asked for least recently.
    fn keep(&self, structure: &Structure, compiled: &Arc<Compiled>) {
        let mut kept = self.kept.lock();
        kept.retain(|(known, _)| known != structure);
        kept.push_front((structure.clone(), compiled.clone()));
        let mut bytes = 0;
        let fits = |(known, compiled): &&(Structure, Arc<Compiled>)| {
            bytes += known.text().len() + compiled.bytes();
            bytes <= limits::STRUCTURES_KEPT_BYTES
        };
        let count = kept.iter().take(KEPT).take_while(fits).count();
        let forgotten = kept.split_off(count);
        drop(kept);
        // Tables of megabytes are freed without the lock.
        drop(forgotten);
    }

    fn start_late(&self) -> Result<Arc<LateMasks>> {
        // One thread starts it; a failure is not remembered.
        let _starting = self.starting.lock();
        if let Some(late) = self.late.get() {
            return Ok(late.clone());
        }
        let late = Arc::new(LateMasks::start()?);
        Ok(self.late.get_or_init(|| late).clone())
    }

    fn compiler(&self) -> Result<&Compiler> {
        let tokenizer = self.tokenizer.as_ref().ok_or(Error::NoTokenizer)?;
        let made = self.compiler.get_or_init(|| {
            let factory = contain(|| self.make_factory(tokenizer));
            factory
                .unwrap_or_else(|panic| Err(Error::Unsupported { what: format!("structure: {panic}") }))
                .map(Compiler::new)
        });
        made.as_ref().map_err(|error| Error::Unsupported { what: error.to_string() })
    }

    fn make_factory(&self, tokenizer: &Arc<Tokenizer>) -> Result<ParserFactory> {
        disarm_panic_hook();
        let vocabulary = Vocabulary::new(tokenizer.clone(), self.vocab_size)?;
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&(Arc::new(vocabulary) as _), InferenceCapabilities::default(), &slices)
            .map_err(|error| Error::Unsupported { what: format!("structure: {error}") })?;
        let parser_limits = factory.limits_mut();
        parser_limits.verbose_errors = false;
        parser_limits.max_lexer_states = limits::ANSWER_LEXER_STATES;
        factory.quiet();
        Ok(factory)
    }
}
