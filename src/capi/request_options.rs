//! The options of a request as the engine has them.
#![allow(unsafe_code, non_camel_case_types)]

use super::engine_options::switch;
use super::memory;
use super::refusal::Refusal;
use super::requests::{nvllm_early_stopping, nvllm_pooling, nvllm_request_options, nvllm_structure, nvllm_tool_choice};
use base::error::Error;
use base::limits;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::sampling_params::{Eos, Pinning, Pooling, SamplingParams, StopToken};
use std::sync::Arc;
use std::time::Duration;
use text::answer::{ParallelCalls, ToolChoice, ToolList, ToolSchemas, ToolUse};
use text::structure::Structure;
use text::tokenizer::SpecialTokens;

impl Default for nvllm_request_options {
    /// The library's defaults, which [`SamplingParams`] declares.
    fn default() -> nvllm_request_options {
        nvllm_request_options::of(&SamplingParams::default())
    }
}

impl nvllm_request_options {
    /// The options that ask for `params`. Lists and texts stay empty, because no default has any.
    ///
    /// It names every field of `params`, so that an option without its way back does not compile.
    pub(super) fn of(params: &SamplingParams) -> nvllm_request_options {
        let &SamplingParams {
            tag,
            max_tokens,
            min_tokens,
            temperature,
            top_p,
            min_p,
            top_k,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: _,
            num_logprobs,
            num_prompt_logprobs,
            seed,
            eos,
            stop_token,
            priority,
            max_wait,
            completions,
            pooling,
            embedding_dimensions,
            score_tokens: _,
            truncation,
            beams,
            cache_salt,
            pinning,
            stop_tokens: _,
            stop_strings: _,
            structure: _,
            tools: _,
            max_thinking_tokens,
            special_tokens,
            top_n_sigma,
            xtc_probability,
            xtc_threshold,
            dry_multiplier,
            dry_base,
            dry_allowed_length,
            dry_penalty_last_n,
            dry_sequence_breakers: _,
        } = params;
        let sampled = BeamParams { width: 0, length_penalty: 1.0, early_stopping: EarlyStopping::WhenUnlikely };
        let beams = beams.unwrap_or(sampled);
        nvllm_request_options {
            struct_size: size_of::<nvllm_request_options>(),
            tag,
            max_tokens: max_tokens.unwrap_or(u32::MAX),
            min_tokens,
            temperature,
            top_p,
            min_p,
            top_k,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            seed: seed.unwrap_or(0),
            ignore_eos: u32::from(eos == Eos::Ignored),
            priority,
            stop: std::ptr::null(),
            num_stop: 0,
            stop_tokens: std::ptr::null(),
            num_stop_tokens: 0,
            bias_tokens: std::ptr::null(),
            bias_values: std::ptr::null(),
            num_bias: 0,
            num_logprobs,
            n: completions,
            beam_width: beams.width,
            length_penalty: beams.length_penalty,
            include_stop: u32::from(stop_token == StopToken::Kept),
            max_wait_us: max_wait.map_or(0, |wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)),
            cache_salt,
            pin_prompt: u32::from(pinning == Pinning::Pinned),
            pooling: match pooling {
                Pooling::None => nvllm_pooling::NVLLM_POOLING_NONE,
                Pooling::Last => nvllm_pooling::NVLLM_POOLING_LAST,
                Pooling::Mean => nvllm_pooling::NVLLM_POOLING_MEAN,
                Pooling::First => nvllm_pooling::NVLLM_POOLING_CLS,
                Pooling::Auto => nvllm_pooling::NVLLM_POOLING_AUTO,
            } as u32,
            num_prompt_logprobs,
            early_stopping: match beams.early_stopping {
                EarlyStopping::WhenUnlikely => nvllm_early_stopping::NVLLM_EARLY_STOPPING_HEURISTIC,
                EarlyStopping::WhenFull => nvllm_early_stopping::NVLLM_EARLY_STOPPING_AT_ONCE,
                EarlyStopping::Never => nvllm_early_stopping::NVLLM_EARLY_STOPPING_NEVER,
            } as u32,
            structure: std::ptr::null(),
            structure_kind: nvllm_structure::NVLLM_STRUCTURE_NONE as i32,
            reserved: 0,
            tools: std::ptr::null(),
            tool_name: std::ptr::null(),
            tool_choice: nvllm_tool_choice::NVLLM_TOOL_CHOICE_AUTO as i32,
            parallel_tool_calls: 1,
            strict_tools: 1,
            keep_special_tokens: u32::from(special_tokens == SpecialTokens::Keep),
            max_thinking_tokens: max_thinking_tokens.unwrap_or(u32::MAX),
            reserved_too: 0,
            dry_sequence_breakers: std::ptr::null(),
            num_dry_sequence_breakers: 0,
            dry_multiplier,
            dry_base,
            dry_allowed_length,
            dry_penalty_last_n: dry_penalty_last_n.unwrap_or(u32::MAX),
            top_n_sigma,
            xtc_probability,
            xtc_threshold,
            reserved_last: 0,
            embedding_dimensions: embedding_dimensions.unwrap_or(0),
            reserved_of_dimensions: 0,
            score_tokens: std::ptr::null(),
            num_score_tokens: 0,
            truncate_prompt_tokens: truncation.unwrap_or(0),
            reserved_of_truncation: 0,
        }
    }

    /// The engine's view of these options.
    ///
    /// # Safety
    ///
    /// The arrays have the lengths that the options say.
    pub(super) unsafe fn params(&self) -> Result<SamplingParams, Refusal> {
        // What is too long is not copied.
        limits::at_most("num_stop", self.num_stop, limits::STOP_STRINGS, "NVLLM_MAX_STOP_STRINGS")?;
        limits::at_most("num_stop_tokens", self.num_stop_tokens, limits::STOP_TOKENS, "NVLLM_MAX_STOP_TOKENS")?;
        limits::at_most("num_bias", self.num_bias, limits::BIASES, "NVLLM_MAX_BIASES")?;
        let (field, len) = ("num_score_tokens", self.num_score_tokens);
        limits::at_most(field, len, limits::SCORE_TOKENS, "NVLLM_MAX_SCORE_TOKENS")?;
        // SAFETY: promised by the caller.
        let (stop_strings, stop_tokens, logit_bias) = unsafe {
            let stops = memory::slice("stop", self.stop, self.num_stop)?;
            let biased = memory::slice("bias_tokens", self.bias_tokens, self.num_bias)?;
            let biases = memory::slice("bias_values", self.bias_values, self.num_bias)?;
            let logit_bias = biased.iter().copied().zip(biases.iter().copied()).collect();
            let string = |&stop| {
                let text = memory::c_text("stop", stop)?;
                let what = "the length of a string in stop";
                limits::at_most(what, text.len(), limits::STOP_STRING_BYTES, "NVLLM_MAX_STOP_STRING_BYTES")?;
                Ok(text.to_owned())
            };
            let strings: Result<Vec<_>, Refusal> = stops.iter().map(string).collect();
            (strings?, memory::slice("stop_tokens", self.stop_tokens, self.num_stop_tokens)?, logit_bias)
        };
        // SAFETY: promised by the caller.
        let score_tokens = unsafe { memory::slice("score_tokens", self.score_tokens, self.num_score_tokens)? };
        // SAFETY: promised by the caller.
        let (structure, tools) = unsafe { (self.structure()?, self.tools()?) };
        // SAFETY: promised by the caller.
        let dry_sequence_breakers = unsafe { self.dry_sequence_breakers()? };
        let reserved = [
            ("reserved", self.reserved),
            ("reserved_too", self.reserved_too),
            ("reserved_last", self.reserved_last),
            ("reserved_of_dimensions", self.reserved_of_dimensions),
            ("reserved_of_truncation", self.reserved_of_truncation),
        ];
        for (field, value) in reserved {
            if value != 0 {
                return Err(Error::Option { field, value: value.to_string(), wanted: "0" }.into());
            }
        }
        Ok(SamplingParams {
            tag: self.tag,
            max_tokens: Some(self.max_tokens).filter(|&tokens| tokens != u32::MAX),
            min_tokens: self.min_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            min_p: self.min_p,
            top_k: self.top_k,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias,
            num_logprobs: self.num_logprobs,
            num_prompt_logprobs: self.num_prompt_logprobs,
            seed: Some(self.seed).filter(|&seed| seed != 0),
            eos: match switch("ignore_eos", self.ignore_eos)? {
                true => Eos::Ignored,
                false => Eos::Stops,
            },
            stop_token: match switch("include_stop", self.include_stop)? {
                true => StopToken::Kept,
                false => StopToken::Dropped,
            },
            priority: self.priority,
            completions: self.n,
            beams: self.beams()?,
            max_wait: Some(Duration::from_micros(self.max_wait_us)).filter(|time| !time.is_zero()),
            pooling: pooling(self.pooling)?,
            embedding_dimensions: (self.embedding_dimensions > 0).then_some(self.embedding_dimensions),
            score_tokens: score_tokens.to_vec(),
            truncation: (self.truncate_prompt_tokens > 0).then_some(self.truncate_prompt_tokens),
            cache_salt: self.cache_salt,
            pinning: match switch("pin_prompt", self.pin_prompt)? {
                true => Pinning::Pinned,
                false => Pinning::Evictable,
            },
            stop_tokens: stop_tokens.to_vec(),
            stop_strings,
            structure,
            tools: tools.map(Arc::new),
            max_thinking_tokens: Some(self.max_thinking_tokens).filter(|&tokens| tokens != u32::MAX),
            special_tokens: match switch("keep_special_tokens", self.keep_special_tokens)? {
                true => SpecialTokens::Keep,
                false => SpecialTokens::Skip,
            },
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: Some(self.dry_penalty_last_n).filter(|&tokens| tokens != u32::MAX),
            dry_sequence_breakers,
        })
    }

    /// The sequence breakers; `None` for the default ones.
    ///
    /// # Safety
    ///
    /// `dry_sequence_breakers` has the length that the options say.
    unsafe fn dry_sequence_breakers(&self) -> Result<Option<Vec<String>>, Refusal> {
        let (field, len) = ("dry_sequence_breakers", self.num_dry_sequence_breakers);
        limits::at_most("num_dry_sequence_breakers", len, limits::DRY_BREAKERS, "NVLLM_MAX_DRY_BREAKERS")?;
        if len == 0 {
            return Ok((!self.dry_sequence_breakers.is_null()).then(Vec::new));
        }
        // SAFETY: promised by the caller.
        let breakers = unsafe { memory::slice(field, self.dry_sequence_breakers, len)? };
        let string = |&breaker| {
            // SAFETY: promised by the caller.
            let text = unsafe { memory::c_text(field, breaker)? };
            let what = "the length of a string in dry_sequence_breakers";
            limits::at_most(what, text.len(), limits::DRY_BREAKER_BYTES, "NVLLM_MAX_DRY_BREAKER_BYTES")?;
            Ok(text.to_owned())
        };
        breakers.iter().map(string).collect::<Result<_, _>>().map(Some)
    }

    /// The part that is about beam search.
    fn beams(&self) -> Result<Option<BeamParams>, Error> {
        let refusal = |field, value: &dyn ToString, wanted| Error::Option { field, value: value.to_string(), wanted };
        const HEURISTIC: u32 = nvllm_early_stopping::NVLLM_EARLY_STOPPING_HEURISTIC as u32;
        const AT_ONCE: u32 = nvllm_early_stopping::NVLLM_EARLY_STOPPING_AT_ONCE as u32;
        const NEVER: u32 = nvllm_early_stopping::NVLLM_EARLY_STOPPING_NEVER as u32;
        let early_stopping = match self.early_stopping {
            HEURISTIC => EarlyStopping::WhenUnlikely,
            AT_ONCE => EarlyStopping::WhenFull,
            NEVER => EarlyStopping::Never,
            other => return Err(refusal("early_stopping", &other, "one of NVLLM_EARLY_STOPPING_*, 0 to 2")),
        };
        match self.beam_width {
            0 if self.length_penalty != 1.0 => {
                Err(refusal("length_penalty", &self.length_penalty, "1 without beam_width"))
            }
            0 if self.early_stopping != HEURISTIC => {
                Err(refusal("early_stopping", &self.early_stopping, "0 without beam_width"))
            }
            0 => Ok(None),
            width => Ok(Some(BeamParams { width, length_penalty: self.length_penalty, early_stopping })),
        }
    }

    /// The tools, and what the answer does with them.
    ///
    /// # Safety
    ///
    /// `tools` and `tool_name` are NULL or NUL-terminated.
    pub(super) unsafe fn tools(&self) -> Result<Option<ToolUse>, Refusal> {
        const AUTO: i32 = nvllm_tool_choice::NVLLM_TOOL_CHOICE_AUTO as i32;
        const NONE: i32 = nvllm_tool_choice::NVLLM_TOOL_CHOICE_NONE as i32;
        const REQUIRED: i32 = nvllm_tool_choice::NVLLM_TOOL_CHOICE_REQUIRED as i32;
        const NAMED: i32 = nvllm_tool_choice::NVLLM_TOOL_CHOICE_NAMED as i32;
        let refuse = |field, value: &dyn ToString, wanted| {
            Err(Refusal::from(Error::Option { field, value: value.to_string(), wanted }))
        };
        let parallel = match switch("parallel_tool_calls", self.parallel_tool_calls)? {
            true => ParallelCalls::Many,
            false => ParallelCalls::One,
        };
        let schemas = match switch("strict_tools", self.strict_tools)? {
            true => ToolSchemas::Held,
            false => ToolSchemas::Loose,
        };
        if self.tool_choice != NAMED && !self.tool_name.is_null() {
            return refuse("tool_name", &"a name", "NULL without NVLLM_TOOL_CHOICE_NAMED");
        }
        let choice = match self.tool_choice {
            AUTO => ToolChoice::Auto,
            NONE => ToolChoice::None,
            REQUIRED => ToolChoice::Required,
            // SAFETY: promised by the caller.
            NAMED => ToolChoice::Named(unsafe { memory::c_text("tool_name", self.tool_name)? }.to_owned()),
            other => return refuse("tool_choice", &other, "one of NVLLM_TOOL_CHOICE_*, 0 to 3"),
        };
        if self.tools.is_null() {
            return match choice {
                ToolChoice::Required | ToolChoice::Named(_) => {
                    refuse("tool_choice", &self.tool_choice, "0 or 1 where tools is NULL")
                }
                ToolChoice::Auto | ToolChoice::None => Ok(None),
            };
        }
        // SAFETY: promised by the caller.
        let list = ToolList::parse(unsafe { memory::c_text("tools", self.tools)? })?;
        Ok(Some(ToolUse { list, choice, parallel, schemas }))
    }

    /// What the answer has to be.
    ///
    /// # Safety
    ///
    /// `structure` is NULL or NUL-terminated.
    unsafe fn structure(&self) -> Result<Option<Arc<Structure>>, Refusal> {
        const NONE: i32 = nvllm_structure::NVLLM_STRUCTURE_NONE as i32;
        const JSON_SCHEMA: i32 = nvllm_structure::NVLLM_STRUCTURE_JSON_SCHEMA as i32;
        const REGEX: i32 = nvllm_structure::NVLLM_STRUCTURE_REGEX as i32;
        const LARK: i32 = nvllm_structure::NVLLM_STRUCTURE_LARK as i32;
        let kind = match self.structure_kind {
            // A text that nobody would read is rather a forgotten kind.
            NONE if self.structure.is_null() => return Ok(None),
            JSON_SCHEMA => Structure::JsonSchema,
            REGEX => Structure::Regex,
            LARK => Structure::Lark,
            other => {
                let wanted = "one of NVLLM_STRUCTURE_*, 0 to 3, and not 0 where structure is set";
                return Err(Error::Option { field: "structure_kind", value: other.to_string(), wanted }.into());
            }
        };
        // SAFETY: promised by the caller.
        let text = unsafe { memory::c_text("structure", self.structure)? };
        limits::at_most("the length of structure", text.len(), limits::STRUCTURE_BYTES, "NVLLM_MAX_STRUCTURE_BYTES")?;
        Ok(Some(Arc::new(kind(text.to_owned()))))
    }
}

fn pooling(value: u32) -> Result<Pooling, Error> {
    const NONE: u32 = nvllm_pooling::NVLLM_POOLING_NONE as u32;
    const LAST: u32 = nvllm_pooling::NVLLM_POOLING_LAST as u32;
    const MEAN: u32 = nvllm_pooling::NVLLM_POOLING_MEAN as u32;
    const CLS: u32 = nvllm_pooling::NVLLM_POOLING_CLS as u32;
    const AUTO: u32 = nvllm_pooling::NVLLM_POOLING_AUTO as u32;
    match value {
        NONE => Ok(Pooling::None),
        LAST => Ok(Pooling::Last),
        MEAN => Ok(Pooling::Mean),
        CLS => Ok(Pooling::First),
        AUTO => Ok(Pooling::Auto),
        _ => Err(Error::Option { field: "pooling", value: value.to_string(), wanted: "one of NVLLM_POOLING_*" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What C options mean to the engine, when they are those that ask for `params`.
    fn there_and_back(params: &SamplingParams) -> SamplingParams {
        // SAFETY: the options have no arrays and no texts.
        unsafe { nvllm_request_options::of(params).params() }.expect("good options")
    }

    #[test]
    fn the_defaults_of_the_struct_are_those_of_the_engine() {
        assert_eq!(there_and_back(&SamplingParams::default()), SamplingParams::default());
    }

    #[test]
    fn options_filled_from_a_model_mean_what_null_means() {
        let recommended = SamplingParams {
            temperature: 0.7,
            top_p: 0.8,
            min_p: 0.05,
            top_k: 20,
            repetition_penalty: 1.05,
            ..SamplingParams::default()
        };
        assert_eq!(there_and_back(&recommended), recommended);
    }

    #[test]
    fn no_option_is_lost_on_the_way_back() {
        let beams = BeamParams { width: 4, length_penalty: 2.0, early_stopping: EarlyStopping::Never };
        let every = SamplingParams {
            tag: 1,
            max_tokens: Some(2),
            min_tokens: 1,
            temperature: 0.5,
            top_p: 0.5,
            min_p: 0.5,
            top_k: 3,
            repetition_penalty: 1.5,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: Vec::new(),
            num_logprobs: 4,
            num_prompt_logprobs: 5,
            seed: Some(6),
            eos: Eos::Ignored,
            stop_token: StopToken::Kept,
            priority: -7,
            max_wait: Some(Duration::from_micros(8)),
            completions: 9,
            pooling: Pooling::Mean,
            embedding_dimensions: Some(14),
            score_tokens: Vec::new(),
            truncation: Some(15),
            beams: Some(beams),
            cache_salt: 10,
            pinning: Pinning::Pinned,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            structure: None,
            tools: None,
            max_thinking_tokens: Some(11),
            special_tokens: SpecialTokens::Keep,
            top_n_sigma: 1.5,
            xtc_probability: 0.5,
            xtc_threshold: 0.25,
            dry_multiplier: 0.75,
            dry_base: 2.0,
            dry_allowed_length: 12,
            dry_penalty_last_n: Some(13),
            dry_sequence_breakers: None,
        };
        assert_eq!(there_and_back(&every), every);
    }
}
