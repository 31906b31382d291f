//! What does the engine keep of a request? Options that were checked, a prompt, and what its completions share.
//!
//! Invariant: a list whose length a caller chooses exists once per request, however many completions it has, and once for all
//! prompts of a call of `generate` that share their options.

use crate::adjustments::LogitBiases;
use crate::api::prompt::EmbeddingRows;
use crate::api::sampling_params::{Eos, Pinning, Pooling, SamplingParams};
use crate::dry::History;
use crate::results::pooled_result::PooledResult;
use crate::results::stop_strings::StopSet;
use crate::schedule::sequence::{Sequence, SequenceKey, ThinkingLimit};
use base::TokenId;
use base::error::{Error, Result};
use compute::batch::{LogitBias, MAX_LOGPROBS};
use runner::ModelInfo;
use std::sync::Arc;
use std::time::Instant;
use text::structure::Opening;

/// Options that are valid for the model, and what is derived from them.
pub struct CheckedParams {
    /// The options as the caller gave them.
    pub params: SamplingParams,
    /// EOS unless ignored, and stop tokens. In ascending order, each once.
    pub ending_tokens: Vec<TokenId>,
    /// `None` without stop strings.
    pub stop_strings: Option<Arc<StopSet>>,
    /// Tokens with a bias. In ascending order.
    pub biases: Vec<LogitBias>,
    /// What becomes of the pooled state, if it asks for one.
    pub result: PooledResult,
}

/// What the completions of a request share.
pub struct Request {
    /// At least one token; [`PLACE`](crate::api::prompt::PLACE) where a row of an embedding is.
    pub prompt: Vec<TokenId>,
    /// The embeddings of the prompt, in order.
    pub embeddings: Box<[EmbeddingRows]>,
    /// The first token of the second text of a pair, for models that tell them apart. Else the number of tokens.
    pub second_text: usize,
    /// Its options.
    pub options: Arc<CheckedParams>,
    /// Penalties and logit biases of the first token of a completion.
    pub adjustments: LogitBiases,
    /// What the prompt repeats, if the request penalizes repetitions by DRY.
    pub dry: Option<History>,
    /// The beginning of the structure that it asks for, if any.
    pub matcher: Option<Arc<Opening>>,
    /// The limit of its reasoning, if any.
    pub thinking: Option<Arc<ThinkingLimit>>,
    /// Tokens that a completion may reach, prompt included; more than the prompt has.
    pub limit: usize,
    /// Seed of requests without one.
    pub engine_seed: u64,
    /// When it was added.
    pub added_at: Instant,
}

/// A request that waits to be taken in by a step.
pub struct Arrival {
    /// The key of its first completion.
    pub key: SequenceKey,
    /// The request.
    pub request: Arc<Request>,
    /// Whether its prompt is to be pinned. A release may come before the request is taken in.
    pub pinning: Pinning,
}

impl Request {
    /// Sequences that run for it: its beams, or its completions.
    pub fn sequences(&self) -> u32 {
        self.options.params.sequences()
    }

    /// Estimated bytes of the lists whose length its caller chose: the cost of taking it in and freeing it grows with them.
    pub fn bytes(&self) -> usize {
        let CheckedParams { params, ending_tokens, biases, .. } = &*self.options;
        let strings: usize = params.stop_strings.iter().map(|text| size_of::<String>() + text.len()).sum();
        let tokens = self.prompt.len() + params.stop_tokens.len() + ending_tokens.len();
        strings + tokens * size_of::<TokenId>() + 2 * biases.len() * size_of::<LogitBias>()
    }
}

impl Arrival {
    /// The sequences that wait first: all beams of a search, or the first completion, which creates the others in turn.
    pub fn into_sequences(self) -> impl Iterator<Item = Sequence> {
        let Arrival { key, request, pinning } = self;
        let made = request.options.params.beams.map_or(1, |beams| beams.width);
        (0..made).map(move |index| Sequence::new(key.completion(index), request.clone(), pinning))
    }
}

impl CheckedParams {
    /// Checks options for a model.
    ///
    /// # Errors
    ///
    /// As [`SamplingParams::check`], and [`Error::Option`] where no token would be left to choose, or a beam search would need
    /// more candidates than there are log-probabilities.
    pub fn new(params: SamplingParams, info: &ModelInfo) -> Result<CheckedParams> {
        params.check(info.vocab_size)?;
        let result = PooledResult::resolve(&params, info)?;
        if !info.has_head && params.pooling == Pooling::None {
            let what = match params.score_tokens.is_empty() {
                true => "the model has no head and generates nothing: ask for an embedding by pooling",
                false => "the model has no head and gives tokens no probabilities: leave score_tokens empty",
            };
            return Err(Error::Unsupported { what: what.to_owned() });
        }
        let most = info.limits.extra_samples + 1;
        if params.score_tokens.len() > most {
            return Err(Error::Option {
                field: "num_score_tokens",
                value: format!("{}, and a pass computes {most} of one request", params.score_tokens.len()),
                wanted: "at most max_batched_tokens less max_num_seqs, and one more",
            });
        }
        let ending_tokens = ending_tokens(&params, info)?;
        if let Some(beams) = params.beams
            && beams.num_candidates(ending_tokens.len(), params.min_tokens) > MAX_LOGPROBS
        {
            return Err(Error::Option {
                field: "beam_width",
                value: beams.width.to_string(),
                wanted: "small enough for 64 candidates: with one end token up to 32, with each more end token fewer",
            });
        }
        let bias = |&(token, bias): &(TokenId, f32)| LogitBias { token, uses: LogitBias::UNUSED, bias };
        let mut biases: Vec<LogitBias> = params.logit_bias.iter().map(bias).collect();
        biases.sort_unstable_by_key(|entry| entry.token);
        let stop_strings = StopSet::new(&params.stop_strings).map(Arc::new);
        Ok(CheckedParams { params, ending_tokens, stop_strings, biases, result })
    }

    /// [`Sampling::logprobs`](compute::batch::Sampling::logprobs) of the tokens.
    pub fn sampling_logprobs(&self) -> u32 {
        match (self.params.num_logprobs, self.params.beams) {
            (_, Some(beams)) => beams.num_candidates(self.ending_tokens.len(), self.params.min_tokens) as u32 + 1,
            (0, None) => 0,
            (alternatives, None) => alternatives + 1,
        }
    }
}

/// The tokens that end a request.
fn ending_tokens(params: &SamplingParams, info: &ModelInfo) -> Result<Vec<TokenId>> {
    let mut tokens = match params.eos {
        Eos::Stops => info.eos_tokens.clone(),
        Eos::Ignored => Vec::new(),
    };
    tokens.extend_from_slice(&params.stop_tokens);
    tokens.sort_unstable();
    tokens.dedup();
    let vocab_size = info.vocab_size;
    let never = |&&(_, bias): &&(TokenId, f32)| bias == f32::NEG_INFINITY;
    let forbidden = params.logit_bias.iter().filter(never);
    if forbidden.clone().count() >= vocab_size {
        let value = format!("minus infinity for all {vocab_size} tokens");
        return Err(Error::Option { field: "bias_values", value, wanted: "so for fewer than the vocabulary" });
    }
    let banned = tokens.len() + forbidden.filter(|(token, _)| tokens.binary_search(token).is_err()).count();
    if params.min_tokens > 0 && banned >= vocab_size {
        return Err(Error::Option {
            field: "stop_tokens",
            value: format!("with the tokens that a bias forbids all {banned} tokens"),
            wanted: "fewer than the vocabulary, or min_tokens 0",
        });
    }
    Ok(tokens)
}
