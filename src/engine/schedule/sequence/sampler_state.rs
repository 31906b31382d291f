//! How is the next token of a sequence sampled, and which log-probabilities has it collected?
//!
//! Invariants: the random key and stream differ between all completions of an engine that bring no seed. `prompt_logprobs` has
//! at most `scored_prompt_tokens` entries.

use super::SequenceKey;
use crate::adjustments::LogitBiases;
use crate::api::request::{CheckedParams, Request};
use crate::dry::History;
use crate::results::logprobs::Logprobs;
use base::TokenId;
use compute::batch::{Chosen, FROM_PREVIOUS, LogitBias, Sampled, Sampling};
use text::tokenizer::Tokenizer;

/// What the sampler needs to know of one sequence, and what it returned besides tokens.
pub struct SamplerState {
    /// Random key and stream.
    random: (u64, u64),
    /// Penalties and logit biases.
    adjustments: LogitBiases,
    /// What it repeats, if the request penalizes that.
    dry: Option<Box<History>>,
    /// Sum over the generated tokens; 0 where log-probabilities are not asked for.
    pub cumulative_logprob: f32,
    /// Tokens of the prompt whose log-probabilities are asked for: the last ones.
    scored_prompt_tokens: usize,
    /// Log-probabilities of the first of these.
    prompt_logprobs: Logprobs,
}

/// Which token is sampled next.
#[derive(Clone, Copy, Debug)]
pub struct NextToken<'a> {
    /// Its position in the sequence.
    pub position: usize,
    /// Where the token before it is sampled, if that is in a pass in flight.
    pub awaited_sample: Option<u32>,
    /// Tokens that it must not be, in ascending order.
    pub banned: &'a [TokenId],
}

impl SamplerState {
    /// The state of the completion or beam with `key` before its first token. It has no memory whose size the request
    /// chooses until [`begin`](Self::begin).
    pub fn new(key: SequenceKey, request: &Request) -> SamplerState {
        let params = &request.options.params;
        let random = match params.seed {
            Some(seed) => (seed.wrapping_add(key.index() as u64), 0),
            // Ids never get that far, so that no two completions of an engine share a stream.
            None => (request.engine_seed, key.id() | (key.index() as u64) << 48),
        };
        // The first completion of a request collects them for all.
        let is_scored = params.num_prompt_logprobs > 0 && key.index() == 0;
        SamplerState {
            random,
            adjustments: LogitBiases::default(),
            dry: None,
            cumulative_logprob: 0.0,
            scored_prompt_tokens: if is_scored { request.prompt.len() - 1 } else { 0 },
            prompt_logprobs: Logprobs { alternatives: params.num_prompt_logprobs as usize, ..Logprobs::default() },
        }
    }

    /// Copies the penalties and biases of `request`.
    pub fn begin(&mut self, request: &Request) {
        self.adjustments.clone_from(&request.adjustments);
        self.dry = request.dry.clone().map(Box::new);
    }

    /// Reserves memory for `tokens` tokens to come.
    pub fn reserve(&mut self, tokens: usize) {
        self.adjustments.reserve(tokens);
        if let Some(dry) = &mut self.dry {
            dry.reserve(tokens);
        }
    }

    /// Whether the token before has to be known before the next one is in a pass: repetitions are found on the host.
    pub fn awaits_tokens(&self) -> bool {
        self.dry.is_some()
    }

    /// How the next token is sampled. Its penalties and biases are appended to `entries`.
    pub fn sampling(&self, options: &CheckedParams, next: NextToken, entries: &mut Vec<LogitBias>) -> Sampling {
        let params = &options.params;
        let (seed, stream) = self.random;
        let mut sampling = Sampling {
            temperature: params.temperature,
            top_p: params.top_p,
            min_p: params.min_p,
            top_k: params.top_k,
            seed,
            stream,
            position: next.position as u32,
            logprobs: options.sampling_logprobs(),
            top_n_sigma: params.top_n_sigma,
            ..Sampling::GREEDY
        };
        if params.xtc_probability > 0.0 && params.xtc_threshold <= 0.5 && sampling.draws(params.xtc_probability) {
            sampling.xtc_threshold = params.xtc_threshold;
        }
        if let Some(sample) = next.awaited_sample
            && self.adjustments.has_penalty()
        {
            sampling.awaited = FROM_PREVIOUS | sample;
        }
        self.adjustments.write(next.banned, &mut sampling, entries);
        if let Some(dry) = &self.dry {
            debug_assert_eq!(next.awaited_sample, None, "a repetition ends with a token that is known");
            dry.write(&mut sampling, entries);
        }
        sampling
    }

    /// Takes in a generated token that belongs to the completion, and appends its log-probability to `logprobs` where the
    /// request asks for it.
    pub fn accept(
        &mut self,
        options: &CheckedParams,
        chosen: &Chosen,
        tokenizer: Option<&Tokenizer>,
        logprobs: &mut Logprobs,
    ) {
        self.adjustments.count(chosen.token);
        if let Some(dry) = &mut self.dry {
            dry.push(chosen.token, tokenizer);
        }
        if options.params.num_logprobs > 0 {
            logprobs.push(chosen);
            self.cumulative_logprob += chosen.logprob;
        }
    }

    /// Tokens of the prompt whose log-probabilities are asked for and not known yet: its last ones.
    pub fn unscored_prompt_tokens(&self) -> usize {
        self.scored_prompt_tokens - self.prompt_logprobs.len()
    }

    /// How the token at `position` of the prompt is scored after the tokens before it; `None` where its log-probability is
    /// not asked for or known.
    pub fn scoring(&self, request: &Request, position: usize) -> Option<Sampling> {
        let prompt_tokens = request.prompt.len();
        let unscored = prompt_tokens - self.unscored_prompt_tokens()..prompt_tokens;
        unscored.contains(&position).then(|| Sampling {
            position: position as u32,
            forced: request.prompt[position],
            logprobs: request.options.params.num_prompt_logprobs + 1,
            ..Sampling::GREEDY
        })
    }

    /// Takes in the log-probability of the next token of the prompt: sample `sample` of `sampled`.
    pub fn score_prompt(&mut self, options: &CheckedParams, sampled: &Sampled, sample: usize) {
        self.prompt_logprobs.push(&sampled.chosen(sample, options.params.num_prompt_logprobs + 1));
    }

    /// Log-probabilities of the prompt's tokens except its first, as far as passes brought them.
    pub fn prompt_logprobs(&self) -> &Logprobs {
        &self.prompt_logprobs
    }
}
