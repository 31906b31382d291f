//! What does one request ask for?
//!
//! Invariant: [`SamplingParams::default`] declares the defaults of every option, and the C API fills its struct from it.

use crate::api::beam_search::BeamParams;
use base::TokenId;
use base::error::{Error, Result};
use base::limits;
use compute::batch::MAX_LOGPROBS;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use text::answer::ToolUse;
use text::structure::Structure;
use text::tokenizer::SpecialTokens;

/// The maximum number of completions per request.
pub const COMPLETIONS_MAX: u32 = limits::COMPLETIONS as u32;

/// The options of a request, checked by [`SamplingParams::check`] when the request is added.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Returned in every output.
    pub tag: u64,
    /// Maximum number of tokens to generate; `None` is limited by `max_model_len` and the KV cache only.
    pub max_tokens: Option<u32>,
    /// Number of tokens before which no EOS or stop token may occur.
    pub min_tokens: u32,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus sampling: above 0 and at most 1, where 1 is off.
    pub top_p: f32,
    /// Minimum probability relative to the most likely token, from 0, which is off, to 1.
    pub min_p: f32,
    /// Number of most likely tokens to sample from; 0 is off.
    pub top_k: u32,
    /// Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the completion;
    /// any finite number above 0, where 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of each token that occurs in the completion; any finite number, where 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once per occurrence in the completion; any finite number, where 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens after the penalties; minus infinity excludes a token.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Log-probabilities: 0 for none, else those of each token and of this many most likely tokens, at most [`MAX_LOGPROBS`].
    pub num_logprobs: u32,
    /// The same for the tokens of the prompt except the first.
    pub num_prompt_logprobs: u32,
    /// Seed of the request's own random stream; `None` derives it from the engine's seed and the request's id.
    pub seed: Option<u64>,
    /// How EOS tokens are treated.
    pub eos: Eos,
    /// Whether the output includes the token or string that stopped the request.
    pub stop_token: StopToken,
    /// Requests with a higher priority run first.
    pub priority: i32,
    /// How long the request may wait until it first runs; `None` is no limit.
    pub max_wait: Option<Duration>,
    /// Number of completions of the prompt.
    pub completions: u32,
    /// Whether the request generates, or how its prompt becomes an embedding instead.
    pub pooling: Pooling,
    /// How many leading numbers of the embedding are kept, which is normalized again where the model's are; `None`: all.
    pub embedding_dimensions: Option<u32>,
    /// Tokens whose probabilities after the prompt are the scores of the request, which then generates nothing: at most [`limits::SCORE_TOKENS`]. Empty: it does not score.
    pub score_tokens: Vec<TokenId>,
    /// Tokens to which a longer prompt is cut that generates nothing; [`u32::MAX`]: as many as the model takes. `None`: it is refused.
    pub truncation: Option<u32>,
    /// Beam search, whose best results are the completions; `None` samples.
    pub beams: Option<BeamParams>,
    /// Requests with different salts share no blocks, so that none can infer another one's prompt from timing. 0 is a salt too.
    pub cache_salt: u64,
    /// Whether the prompt's blocks stay cached after the request has ended.
    pub pinning: Pinning,
    /// Tokens that end the request, in addition to EOS.
    pub stop_tokens: Vec<TokenId>,
    /// Strings that end the request when its text contains one; the text is cut before it. Needs a tokenizer.
    pub stop_strings: Vec<String>,
    /// The schema, expression or grammar that constrains the text. Needs a tokenizer.
    pub structure: Option<Arc<Structure>>,
    /// Tools that the answer may call. Needs a tokenizer.
    pub tools: Option<Arc<ToolUse>>,
    /// Tokens of reasoning after which its end is forced. `None`: no limit, and they are not counted. Needs a tokenizer.
    pub max_thinking_tokens: Option<u32>,
    /// Whether the text has special tokens, spelled out.
    pub special_tokens: SpecialTokens,
    /// Top-n-sigma: drops tokens whose logit is more than this many standard deviations of all logits below the greatest. Any finite
    /// number, where 0 or less is off.
    pub top_n_sigma: f32,
    /// XTC: the probability with which a token is sampled without the most likely ones, from 0, which is off, to 1.
    pub xtc_probability: f32,
    /// XTC: drops all tokens with at least this probability but the least likely of them. Above 0 and at most 1, where more than 0.5 is
    /// off.
    pub xtc_threshold: f32,
    /// DRY: `multiplier * base^(n - allowed_length)` is subtracted from the logit of a token that followed the last `n` tokens before. A finite
    /// number, where 0 is off.
    pub dry_multiplier: f32,
    /// DRY: the base; a finite number of at least 1.
    pub dry_base: f32,
    /// DRY: the length from which on a repetition is penalized, at least 1.
    pub dry_allowed_length: u32,
    /// DRY: number of last tokens of prompt and completion that are looked at, at least 1; `None`: all.
    pub dry_penalty_last_n: Option<u32>,
    /// DRY: strings across which no repetition extends; `None`: newline, colon, quotation mark and asterisk. A list needs a tokenizer.
    pub dry_sequence_breakers: Option<Vec<String>>,
}

/// How EOS tokens are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eos {
    /// They end the request.
    Stops,
    /// They are ordinary tokens.
    Ignored,
}

/// Whether the output includes what stopped the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopToken {
    /// Tokens and text omit the token, the text omits the string. The tokens that spell a string stay in any case.
    Dropped,
    /// The output includes it, and nothing after it.
    Kept,
}

/// How the final hidden states of a prompt, after the model's last norm, become an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// No embedding: the request generates.
    None,
    /// The hidden state of the last token.
    Last,
    /// The mean of all hidden states. The prefix cache is not used, because it holds no hidden states.
    Mean,
    /// The hidden state of the first token. Of encoders alone.
    First,
    /// As the model's folder says, with the layers and the normalization that it names; the scores of a classifier.
    Auto,
}

/// Whether the blocks of a prompt stay cached after its request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// They stay cached until they are reused.
    Evictable,
    /// They stay cached until they are released.
    Pinned,
}

impl Default for SamplingParams {
    /// Greedy, until EOS or the end of the context.
    fn default() -> SamplingParams {
        SamplingParams {
            tag: 0,
            max_tokens: None,
            min_tokens: 0,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            num_logprobs: 0,
            num_prompt_logprobs: 0,
            seed: None,
            eos: Eos::Stops,
            stop_token: StopToken::Dropped,
            priority: 0,
            max_wait: None,
            completions: 1,
            pooling: Pooling::None,
            embedding_dimensions: None,
            score_tokens: Vec::new(),
            truncation: None,
            beams: None,
            cache_salt: 0,
            pinning: Pinning::Evictable,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            structure: None,
            tools: None,
            max_thinking_tokens: None,
            special_tokens: SpecialTokens::Skip,
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: None,
            dry_sequence_breakers: None,
        }
    }
}

impl SamplingParams {
    /// Whether it generates tokens, rather than an embedding or scores.
    pub fn generates(&self) -> bool {
        self.pooling == Pooling::None && self.score_tokens.is_empty()
    }

    /// Refuses values that are invalid for a model of `vocab_size` tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] names the field; [`Error::TokenOutOfRange`] names a stop token or biased token that is not in the
    /// vocabulary.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        self.check_sampling()?;
        self.check_dry()?;
        self.check_lists()?;
        self.check_bias(vocab_size)?;
        for (field, value) in [("num_logprobs", self.num_logprobs), ("num_prompt_logprobs", self.num_prompt_logprobs)] {
            if value as usize > MAX_LOGPROBS {
                return Err(refusal(field, value, "at most 64"));
            }
        }
        if self.max_tokens == Some(0) {
            return Err(refusal("max_tokens", 0, "at least 1"));
        }
        if self.max_tokens.is_some_and(|max| self.min_tokens > max) {
            return Err(refusal("min_tokens", self.min_tokens, "at most max_tokens"));
        }
        if !(1..=COMPLETIONS_MAX).contains(&self.completions) {
            return Err(refusal("n", self.completions, "from 1 to 1024"));
        }
        if self.pooling != Pooling::None && self.completions != 1 {
            return Err(refusal("n", self.completions, "1 with pooling"));
        }
        self.check_score_tokens(vocab_size)?;
        if let Some(tokens) = self.truncation.filter(|&tokens| tokens == 0 || self.generates()) {
            return Err(refusal("truncate_prompt_tokens", tokens, "0 for a request that generates tokens"));
        }
        self.check_beams()?;
        if let Some(limit) = self.max_thinking_tokens.filter(|_| self.structure.is_some()) {
            // The structure holds from the first token, and has no reasoning.
            return Err(refusal("max_thinking_tokens", limit, "4294967295 with a structure"));
        }
        if let Some(tools) = &self.tools {
            tools.check()?;
            if tools.told().is_some() && self.structure.is_some() {
                return Err(refusal("tools", "a list", "NULL with a structure, unless tool_choice is none"));
            }
        }
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(refusal("stop", "an empty string", "strings of at least one character"));
        }
        match self.stop_tokens.iter().position(|&token| token as usize >= vocab_size) {
            Some(index) => Err(Error::TokenOutOfRange { token: self.stop_tokens[index], index, vocab_size }),
            None => Ok(()),
        }
    }

    /// Number of sequences that run for it: its beams, or its completions.
    pub fn sequences(&self) -> u32 {
        self.beams.map_or(self.completions, |beams| beams.width)
    }

    /// Number of results of a prompt with these options: its completions, or 1 if their number is invalid.
    pub fn results(&self) -> usize {
        if (1..=COMPLETIONS_MAX).contains(&self.completions) { self.completions as usize } else { 1 }
    }

    /// The part of [`check`](Self::check) that generation_config.json has to pass as well.
    pub(crate) fn check_sampling(&self) -> Result<()> {
        // A range does not contain NaN.
        if !(0.0..=f32::MAX).contains(&self.temperature) {
            return Err(refusal("temperature", self.temperature, "a finite number, 0 for greedy or above"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(refusal("top_p", self.top_p, "above 0 and at most 1"));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(refusal("min_p", self.min_p, "from 0 to 1"));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return Err(refusal("repetition_penalty", self.repetition_penalty, "a finite number above 0"));
        }
        for (field, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            if !value.is_finite() {
                return Err(refusal(field, value, "a finite number"));
            }
        }
        if !self.top_n_sigma.is_finite() {
            return Err(refusal("top_n_sigma", self.top_n_sigma, "a finite number, 0 for off or above"));
        }
        if !(0.0..=1.0).contains(&self.xtc_probability) {
            return Err(refusal("xtc_probability", self.xtc_probability, "from 0 to 1"));
        }
        if !(self.xtc_threshold > 0.0 && self.xtc_threshold <= 1.0) {
            return Err(refusal("xtc_threshold", self.xtc_threshold, "above 0 and at most 1"));
        }
        Ok(())
    }

    /// Refuses invalid options of the DRY penalty.
    fn check_dry(&self) -> Result<()> {
        if !(0.0..=f32::MAX).contains(&self.dry_multiplier) {
            return Err(refusal("dry_multiplier", self.dry_multiplier, "a finite number, 0 for off or above"));
        }
        if !(1.0..=f32::MAX).contains(&self.dry_base) {
            return Err(refusal("dry_base", self.dry_base, "a finite number of at least 1"));
        }
        if self.dry_allowed_length == 0 {
            return Err(refusal("dry_allowed_length", 0, "at least 1"));
        }
        if self.dry_penalty_last_n == Some(0) {
            return Err(refusal("dry_penalty_last_n", 0, "at least 1"));
        }
        let breakers = self.dry_sequence_breakers.as_deref().unwrap_or_default();
        if breakers.iter().any(String::is_empty) {
            return Err(refusal("dry_sequence_breakers", "an empty string", "strings of at least one character"));
        }
        let longest = breakers.iter().map(String::len).max().unwrap_or(0);
        limits::at_most("num_dry_sequence_breakers", breakers.len(), limits::DRY_BREAKERS, "NVLLM_MAX_DRY_BREAKERS")?;
        let what = "the length of a string in dry_sequence_breakers";
        limits::at_most(what, longest, limits::DRY_BREAKER_BYTES, "NVLLM_MAX_DRY_BREAKER_BYTES")
    }

    /// Refuses invalid tokens to score, and options that cannot be combined with them.
    fn check_score_tokens(&self, vocab_size: usize) -> Result<()> {
        let tokens = &self.score_tokens;
        if tokens.is_empty() {
            return Ok(());
        }
        limits::at_most("num_score_tokens", tokens.len(), limits::SCORE_TOKENS, "NVLLM_MAX_SCORE_TOKENS")?;
        for (index, &token) in tokens.iter().enumerate() {
            if token as usize >= vocab_size {
                return Err(Error::TokenOutOfRange { token, index, vocab_size });
            }
            if tokens[..index].contains(&token) {
                let value = format!("a list with token {token} twice");
                return Err(refusal("score_tokens", value, "a list of distinct tokens"));
            }
        }
        let has_tools = self.tools.as_ref().is_some_and(|tools| tools.told().is_some());
        let others = [
            ("pooling", self.pooling != Pooling::None, "NVLLM_POOLING_NONE with score_tokens"),
            ("n", self.completions != 1, "1 with score_tokens"),
            ("beam_width", self.beams.is_some(), "0 with score_tokens"),
            ("num_prompt_logprobs", self.num_prompt_logprobs > 0, "0 with score_tokens"),
            ("structure", self.structure.is_some(), "NULL with score_tokens"),
            ("tools", has_tools, "NULL with score_tokens"),
        ];
        match others.into_iter().find(|(_, is_set, _)| *is_set) {
            Some((field, _, wanted)) => Err(refusal(field, "set", wanted)),
            None => Ok(()),
        }
    }

    /// Refuses invalid beams, and options that cannot be combined with beams.
    fn check_beams(&self) -> Result<()> {
        let Some(BeamParams { width, length_penalty, .. }) = self.beams else { return Ok(()) };
        if !(2..=MAX_LOGPROBS as u32).contains(&width) {
            return Err(refusal("beam_width", width, "from 2 to 32, or 0 for none"));
        }
        if !length_penalty.is_finite() {
            return Err(refusal("length_penalty", length_penalty, "a finite number"));
        }
        if self.pooling != Pooling::None {
            return Err(refusal("beam_width", width, "0 with pooling"));
        }
        if self.structure.is_some() {
            return Err(refusal("beam_width", width, "0 with a structure"));
        }
        if self.tools.as_ref().is_some_and(|tools| tools.told().is_some()) {
            return Err(refusal("beam_width", width, "0 with tools, unless tool_choice is none"));
        }
        if let Some(limit) = self.max_thinking_tokens {
            return Err(refusal("max_thinking_tokens", limit, "4294967295 with beam_width"));
        }
        if self.completions > width {
            return Err(refusal("n", self.completions, "at most beam_width"));
        }
        let (none, one) = ((0.0, "0 with beam_width"), (1.0, "1 with beam_width"));
        let penalties = [
            ("temperature", self.temperature, none),
            ("repetition_penalty", self.repetition_penalty, one),
            ("presence_penalty", self.presence_penalty, none),
            ("frequency_penalty", self.frequency_penalty, none),
            ("dry_multiplier", self.dry_multiplier, none),
        ];
        if let Some((field, value, (_, wanted))) = penalties.into_iter().find(|(_, value, (plain, _))| value != plain) {
            return Err(refusal(field, value, wanted));
        }
        let lists = [
            ("num_bias", self.logit_bias.len()),
            ("num_stop", self.stop_strings.len()),
            ("num_logprobs", self.num_logprobs as usize),
        ];
        match lists.into_iter().find(|(_, value)| *value > 0) {
            Some((field, value)) => Err(refusal(field, value, "0 with beam_width")),
            None => Ok(()),
        }
    }

    /// Refuses lists and texts that are too long.
    fn check_lists(&self) -> Result<()> {
        let longest_stop = self.stop_strings.iter().map(String::len).max().unwrap_or(0);
        let structure_bytes = self.structure.as_ref().map_or(0, |structure| structure.text().len());
        limits::at_most("num_stop", self.stop_strings.len(), limits::STOP_STRINGS, "NVLLM_MAX_STOP_STRINGS")?;
        let what = "the length of a string in stop";
        limits::at_most(what, longest_stop, limits::STOP_STRING_BYTES, "NVLLM_MAX_STOP_STRING_BYTES")?;
        limits::at_most("num_stop_tokens", self.stop_tokens.len(), limits::STOP_TOKENS, "NVLLM_MAX_STOP_TOKENS")?;
        limits::at_most("num_bias", self.logit_bias.len(), limits::BIASES, "NVLLM_MAX_BIASES")?;
        let what = "the length of structure";
        limits::at_most(what, structure_bytes, limits::STRUCTURE_BYTES, "NVLLM_MAX_STRUCTURE_BYTES")
    }

    fn check_bias(&self, vocab_size: usize) -> Result<()> {
        let mut tokens = HashSet::with_capacity(self.logit_bias.len());
        for (index, &(token, bias)) in self.logit_bias.iter().enumerate() {
            if token as usize >= vocab_size {
                return Err(Error::TokenOutOfRange { token, index, vocab_size });
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(refusal("bias_values", bias, "a finite number, or minus infinity to exclude the token"));
            }
            if !tokens.insert(token) {
                return Err(refusal(
                    "bias_tokens",
                    format!("a list with token {token} twice"),
                    "a list of distinct tokens",
                ));
            }
        }
        Ok(())
    }
}

fn refusal(field: &'static str, value: impl ToString, wanted: &'static str) -> Error {
    Error::Option { field, value: value.to_string(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_greedy_and_accepted() {
        let params = SamplingParams::default();
        assert_eq!((params.temperature, params.top_p, params.max_tokens), (0.0, 1.0, None));
        params.check(10).unwrap();
    }

    #[test]
    fn each_absurd_value_is_refused_by_its_name() {
        type Spoil = fn(&mut SamplingParams);
        const CASES: &[(&str, Spoil)] = &[
            ("max_tokens is 0, but must be at least 1", |p| p.max_tokens = Some(0)),
            ("min_tokens is 5, but must be at most max_tokens", |p| {
                (p.min_tokens, p.max_tokens) = (5, Some(4));
            }),
            ("temperature is NaN, but", |p| p.temperature = f32::NAN),
            ("temperature is -0.1, but", |p| p.temperature = -0.1),
            ("temperature is inf, but", |p| p.temperature = f32::INFINITY),
            ("top_p is 0, but must be above 0 and at most 1", |p| p.top_p = 0.0),
            ("top_p is 1.1, but", |p| p.top_p = 1.1),
            ("top_p is NaN, but", |p| p.top_p = f32::NAN),
            ("min_p is -0.5, but must be from 0 to 1", |p| p.min_p = -0.5),
            ("min_p is 2, but", |p| p.min_p = 2.0),
            ("min_p is NaN, but", |p| p.min_p = f32::NAN),
            ("n is 0, but must be from 1 to 1024", |p| p.completions = 0),
            ("n is 1025, but", |p| p.completions = COMPLETIONS_MAX + 1),
            ("token 10 at index 1 is beyond the vocabulary of 10", |p| p.stop_tokens = vec![9, 10]),
            ("repetition_penalty is 0, but must be a finite number above 0", |p| p.repetition_penalty = 0.0),
            ("repetition_penalty is -1, but", |p| p.repetition_penalty = -1.0),
            ("repetition_penalty is NaN, but", |p| p.repetition_penalty = f32::NAN),
            ("repetition_penalty is inf, but", |p| p.repetition_penalty = f32::INFINITY),
            ("presence_penalty is NaN, but must be a finite number", |p| p.presence_penalty = f32::NAN),
            ("frequency_penalty is -inf, but", |p| p.frequency_penalty = f32::NEG_INFINITY),
            ("token 10 at index 1 is beyond the vocabulary", |p| p.logit_bias = vec![(9, 1.0), (10, 1.0)]),
            ("bias_values is NaN, but must be a finite number, or minus infinity", |p| {
                p.logit_bias = vec![(1, f32::NAN)]
            }),
            ("bias_values is inf, but", |p| p.logit_bias = vec![(1, f32::INFINITY)]),
            ("bias_tokens is a list with token 3 twice, but", |p| p.logit_bias = vec![(3, 1.0), (4, 1.0), (3, 1.0)]),
            ("num_logprobs is 65, but must be at most 64", |p| p.num_logprobs = 65),
            ("num_prompt_logprobs is 4294967295, but", |p| p.num_prompt_logprobs = u32::MAX),
            ("num_stop is 129, but must be at most 128 (NVLLM_MAX_STOP_STRINGS)", |p| {
                p.stop_strings = vec!["x".into(); 129]
            }),
            ("the length of a string in stop is 4097, but must be at most 4096", |p| {
                p.stop_strings = vec!["x".repeat(4097)]
            }),
            ("num_stop_tokens is 1025, but must be at most 1024", |p| p.stop_tokens = vec![1; 1025]),
            ("num_bias is 16385, but must be at most 16384", |p| p.logit_bias = vec![(1, 0.0); 16385]),
            ("the length of structure is 262145, but must be at most 262144", |p| {
                p.structure = Some(Arc::new(Structure::Regex("x".repeat(262145))))
            }),
            ("top_n_sigma is NaN, but must be a finite number", |p| p.top_n_sigma = f32::NAN),
            ("top_n_sigma is inf, but", |p| p.top_n_sigma = f32::INFINITY),
            ("xtc_probability is -0.5, but must be from 0 to 1", |p| p.xtc_probability = -0.5),
            ("xtc_probability is NaN, but", |p| p.xtc_probability = f32::NAN),
            ("xtc_threshold is 0, but must be above 0 and at most 1", |p| p.xtc_threshold = 0.0),
            ("xtc_threshold is NaN, but", |p| p.xtc_threshold = f32::NAN),
            ("xtc_threshold is 1.5, but", |p| p.xtc_threshold = 1.5),
            ("dry_multiplier is -1, but must be a finite number, 0 for off or above", |p| p.dry_multiplier = -1.0),
            ("dry_multiplier is inf, but", |p| p.dry_multiplier = f32::INFINITY),
            ("dry_base is 0.5, but must be a finite number of at least 1", |p| p.dry_base = 0.5),
            ("dry_base is NaN, but", |p| p.dry_base = f32::NAN),
            ("dry_allowed_length is 0, but must be at least 1", |p| p.dry_allowed_length = 0),
            ("dry_penalty_last_n is 0, but must be at least 1", |p| p.dry_penalty_last_n = Some(0)),
            ("dry_sequence_breakers is an empty string, but", |p| p.dry_sequence_breakers = Some(vec![String::new()])),
            ("num_dry_sequence_breakers is 65, but must be at most 64 (NVLLM_MAX_DRY_BREAKERS)", |p| {
                p.dry_sequence_breakers = Some(vec!["x".into(); 65])
            }),
            ("the length of a string in dry_sequence_breakers is 129, but must be at most 128", |p| {
                p.dry_sequence_breakers = Some(vec!["x".repeat(129)])
            }),
            ("stop is an empty string, but", |p| p.stop_strings = vec!["a".into(), String::new()]),
        ];
        for (message, spoil) in CASES {
            let mut params = SamplingParams::default();
            spoil(&mut params);
            let error = params.check(10).expect_err(message).to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn values_at_the_border_are_accepted() {
        type Choose = fn(&mut SamplingParams);
        const CASES: &[(&str, Choose)] = &[
            ("max_tokens 1", |p| p.max_tokens = Some(1)),
            ("min_tokens = max_tokens", |p| (p.min_tokens, p.max_tokens) = (4, Some(4))),
            ("min_tokens alone", |p| p.min_tokens = 4),
            ("top_p 1e-6", |p| p.top_p = 1e-6),
            ("min_p 1", |p| p.min_p = 1.0),
            ("huge temperature", |p| p.temperature = f32::MAX),
            ("minus zero", |p| p.temperature = -0.0),
            ("top_k beyond the vocabulary", |p| p.top_k = u32::MAX),
            ("the last token stops", |p| p.stop_tokens = vec![9]),
            ("repetition is liked", |p| p.repetition_penalty = 1e-30),
            ("huge penalties", |p| (p.presence_penalty, p.frequency_penalty) = (f32::MAX, -f32::MAX)),
            ("a token that never comes", |p| p.logit_bias = vec![(9, f32::NEG_INFINITY), (0, 100.0)]),
            ("sigma below 0 is off", |p| p.top_n_sigma = -1.0),
            ("xtc in any case", |p| (p.xtc_probability, p.xtc_threshold) = (1.0, 1e-30)),
            ("huge dry", |p| (p.dry_multiplier, p.dry_base, p.dry_allowed_length) = (f32::MAX, f32::MAX, u32::MAX)),
            ("no breaker", |p| p.dry_sequence_breakers = Some(Vec::new())),
            ("more alternatives than tokens", |p| (p.num_logprobs, p.num_prompt_logprobs) = (64, 64)),
        ];
        for (name, choose) in CASES {
            let mut params = SamplingParams::default();
            choose(&mut params);
            assert!(params.check(10).is_ok(), "{name}");
        }
    }
}
