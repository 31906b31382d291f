//! Beam search: which candidates of a request's beams continue, and which are its best answers?
//!
//! The rule is that of transformers' `generate(num_beams=…)`. A step considers the best candidates of all beams together,
//! `max(2, 1 + end tokens)` per beam, so that enough of them continue whichever end. Candidates that end are answers if they are
//! among the best `width` candidates; the best `width` of the others are the next beams. The score of an answer is the sum of
//! its log-probabilities divided by its length, including its end token, to the power of `length_penalty`.
//!
//! The search knows scores and tokens, and neither sequences nor blocks: a beam is in a *slot*, and the first child of a beam
//! stays in the slot of its parent, so that few blocks are copied.

use base::TokenId;
use compute::batch::{Chosen, NO_TOKEN};

/// How a request searches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamParams {
    /// Beams, from 2.
    pub width: u32,
    /// A value above 0 favours long answers, one below 0 short answers.
    pub length_penalty: f32,
    /// When the search ends.
    pub early_stopping: EarlyStopping,
}

/// When a search ends that could continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When there are as many answers as beams, and the best beam at its present length is no better than the worst of them.
    WhenUnlikely,
    /// When there are as many answers as beams.
    WhenFull,
    /// When there are as many answers as beams, and the best beam cannot become better than the worst of them, even if further
    /// tokens had probability 1.
    Never,
}

/// The search of one request.
pub struct BeamSearch {
    params: BeamParams,
    /// In ascending order.
    ending_tokens: Vec<TokenId>,
    min_tokens: usize,
    max_tokens: usize,
    /// Tokens generated per beam.
    generated: usize,
    /// Best first.
    beams: Vec<Beam>,
    /// Beams whose candidates are not known yet.
    pending: usize,
    candidates: Vec<Candidate>,
    /// Best first.
    answers: Vec<Answer>,
}

/// A text that continues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beam {
    /// Its slot.
    pub slot: usize,
    /// The slot of the beam that it continues.
    pub parent: usize,
    /// Its newest token.
    pub token: TokenId,
    /// The sum of its log-probabilities.
    pub score: f32,
}

/// A text that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// All tokens after the prompt, an end token included.
    pub tokens: Vec<TokenId>,
    /// The score by which answers are compared.
    pub score: f32,
    /// The sum of its log-probabilities.
    pub logprob: f32,
    /// Whether an end token or its length ended it.
    pub ending: Ending,
}

/// What ended an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An end token.
    Token,
    /// Its length.
    Length,
}

/// A continuation of a beam.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Index of the beam.
    beam: usize,
    token: TokenId,
    score: f32,
}

/// Whether a search continues after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStatus {
    /// The beams are new ones.
    Running,
    /// The answers are final.
    Finished,
}

impl BeamParams {
    /// Candidates that a step considers, given the number of tokens that end an answer.
    fn kept(&self, ending_tokens: usize) -> usize {
        self.width as usize * (1 + ending_tokens).max(2)
    }

    /// Top log-probabilities that a step needs from each beam.
    pub fn num_candidates(&self, ending_tokens: usize, min_tokens: u32) -> usize {
        // Ending tokens before `min_tokens` are skipped.
        self.kept(ending_tokens) + if min_tokens > 0 { ending_tokens } else { 0 }
    }
}

impl BeamSearch {
    /// A search over texts of at most `max_tokens` tokens, whose first `min_tokens` tokens are not in `ending_tokens`. The
    /// first beam is the prompt, in slot 0.
    pub fn new(params: BeamParams, ending_tokens: &[TokenId], min_tokens: usize, max_tokens: usize) -> BeamSearch {
        BeamSearch {
            params,
            ending_tokens: ending_tokens.to_vec(),
            min_tokens,
            max_tokens,
            generated: 0,
            beams: vec![Beam { slot: 0, parent: 0, token: NO_TOKEN, score: 0.0 }],
            pending: 1,
            candidates: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Number of slots.
    pub fn width(&self) -> usize {
        self.params.width as usize
    }

    /// The beams, best first.
    pub fn beams(&self) -> &[Beam] {
        &self.beams
    }

    /// The answers, best first.
    pub fn into_answers(self) -> Vec<Answer> {
        self.answers
    }

    /// Adds the top log-probabilities after the beam in `slot`; returns whether those of all beams are known.
    pub fn add_candidates(&mut self, slot: usize, chosen: &Chosen) -> bool {
        let beam = self.beams.iter().position(|beam| beam.slot == slot).expect("the slot has a beam");
        for (&token, &logprob) in chosen.top_tokens.iter().zip(chosen.top_logprobs) {
            let comes_too_early = self.generated < self.min_tokens && self.is_ending(token);
            if token != NO_TOKEN && !comes_too_early {
                self.candidates.push(Candidate { beam, token, score: self.beams[beam].score + logprob });
            }
        }
        self.pending -= 1;
        self.pending == 0
    }

    /// Makes a step, once the candidates of all beams are known. `tokens_in` returns the tokens of a slot after the prompt.
    pub fn step<'a>(&mut self, tokens_in: impl Fn(usize) -> &'a [TokenId]) -> SearchStatus {
        debug_assert_eq!(self.pending, 0);
        // Candidates are added in any order of the beams: among equals, the better beam and then the likelier token come first.
        self.candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.beam.cmp(&b.beam)));
        self.candidates.truncate(self.params.kept(self.ending_tokens.len()));
        self.generated += 1;
        let is_last = self.generated >= self.max_tokens;
        let mut beams: Vec<Beam> = Vec::with_capacity(self.width());
        for (rank, candidate) in std::mem::take(&mut self.candidates).into_iter().enumerate() {
            let Candidate { beam, token, score } = candidate;
            let parent = self.beams[beam].slot;
            let ends = self.is_ending(token);
            if !ends && !is_last {
                if beams.len() < self.width() {
                    beams.push(Beam { slot: usize::MAX, parent, token, score });
                }
            } else if rank < self.width() {
                let tokens = [tokens_in(parent), &[token]].concat();
                self.add_answer(Answer {
                    tokens,
                    score: score / self.length_factor(self.generated),
                    logprob: score,
                    ending: if ends { Ending::Token } else { Ending::Length },
                });
            }
        }
        give_slots(&mut beams);
        self.pending = beams.len();
        self.beams = beams;
        if self.goes_on() { SearchStatus::Running } else { SearchStatus::Finished }
    }

    fn add_answer(&mut self, answer: Answer) {
        // An older answer stays before a new one with the same score.
        let at = self.answers.partition_point(|other| other.score >= answer.score);
        self.answers.insert(at, answer);
        self.answers.truncate(self.width());
    }

    fn goes_on(&self) -> bool {
        let Some(best) = self.beams.first() else { return false };
        let Some(worst) = self.answers.get(self.width() - 1) else { return true };
        let length = match self.params.early_stopping {
            EarlyStopping::WhenFull => return false,
            EarlyStopping::Never if self.params.length_penalty > 0.0 => self.max_tokens,
            EarlyStopping::Never | EarlyStopping::WhenUnlikely => self.generated,
        };
        best.score / self.length_factor(length) > worst.score
    }

    fn length_factor(&self, tokens: usize) -> f32 {
        (tokens as f64).powf(f64::from(self.params.length_penalty)) as f32
    }

    fn is_ending(&self, token: TokenId) -> bool {
        self.ending_tokens.binary_search(&token).is_ok()
    }
}

/// Leaves the first child of each parent in the slot of the parent, and gives the other children the free slots.
fn give_slots(beams: &mut [Beam]) {
    for index in 0..beams.len() {
        let parent = beams[index].parent;
        if beams[..index].iter().all(|before| before.slot != parent) {
            beams[index].slot = parent;
        }
    }
    let mut free = 0;
    for index in 0..beams.len() {
        if beams[index].slot == usize::MAX {
            while beams.iter().any(|beam| beam.slot == free) {
                free += 1;
            }
            beams[index].slot = free;
        }
    }
}

#[cfg(test)]
mod tests;
