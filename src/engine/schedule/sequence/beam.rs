//! A sequence as a beam: it is forked from another beam of its request, and outputs an answer at the end.

use super::{Finish, Output, Sequence, SequenceStatus, StopToken, Tokenizer};
use crate::api::beam_search::{Answer, BeamSearch, Ending};
use crate::schedule::blocks::BlockManager;
use base::TokenId;
use compute::batch::{BlockCopy, StateCopy};
use std::time::Instant;

impl Sequence {
    /// Rows that it is going to need: a prompt that is to become several beams needs one per beam.
    pub fn rows(&self) -> usize {
        match self.params().beams {
            Some(beams) if self.key.index == 0 && self.tokens.len() <= self.prompt_tokens() => beams.width as usize,
            _ => 1,
        }
    }

    /// The search that it begins; `None` where it is not a first beam.
    pub fn beam_search(&self) -> Option<BeamSearch> {
        let beams = self.params().beams.filter(|_| self.key.index == 0)?;
        let (min_tokens, max_tokens) = (self.params().min_tokens as usize, self.request.limit - self.prompt_tokens());
        Some(BeamSearch::new(beams, self.ending_tokens(), min_tokens, max_tokens))
    }

    /// Whether it has outputs: as many of the beams have as the request wants answers.
    pub fn has_output(&self) -> bool {
        self.key.index < self.params().completions
    }

    /// Its tokens after the prompt.
    pub fn completion(&self) -> &[TokenId] {
        self.tokens.get(self.prompt_tokens()..).unwrap_or_default()
    }

    /// Records when the candidates for the first token came.
    pub fn note_candidates(&mut self, now: Instant) {
        if self.time_to_first_token_us == 0 {
            self.time_to_first_token_us = now.duration_since(self.request.added_at).as_micros() as u64;
        }
    }

    /// Takes over the tokens and blocks of `parent`, a paused beam: full blocks are shared, and copies of a block that is not
    /// full and of the recurrent state are ordered. Without a free block for the copy, or where `parent` has no blocks, it is computed again.
    pub fn fork_from(
        &mut self,
        parent: &Sequence,
        pool: &mut BlockManager,
        copies: &mut Vec<BlockCopy>,
        states: &mut Vec<StateCopy>,
    ) {
        self.begin();
        self.tokens.truncate(self.prompt_tokens());
        self.tokens.extend_from_slice(parent.completion());
        self.cached_tokens = parent.cached_tokens;
        self.started_at = parent.started_at;
        self.time_to_first_token_us = parent.time_to_first_token_us;
        if !parent.table.is_empty() {
            self.table.reserve(self.request.limit, pool);
            self.table.fork_from(&parent.table, pool, copies, states);
        }
    }

    /// Continues with `token`.
    pub fn go_on(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.status = SequenceStatus::Running;
    }

    /// Ends it with an answer of the search, and writes all tokens and text of the answer to `output`.
    pub fn end_with_answer(
        &mut self,
        answer: &Answer,
        tokenizer: Option<&Tokenizer>,
        now: Instant,
        output: &mut Output,
    ) {
        self.note_candidates(now);
        let dropped = answer.ending == Ending::Token && self.params().stop_token == StopToken::Dropped;
        let shown = &answer.tokens[..answer.tokens.len() - usize::from(dropped)];
        for &token in shown {
            output.token_ids.push(token);
            if let Some(tokenizer) = tokenizer {
                self.detokenizer.push(tokenizer, token, self.stop_rule(), &mut output.text);
            }
        }
        output.prompt_logprobs.extend(self.sampler.prompt_logprobs());
        output.score = answer.score;
        self.completion_tokens = answer.tokens.len();
        self.sampler.cumulative_logprob = answer.logprob;
        let finish = match answer.ending {
            Ending::Token => Finish::Stop,
            Ending::Length => Finish::Length,
        };
        self.end(finish, tokenizer, output);
    }
}
