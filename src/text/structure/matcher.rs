//! A compiled structure, and how far one answer has come in it.

use base::TokenId;
use base::contain::contain;
use base::limits;
use llguidance::toktrie::TokTrie;
use llguidance::{CancellationHandle, TokenParser};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// How the crate begins to say that no token may be next.
const NO_TOKEN_LEFT: &str = "NoExtensionBias";

/// What the crate's estimate of a lexer's bytes is multiplied by: the growth of a process at copies of lexers was measured
/// between two and four times the estimate.
const BYTES_FACTOR: usize = 4;

/// Bytes that compiled rules take per byte of text, by the growth of a process.
const BYTES_PER_TEXT_BYTE: usize = 32;

/// Expressions that one mask creates, or items of the parser that it looks at, from which on the next one is no work for the
/// thread that steps: one or two milliseconds.
const HEAVY_WORK: usize = 20_000;

/// Light masks in a row after which those of a structure are found by the thread that steps.
const LIGHT_IN_A_ROW: u32 = 8;

/// A structure ready to be followed: what its answers share.
pub struct Compiled {
    beginning: Matcher,
    warnings: Vec<String>,
    bytes: usize,
    /// Masks that a thread of its own has to find before the thread that steps may try again.
    heavy: AtomicU32,
    /// Whether a mask took longer than [`limits::MASK_MS`].
    is_endless: AtomicBool,
}

/// How far one answer has come in its structure.
pub struct Matcher {
    inner: llguidance::Matcher,
    /// Bit `t % 32` of word `t / 32`: token `t` may be next. `[vocab / 32, rounded up]`
    mask: Vec<u32>,
    /// Whether the answer may end here.
    may_end: bool,
    /// Tokens taken in.
    tokens: usize,
    /// Expressions created.
    fuel: u64,
}

/// Whether an answer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A token is to follow; [`Matcher::mask`] says which ones may.
    Open,
    /// Nothing may follow.
    Complete,
}

/// What an answer needs to know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Which tokens may be next.
    Mask,
    /// Only whether it is complete: it has no place for another token.
    Standing,
}

impl Compiled {
    /// A structure from what the crate made of `text_bytes` of it, or why nothing can follow it. `first_mask` is given what cancels
    /// the search for the first mask.
    pub(super) fn new(
        parser: TokenParser,
        trie: &TokTrie,
        text_bytes: usize,
        first_mask: impl FnOnce(CancellationHandle),
    ) -> Result<Compiled, String> {
        let lexer = parser.parser.lexer_stats();
        let words = trie.vocab_size().div_ceil(32);
        let bytes = lexer.num_bytes * BYTES_FACTOR + text_bytes * BYTES_PER_TEXT_BYTE + words * 4;
        if bytes > limits::STRUCTURE_TABLE_BYTES {
            let limit = limits::STRUCTURE_TABLE_BYTES;
            return Err(format!("its tables take about {bytes} bytes, but the limit is {limit}"));
        }
        let inner = llguidance::Matcher::new(Ok(parser)).into_cancellable();
        let mut beginning = Matcher { inner, mask: vec![0; words], may_end: false, tokens: 0, fuel: 0 };
        if let Some(handle) = beginning.cancellation() {
            first_mask(handle);
        }
        // The first mask fills tables that every copy then has.
        match beginning.find_mask() {
            Ok(()) if beginning.has_choice() => {}
            Err(reason) if !reason.starts_with(NO_TOKEN_LEFT) => return Err(reason),
            _ => return Err("no token can begin a text that fits it".to_owned()),
        }
        let warnings = beginning.inner.grammar_warnings();
        beginning.fuel = 0;
        // Nothing is known yet of the masks to come, and what the crate does between two looks at a cancellation may take tens
        // of milliseconds.
        Ok(Compiled {
            beginning,
            warnings,
            bytes,
            heavy: AtomicU32::new(LIGHT_IN_A_ROW),
            is_endless: AtomicBool::new(false),
        })
    }

    /// What of the grammar is not held to the letter, in the crate's words.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes that its tables take, by estimate. A matcher begins with as many.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tokens that an answer may begin with: a bit each. Those that end it are not among them.
    pub fn first_mask(&self) -> &[u32] {
        &self.beginning.mask
    }

    /// Whether an answer may end before it has begun.
    pub fn may_be_empty(&self) -> bool {
        self.beginning.may_end
    }

    /// Deep copy of the beginning of an answer: shares no state with other copies, so that their failures do not affect it.
    ///
    /// # Errors
    ///
    /// The crate's words, when it fails.
    pub fn matcher(&self) -> Result<Matcher, String> {
        let beginning = &self.beginning;
        contain(|| Matcher {
            inner: beginning.inner.deep_clone(),
            mask: beginning.mask.clone(),
            may_end: beginning.may_end,
            tokens: 0,
            fuel: 0,
        })
    }

    /// Whether its masks take too long for the thread that steps.
    pub(super) fn is_heavy(&self) -> bool {
        self.heavy.load(Relaxed) > 0
    }

    /// Notes that a mask took too long.
    pub(super) fn note_heavy(&self) {
        self.heavy.store(LIGHT_IN_A_ROW, Relaxed);
    }

    /// Notes that a mask was stopped because it took longer than [`mask_ms`](Self::mask_ms).
    pub(super) fn note_endless(&self) {
        self.is_endless.store(true, Relaxed);
    }

    /// Milliseconds that a mask may take. A structure of which one took too long has little left: its other answers, which may
    /// be a thousand, would hold up the masks of everyone else.
    pub(super) fn mask_ms(&self) -> u64 {
        if self.is_endless.load(Relaxed) { limits::MASK_MS / 50 } else { limits::MASK_MS }
    }

    /// Notes what the last mask of `matcher` took, found by a thread of its own.
    pub(super) fn note(&self, matcher: &Matcher) {
        match matcher.is_heavy() {
            true => self.note_heavy(),
            false => self.heavy.store(self.heavy.load(Relaxed).saturating_sub(1), Relaxed),
        }
    }
}

impl Matcher {
    /// Takes in the next tokens of the answer, none of which ends it, and finds out what is wanted.
    ///
    /// # Errors
    ///
    /// The reason, when a token may not be next, none may although the answer is not complete, or the grammar needs more
    /// work than its limits allow.
    pub fn take_in(&mut self, tokens: &[TokenId], wanted: Wanted) -> Result<(), String> {
        for &token in tokens {
            contain(|| self.inner.consume_token(token))?.map_err(|error| error.to_string())?;
            self.tokens += 1;
        }
        match wanted {
            Wanted::Mask => self.find_mask(),
            Wanted::Standing => Ok(()),
        }
    }

    /// Tokens taken in.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether a token may follow: those of `ending`, too, where the answer may end.
    pub fn standing(&mut self, ending: &[TokenId]) -> Standing {
        if self.may_end {
            permit(&mut self.mask, ending);
        }
        match self.has_choice() && !self.is_complete() {
            true => Standing::Open,
            false => Standing::Complete,
        }
    }

    /// Whether nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }

    /// What stops its work, for good.
    pub(super) fn cancellation(&self) -> Option<CancellationHandle> {
        self.inner.cancellation_handle()
    }

    /// Whether its work was stopped, so that it is of no use any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }

    fn find_mask(&mut self) -> Result<(), String> {
        self.mask.fill(0);
        if self.is_complete() {
            self.may_end = true;
            return Ok(());
        }
        if self.fuel > limits::ANSWER_FUEL {
            return Err(format!(
                "its lexer created {} expressions, but the limit is {}",
                self.fuel,
                limits::ANSWER_FUEL
            ));
        }
        self.may_end = contain(|| self.inner.is_accepting())?.map_err(|error| error.to_string())?;
        let found = contain(|| self.inner.compute_mask())?;
        self.fuel += self.work().0 as u64;
        match found {
            Ok(mask) => {
                let words = self.mask.len();
                self.mask.copy_from_slice(&mask.as_slice()[..words]);
                Ok(())
            }
            Err(error) if self.may_end && error.to_string().starts_with(NO_TOKEN_LEFT) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Expressions created and items looked at for the last mask.
    fn work(&self) -> (usize, usize) {
        self.inner.last_step_stats().map_or((0, 0), |stats| (stats.lexer_cost as usize, stats.all_items))
    }

    /// Whether the last mask was no work for the thread that steps.
    pub(super) fn is_heavy(&self) -> bool {
        let (expressions, items) = self.work();
        expressions.max(items) > HEAVY_WORK
    }

    fn has_choice(&self) -> bool {
        self.mask.iter().any(|&word| word != 0)
    }

    /// Which tokens may be next: bit `t % 32` of word `t / 32` for token `t`. `[vocab / 32, rounded up]`
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }
}

/// Lets tokens be next.
pub(super) fn permit(mask: &mut [u32], tokens: &[TokenId]) {
    for &token in tokens {
        mask[token as usize / 32] |= 1 << (token % 32);
    }
}
