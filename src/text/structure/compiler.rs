//! Compiles structures on threads of the library, a few at a time, within a time that is known before.
//!
//! The crate cannot be stopped while it compiles. A caller whose time is over is answered and leaves the thread behind, which
//! comes to its end by itself: what the crate does without counting it is bounded before, by the checks of the text and by
//! a trial of the lexer with little fuel. Until then it counts among those that run. The first mask, which is found on the same
//! thread, has a limit of its own.

use super::matcher::Compiled;
use super::{Structure, grammar_bounds, regex_bounds, schema_bounds};
use base::contain::contain;
use base::error::Result;
use base::limits;
use llguidance::api::{GrammarInit, GrammarWithLexer, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::{CancellationHandle, JsonCompileOptions, ParserFactory, panic_utils};
use os::lock::{Condvar, Mutex};
use os::thread;
use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// What JSON may have between its tokens: a space, or a new line and its indentation. Without a bound a model that is at a
/// loss would fill its answer with spaces.
const JSON_SPACE: &str = r"(\x20|\x0A[\x20\x09]{0,20})";

/// Compiles structures.
pub(super) struct Compiler {
    factory: Arc<ParserFactory>,
    slots: Arc<CompileSlots>,
}

/// CompileSlots for threads that compile.
#[derive(Default)]
struct CompileSlots {
    taken: Mutex<usize>,
    changed: Condvar,
}

/// A slot that is taken until this is dropped.
struct CompileSlot(Arc<CompileSlots>);

/// What the thread that compiles sends to the caller that waits for it.
enum Message {
    /// The first mask is being computed, which this cancels.
    FirstMask(CancellationHandle),
    /// The end.
    Compiled(std::result::Result<Arc<Compiled>, String>),
}

impl Compiler {
    pub(super) fn new(factory: ParserFactory) -> Compiler {
        Compiler { factory: Arc::new(factory), slots: Arc::default() }
    }

    /// See [`Structures::compile`](super::Structures::compile).
    pub(super) fn compile(&self, structure: &Structure) -> Result<Arc<Compiled>> {
        let milliseconds = limits::STRUCTURE_COMPILE_MS;
        let deadline = Instant::now() + Duration::from_millis(milliseconds);
        let Some(slot) = CompileSlots::take(&self.slots, deadline) else {
            let running = limits::STRUCTURES_COMPILING;
            let reason =
                format!("{running} others have been compiling for {milliseconds} ms: add the request again later");
            return Err(structure.refusal(&reason));
        };
        let (factory, own) = (self.factory.clone(), structure.clone());
        // Without a buffer, so that a message that nobody takes is known not to be taken.
        let (sender, receiver) = sync_channel(0);
        thread::spawn("compile", thread::DEEP_STACK_BYTES, move || {
            let first_mask = |handle: CancellationHandle| {
                // The caller has left.
                if sender.send(Message::FirstMask(handle.clone())).is_err() {
                    handle.cancel();
                }
            };
            let compiled = contain(|| compile(&factory, &own, first_mask)).and_then(|compiled| compiled);
            drop(slot);
            // Nobody listens any more when it took too long.
            let _ = sender.send(Message::Compiled(compiled.map(Arc::new)));
        })?;
        let wait = |until: Instant| receiver.recv_timeout(until.saturating_duration_since(Instant::now()));
        let mut received = wait(deadline);
        if let Ok(Message::FirstMask(handle)) = &received {
            let handle = handle.clone();
            let milliseconds = limits::MASK_MS;
            received = wait(deadline.min(Instant::now() + Duration::from_millis(milliseconds)));
            if let Err(RecvTimeoutError::Timeout) = received {
                handle.cancel();
                let reason = format!("its first tokens take more than {milliseconds} ms to find, which is the limit");
                return Err(structure.refusal(&reason));
            }
        }
        match received {
            Ok(Message::Compiled(Ok(compiled))) => Ok(compiled),
            Ok(Message::Compiled(Err(reason))) => Err(structure.refusal(&reason)),
            Err(RecvTimeoutError::Timeout) => {
                Err(structure.refusal(&format!("it takes more than {milliseconds} ms to compile, which is the limit")))
            }
            Ok(Message::FirstMask(_)) | Err(RecvTimeoutError::Disconnected) => {
                Err(structure.refusal("the compiler stopped"))
            }
        }
    }
}

impl CompileSlots {
    /// Takes a slot; `None` when none is free before `deadline`.
    fn take(slots: &Arc<CompileSlots>, deadline: Instant) -> Option<CompileSlot> {
        let mut taken = slots.taken.lock();
        while *taken >= limits::STRUCTURES_COMPILING {
            let (guard, is_over) = slots.changed.wait_until(taken, deadline);
            taken = guard;
            if is_over {
                return None;
            }
        }
        *taken += 1;
        Some(CompileSlot(slots.clone()))
    }
}

impl Drop for CompileSlot {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.changed.notify_one();
    }
}

fn compile(
    factory: &ParserFactory,
    structure: &Structure,
    first_mask: impl FnOnce(CancellationHandle),
) -> std::result::Result<Compiled, String> {
    let grammar = match structure {
        Structure::JsonSchema(text) => GrammarWithLexer::from_json_schema(schema(text)?),
        Structure::Regex(text) => {
            regex_bounds::parts(text)?;
            GrammarWithLexer::from_regex(text)
        }
        Structure::Lark(text) => {
            grammar_bounds::check(text)?;
            GrammarWithLexer::from_lark(text.clone())
        }
    };

    let serialized = GrammarInit::Serialized(TopLevelGrammar::from_grammar(grammar));
    let limits = factory.limits().clone();
    let (rules, lexer) =
        serialized.to_internal(Some(factory.tok_env().clone()), limits).map_err(|error| error.to_string())?;
    try_lexer(factory, &lexer)?;
    let parser = factory
        .create_parser_from_init_default(GrammarInit::Internal(rules, lexer))
        .map_err(|error| error.to_string())?;
    Compiled::new(parser, factory.tok_env().tok_trie(), structure.text().len(), first_mask)
}

/// Does with little fuel what the crate then does with no bound: the lexer's first transitions.
fn try_lexer(factory: &ParserFactory, lexer: &LexerSpec) -> std::result::Result<(), String> {
    let mut lexer_limits = factory.limits().clone();
    let mut table = lexer.to_regex_vec(&mut lexer_limits).map_err(|error| error.to_string())?;
    table.set_fuel(limits::STRUCTURE_START_FUEL);
    let start = table.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        table.transition(start, byte);
        if table.has_error() {
            let limit = limits::STRUCTURE_START_FUEL;
            return Err(format!(
                "its lexer creates more than {limit} expressions before the first character, which is the limit"
            ));
        }
    }
    Ok(())
}

fn schema(text: &str) -> std::result::Result<Value, String> {
    guided_schema(serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?)
}

/// A schema with this library's settings, unless it brings some itself.
pub(crate) fn guided_schema(mut schema: Value) -> std::result::Result<Value, String> {
    schema_bounds::check(&schema)?;
    schema_bounds::clamp_integers(&mut schema);
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

/// Keeps the crate from putting a panic hook of its own before that of the process, as it would when it is first used: the
/// hook makes a backtrace of every panic that the crate catches, and its text takes a hundred megabytes.
pub fn disarm_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        let _ = panic_utils::catch_unwind(|| Ok(()));
        drop(std::panic::take_hook());
        std::panic::set_hook(hook);
    });
}
