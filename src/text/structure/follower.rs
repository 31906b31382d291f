//! The matcher of one answer as a sequence has it: its mask may come late.
//!
//! A mask takes some ten microseconds, but a structure can be written for which it takes hundreds of milliseconds. The thread
//! that steps tries for as long as its call leaves it time and stops the work then; a thread of its own begins anew, from the
//! beginning of the structure and the tokens so far, and the sequence waits. Its tokens are the same either way.

use super::late_masks::{Garbage, LateMask, LateMasks, Outcome};
use super::matcher::{Compiled, Matcher, Standing, Wanted, permit};
use base::TokenId;
use base::error::{Error, Result};
use std::sync::Arc;

/// Tokens that the thread that steps takes in at once to catch up.
const CAUGHT_UP_INLINE: usize = 16;

/// Bytes of the largest matcher that the thread that steps copies: more than half a millisecond's work is none for it.
const COPIED_INLINE_BYTES: usize = 2 << 20;

/// Bytes of the largest tables that the thread that steps frees.
const FREED_INLINE_BYTES: usize = 256 << 10;

/// What a request follows: its completions share it.
pub struct Opening {
    compiled: Arc<Compiled>,
    late: Arc<LateMasks>,
    /// The first mask, where it differs from that of the structure.
    mask: Option<Vec<u32>>,
}

/// How far one answer has come.
pub struct Follower {
    opening: Arc<Opening>,
    state: State,
}

enum State {
    /// Nothing is taken in.
    Beginning,
    /// All is taken in.
    Ready(Box<Matcher>),
    /// Something is to be taken in, and nobody works on it. Without a matcher it begins anew.
    Due(Option<Box<Matcher>>),
    /// A thread works on it.
    Late(Arc<LateMask>),
    /// The answer cannot go on.
    Lost,
}

impl Opening {
    /// The beginning of a structure, for answers that tokens of `ending` end.
    pub(super) fn new(compiled: Arc<Compiled>, late: Arc<LateMasks>, ending: &[TokenId]) -> Opening {
        let mask = (compiled.may_be_empty() && !ending.is_empty()).then(|| {
            let mut mask = compiled.first_mask().to_vec();
            permit(&mut mask, ending);
            mask
        });
        Opening { compiled, late, mask }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.compiled.bytes() > FREED_INLINE_BYTES {
            self.late.discard(Garbage::Compiled(self.compiled.clone()));
        }
    }
}

impl Follower {
    /// An answer that has not begun.
    pub fn new(opening: Arc<Opening>) -> Follower {
        Follower { opening, state: State::Beginning }
    }

    /// Which tokens may be next: bit `t % 32` of word `t / 32` for token `t`. `[vocab / 32, rounded up]`
    ///
    /// # Panics
    ///
    /// If it [is late](Self::is_late).
    pub fn mask(&self) -> &[u32] {
        match &self.state {
            State::Beginning => self.opening.mask.as_deref().unwrap_or(self.opening.compiled.first_mask()),
            State::Ready(matcher) => matcher.mask(),
            State::Due(_) | State::Late(_) | State::Lost => panic!("a sequence whose mask is late is in no batch"),
        }
    }

    /// Whether [`advance`](Self::advance) has not come to its end.
    pub fn is_late(&self) -> bool {
        matches!(self.state, State::Due(_) | State::Late(_))
    }

    /// Takes in what of `answer`, all its tokens, it has not taken in, and tells whether a token may follow. `None` while that
    /// is late: then it is to be called again with the same arguments.
    ///
    /// # Errors
    ///
    /// [`Error::StructureLost`] when a token may not be next, none may although the answer is not complete, or the grammar
    /// needs more work than its limits allow.
    pub fn advance(&mut self, answer: &[TokenId], wanted: Wanted, ending: &[TokenId]) -> Option<Result<Standing>> {
        let matcher = match std::mem::replace(&mut self.state, State::Lost) {
            State::Late(mask) => match mask.take() {
                Some(outcome) => return Some(self.reach(outcome, answer, ending)),
                None => {
                    self.state = State::Late(mask);
                    return None;
                }
            },
            State::Beginning => None,
            State::Ready(matcher) => Some(matcher),
            State::Due(matcher) => matcher,
            State::Lost => None,
        };
        let Opening { compiled, late, .. } = &*self.opening;
        let known = matcher.as_ref().map_or(0, |matcher| matcher.tokens());
        let is_long = answer.len() - known > CAUGHT_UP_INLINE;
        if is_long || compiled.is_heavy() || (matcher.is_none() && compiled.bytes() > COPIED_INLINE_BYTES) {
            self.state = State::Late(late.hand_over(compiled, matcher, &answer[known..], wanted));
            return None;
        }
        if late.is_time_over() {
            self.state = State::Due(matcher);
            return None;
        }
        let outcome = match matcher.map_or_else(|| compiled.matcher().map(Box::new), Ok) {
            Err(reason) => Err(reason),
            Ok(mut matcher) => {
                let handle = matcher.cancellation();
                let result = late.watch(handle, || matcher.take_in(&answer[known..], wanted));
                if matcher.is_cancelled() {
                    compiled.note_heavy();
                    late.discard(Garbage::Matcher(matcher));
                    self.state = State::Late(late.hand_over(compiled, None, answer, wanted));
                    return None;
                }
                if matcher.is_heavy() {
                    compiled.note_heavy();
                }
                result.map(|()| matcher)
            }
        };
        Some(self.reach(outcome, answer, ending))
    }

    fn reach(&mut self, outcome: Outcome, answer: &[TokenId], ending: &[TokenId]) -> Result<Standing> {
        match outcome {
            Ok(mut matcher) => {
                let standing = matcher.standing(ending);
                self.state = State::Ready(matcher);
                Ok(standing)
            }
            Err(reason) => Err(Error::StructureLost { tokens: answer.len(), reason: super::in_one_line(&reason) }),
        }
    }

    /// Whether nothing may follow, whatever ends it.
    pub fn is_complete(&self) -> bool {
        matches!(&self.state, State::Ready(matcher) if matcher.is_complete())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let matcher = match std::mem::replace(&mut self.state, State::Lost) {
            State::Ready(matcher) => Some(matcher),
            State::Due(matcher) => matcher,
            State::Late(mask) => mask.abandon(),
            State::Beginning | State::Lost => None,
        };
        // One that has come far may have larger tables than it began with.
        if let Some(matcher) = matcher {
            self.opening.late.discard(Garbage::Matcher(matcher));
        }
    }
}
