//! How far one answer has come in its structure.

use crate::batch::TokenId;
use crate::error::{Error, Result};
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;

/// How the crate begins to say that no token may be next.
const NO_TOKEN_LEFT: &str = "NoExtensionBias";

/// How far one answer has come in its structure.
pub struct Matcher {
    inner: llguidance::Matcher,
    warnings: Vec<String>,
    /// Bit `t % 32` of word `t / 32`: token `t` may be next. `[vocab / 32, rounded up]`
    mask: Vec<u32>,
    /// Whether the answer may end here.
    may_end: bool,
    /// Tokens taken in.
    tokens: usize,
}

/// Whether an answer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A token is to follow; [`Matcher::mask`] says which ones may.
    Open,
    /// Nothing may follow.
    Complete,
}

impl Clone for Matcher {
    /// A matcher with tables of its own: what the other one does later, its failures too, is nothing to this one.
    fn clone(&self) -> Matcher {
        Matcher {
            inner: self.inner.deep_clone(),
            warnings: self.warnings.clone(),
            mask: self.mask.clone(),
            may_end: self.may_end,
            tokens: self.tokens,
        }
    }
}

impl Matcher {
    /// The beginning of a grammar, or why it is none.
    pub(super) fn new(factory: &ParserFactory, grammar: TopLevelGrammar) -> std::result::Result<Matcher, String> {
        let mut inner = llguidance::Matcher::new(factory.create_parser(grammar));
        if let Some(reason) = inner.get_error() {
            return Err(reason);
        }
        let words = factory.tok_env().tok_trie().vocab_size().div_ceil(32);
        let warnings = inner.grammar_warnings();
        let mut matcher = Matcher { inner, warnings, mask: vec![0; words], may_end: false, tokens: 0 };
        // The first mask fills tables that every copy then has.
        match matcher.find_mask() {
            Ok(()) if matcher.has_choice() => Ok(matcher),
            Err(Error::StructureLost { reason, .. }) if reason != NO_TOKEN_LEFT => Err(reason),
            _ => Err("no token can begin a text that fits it".to_owned()),
        }
    }

    /// What of the grammar is not held to the letter, in the crate's words.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Takes in the next token of the answer, which is none that ends it.
    ///
    /// # Errors
    ///
    /// [`Error::StructureLost`] when the token may not be next, or the grammar needs more work than its limits allow.
    pub fn consume(&mut self, token: TokenId) -> Result<()> {
        self.inner.consume_token(token).map_err(|error| self.lost(&error.to_string()))?;
        self.tokens += 1;
        Ok(())
    }

    /// Finds out which tokens may be next: those of `ending`, too, where the answer may end.
    ///
    /// # Errors
    ///
    /// [`Error::StructureLost`] when no token may be next although the answer is not complete, or the grammar needs more
    /// work than its limits allow.
    pub fn allow(&mut self, ending: &[TokenId]) -> Result<Standing> {
        self.find_mask()?;
        self.permit(ending);
        match self.has_choice() && !self.is_complete() {
            true => Ok(Standing::Open),
            false => Ok(Standing::Complete),
        }
    }

    /// Lets the tokens of `ending` be next, where the answer may end.
    pub fn permit(&mut self, ending: &[TokenId]) {
        if self.may_end {
            for &token in ending {
                self.mask[token as usize / 32] |= 1 << (token % 32);
            }
        }
    }

    /// Whether nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }

    fn find_mask(&mut self) -> Result<()> {
        self.mask.fill(0);
        if self.is_complete() {
            self.may_end = true;
            return Ok(());
        }
        self.may_end = self.inner.is_accepting().map_err(|error| self.lost(&error.to_string()))?;
        match self.inner.compute_mask() {
            Ok(mask) => {
                let words = self.mask.len();
                self.mask.copy_from_slice(&mask.as_slice()[..words]);
                Ok(())
            }
            Err(error) if self.may_end && error.to_string().starts_with(NO_TOKEN_LEFT) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    fn has_choice(&self) -> bool {
        self.mask.iter().any(|&word| word != 0)
    }

    /// Which tokens may be next: bit `t % 32` of word `t / 32` for token `t`. `[vocab / 32, rounded up]`
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }

    fn lost(&self, reason: &str) -> Error {
        Error::StructureLost { tokens: self.tokens, reason: super::in_one_line(reason) }
    }
}
