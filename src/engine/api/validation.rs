//! Can a request run on this model, and which tokens is its prompt?
//!
//! Everything here happens on the thread of the caller, before the request is queued and without a lock. Invariant: a request
//! that passes can run alone to its end, whatever else the engine has to do.

use crate::api::handle::TextFiles;
use crate::api::request::CheckedParams;
use crate::api::sampling_params::{Pinning, SamplingParams};
use crate::options::PrefixCache;
use crate::schedule::sequence::ThinkingLimit;
use crate::{EngineLimits, Prompt};
use base::TokenId;
use base::error::{Error, Result};
use base::limits;
use base::log::{Level, log};
use runner::ModelInfo;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use text::answer::{Format, Marks, ReasoningEnd, ToolUse};
use text::structure::{LateMasks, Opening, Structure, Structures};
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, Tokenizer};

/// Checks requests, tokenizes their prompts, and compiles their structures.
pub(crate) struct RequestValidator {
    info: ModelInfo,
    prefix_cache: PrefixCache,
    tokenizer: Option<Arc<Tokenizer>>,
    /// The BOS token, and the tokens that the tokenizer puts before a text, spelled out: a prompt that begins with either does not
    /// get them again. Chat templates write them.
    beginnings: Vec<String>,
    structures: Structures,
    /// The marks of the model, once a request has tools.
    marks: OnceLock<Marks>,
}

impl RequestValidator {
    /// A validator for the model of `info`, whose BOS and EOS tokens generation_config.json may replace.
    pub fn new(mut info: ModelInfo, limits: &EngineLimits, text: &TextFiles) -> RequestValidator {
        if let Some(eos_tokens) = &text.generation.eos_tokens {
            info.eos_tokens.clone_from(eos_tokens);
        }
        info.bos_token = text.generation.bos_token.or(info.bos_token);
        let vocab_size = info.vocab_size;
        info.eos_tokens.retain(|&token| {
            let known = (token as usize) < vocab_size;
            if !known {
                log(Level::Warn, format_args!("EOS token {token} is beyond the vocabulary of {vocab_size}: left out"));
            }
            known
        });
        let beginnings = text.tokenizer.as_deref().map_or(Vec::new(), |tokenizer| {
            let bos = info.bos_token.and_then(|bos| tokenizer.decode(&[bos], SpecialTokens::Keep).ok());
            bos.filter(|text| !text.is_empty()).into_iter().chain(tokenizer.added_before()).collect()
        });
        RequestValidator {
            structures: Structures::new(text.tokenizer.clone(), vocab_size),
            marks: OnceLock::new(),
            info,
            prefix_cache: limits.prefix_cache,
            tokenizer: text.tokenizer.clone(),
            beginnings,
        }
    }

    /// Facts about the model. `bos_token` and `eos_tokens` have generation_config.json applied.
    pub fn model_info(&self) -> &ModelInfo {
        &self.info
    }

    /// Whether there is a prefix cache.
    pub fn prefix_cache(&self) -> PrefixCache {
        self.prefix_cache
    }

    /// The tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`] when the model folder has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_deref().ok_or(Error::NoTokenizer)
    }

    /// The masks that come late; `None` before the first request with a structure.
    pub fn late_masks(&self) -> Option<&LateMasks> {
        self.structures.late_masks()
    }

    /// Refuses options that no prompt can make valid. Does not look at the structure that they may name.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], and [`Error::NoTokenizer`] for stop strings or sequence breakers without a tokenizer.
    pub fn check(&self, params: SamplingParams) -> Result<CheckedParams> {
        let options = CheckedParams::new(params, &self.info)?;
        let params = &options.params;
        if params.pinning == Pinning::Pinned && self.prefix_cache == PrefixCache::Off {
            let wanted = "0 where enable_prefix_cache is 0";
            return Err(Error::Option { field: "pin_prompt", value: "1".to_owned(), wanted });
        }
        let has_breakers = params.dry_sequence_breakers.as_ref().is_some_and(|breakers| !breakers.is_empty());
        if has_breakers
            || !params.stop_strings.is_empty()
            || params.tools.is_some()
            || params.max_thinking_tokens.is_some()
        {
            self.tokenizer()?;
        }
        Ok(options)
    }

    /// The tokens of a prompt, and where the second text of a pair begins among them for models that tell texts apart: at the end of other prompts.
    ///
    /// # Errors
    ///
    /// [`Error::PromptEmpty`] and [`Error::PromptTooLong`] for tokens; [`Error::NoTokenizer`], [`Error::Tokenizer`] and
    /// [`Error::PromptTooLong`] for text.
    pub fn tokenize(&self, prompt: Prompt, options: &CheckedParams) -> Result<(Vec<TokenId>, usize)> {
        let most = options.result.max_tokens.unwrap_or(usize::MAX);
        let (tokens, second) = match options.params.truncation {
            Some(tokens) => self.tokenize_cut(prompt, (tokens as usize).min(most).min(self.length_limit() - 1))?,
            None => self.tokenize_whole(prompt)?,
        };
        if tokens.len() > most {
            let option = "max_seq_length of the model's folder";
            return Err(Error::TextTooLong { tokens: tokens.len(), limit: most, option });
        }
        Ok((tokens, second))
    }

    fn tokenize_whole(&self, prompt: Prompt) -> Result<(Vec<TokenId>, usize)> {
        let tokens = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Tokens(tokens) => {
                self.check_length(tokens.len())?;
                tokens.to_vec()
            }
            Prompt::Pair(first, second) => return self.encode_pair(first, second),
        };
        let len = tokens.len();
        Ok((tokens, len))
    }

    /// As many tokens as fit.
    fn tokenize_cut(&self, prompt: Prompt, most: usize) -> Result<(Vec<TokenId>, usize)> {
        let (tokens, second) = match prompt {
            Prompt::Text(text) => self.tokenizer()?.encode_cut(text, None, self.added_to(text), most)?,
            Prompt::Pair(first, second) => {
                self.check_pairs()?;
                self.tokenizer()?.encode_cut(first, Some(second), AddedTokens::Add, most)?
            }
            Prompt::Tokens(tokens) => (tokens[..tokens.len().min(most)].to_vec(), usize::MAX),
        };
        let second = second.min(tokens.len());
        Ok((tokens, second))
    }

    /// The beginning of the structure that a request asks for, by itself or by its tools. `format` is how the model writes its answers.
    ///
    /// # Errors
    ///
    /// [`Error::Structure`], [`Error::Json`] and [`Error::Unsupported`] when it cannot be used, and that of `format`.
    pub fn matcher(
        &self,
        options: &CheckedParams,
        format: Result<&Format>,
        prompt: Prompt,
    ) -> Result<Option<Arc<Opening>>> {
        let CheckedParams { params, ending_tokens, .. } = options;
        if !params.generates() {
            return Ok(None);
        }
        let ending = if params.min_tokens == 0 { &ending_tokens[..] } else { &[] };
        if let Some(structure) = params.structure.as_deref() {
            return self.structures.opening(structure, ending).map(Some);
        }
        let Some(tools) = params.tools.as_deref().filter(|tools| tools.told().is_some()) else { return Ok(None) };
        let (format, tokenizer) = (format?, self.tokenizer()?);
        let begun = format.begun(&self.text_of(prompt)?);
        let marks = self.marks.get_or_init(|| Marks::new(tokenizer, self.info.vocab_size));
        let Some(grammar) = format.tool_grammar(tools, begun, marks, ending_tokens)? else { return Ok(None) };
        match self.structures.opening(&Structure::Lark(grammar), ending) {
            Ok(opening) => Ok(Some(opening)),
            Err(Error::Structure { reason, .. }) => Err(self.refusal_of_tools(tools, reason)),
            Err(other) => Err(other),
        }
    }

    /// The limit of the reasoning of a request; `None` where it has none and counts none.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the end of reasoning cannot be written, and that of `format`.
    pub fn thinking(
        &self,
        options: &CheckedParams,
        format: Result<&Format>,
        prompt: Prompt,
    ) -> Result<Option<Arc<ThinkingLimit>>> {
        let Some(tokens) = options.params.max_thinking_tokens else { return Ok(None) };
        if !options.params.generates() {
            return Ok(None);
        }
        let (format, tokenizer) = (format?, self.tokenizer()?);
        let unsupported = |why: &str| Error::Unsupported { what: format!("max_thinking_tokens: {why}") };
        let end = match format.reasoning_end() {
            ReasoningEnd::NoReasoning => return Ok(None),
            ReasoningEnd::Unknown => {
                return Err(unsupported(
                    "the model's response_template does not say how the end of reasoning is written",
                ));
            }
            ReasoningEnd::Text(end) => end,
        };
        let encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
        let end = tokenizer.encode(end, encoding)?;
        let is_spelled = tokenizer.decode(&end, SpecialTokens::Keep).is_ok_and(|text| text.trim_start() == text);
        if end.is_empty() || !is_spelled || end.iter().any(|&token| token as usize >= self.info.vocab_size) {
            return Err(unsupported("the model has no tokens for the end of reasoning"));
        }
        let prompt = self.text_of(prompt)?.into_owned();
        Ok(Some(Arc::new(ThinkingLimit { format: format.clone(), prompt, end, tokens })))
    }

    /// The text of a prompt, special tokens included.
    fn text_of<'p>(&self, prompt: Prompt<'p>) -> Result<Cow<'p, str>> {
        match prompt {
            Prompt::Text(text) | Prompt::Pair(text, _) => Ok(Cow::Borrowed(text)),
            Prompt::Tokens(tokens) => Ok(Cow::Owned(self.tokenizer()?.decode(tokens, SpecialTokens::Keep)?)),
        }
    }

    /// Names the tool whose schema is refused.
    fn refusal_of_tools(&self, tools: &ToolUse, whole: String) -> Error {
        let begun = Instant::now();
        let in_time = || begun.elapsed() < Duration::from_millis(limits::STRUCTURE_COMPILE_MS);
        let refused = tools.held_schemas().take_while(|_| in_time()).find_map(|(name, schema)| {
            match self.structures.compile(&Structure::JsonSchema(schema.to_string())) {
                Err(Error::Structure { reason, .. }) => Some(format!("{name}: {reason}")),
                _ => None,
            }
        });
        let reason = refused.unwrap_or(whole);
        let reason = format!("a schema cannot be held: {reason}: change it, or set strict_tools to 0");
        Error::Json { what: "tools", reason }
    }

    /// Tokens that a completion of `prompt` may reach, the prompt included.
    ///
    /// # Errors
    ///
    /// [`Error::PromptEmpty`], [`Error::PromptTooLong`], [`Error::TokenOutOfRange`], and [`Error::RequestTooLarge`] when the
    /// whole KV cache cannot hold it.
    pub fn token_limit(&self, prompt: &[TokenId], params: &SamplingParams) -> Result<usize> {
        let ModelInfo { vocab_size, limits, .. } = self.info;
        let tokens = prompt.len();
        self.check_length(tokens)?;
        if let Some(index) = prompt.iter().position(|&token| token as usize >= vocab_size) {
            return Err(Error::TokenOutOfRange { token: prompt[index], index, vocab_size });
        }
        let pool_tokens = self.info.pool_tokens();
        let (needed, limit) = match params.max_tokens {
            // Nothing is generated, but a sequence always has room for one more token.
            _ if !params.generates() => (tokens, tokens + 1),
            Some(max) => {
                let reach = limits.model_len.min(tokens.saturating_add(max as usize));
                (reach, reach)
            }
            None => (tokens + 1, limits.model_len.min(pool_tokens)),
        };
        if needed > pool_tokens {
            return Err(Error::RequestTooLarge { tokens: needed, pool_tokens });
        }
        Ok(limit)
    }

    /// Whether the tokens around a text are added to this one.
    fn added_to(&self, text: &str) -> AddedTokens {
        match self.beginnings.iter().any(|beginning| text.starts_with(beginning)) {
            true => AddedTokens::Omit,
            false => AddedTokens::Add,
        }
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        let encoding = Encoding { added: self.added_to(text), spelled: SpelledTokens::Parse };
        self.tokenizer()?.encode_within(text, encoding, self.length_limit()).map_err(|error| self.of_length(error))
    }

    fn check_pairs(&self) -> Result<()> {
        match self.info.pooled.scores {
            Some(_) => Ok(()),
            None => Err(Error::Unsupported { what: "the model gives no scores of pairs of texts".to_owned() }),
        }
    }

    fn encode_pair(&self, first: &str, second: &str) -> Result<(Vec<TokenId>, usize)> {
        self.check_pairs()?;
        let tokenizer = self.tokenizer()?;
        tokenizer.encode_pair_within(first, second, self.length_limit()).map_err(|error| self.of_length(error))
    }

    /// A prompt has fewer tokens than this.
    fn length_limit(&self) -> usize {
        let limits = &self.info.limits;
        // Nothing is generated behind a text that is computed whole.
        if limits.whole_rows { limits.model_len.min(limits.tokens) + 1 } else { limits.model_len }
    }

    /// Says of a text that is too long what it is too long for.
    fn of_length(&self, error: Error) -> Error {
        let limits = &self.info.limits;
        let (limit, option) = match limits.tokens < limits.model_len {
            true => (limits.tokens, "max_batched_tokens"),
            false => (limits.model_len, "max_model_len"),
        };
        match error {
            Error::PromptTooLong { tokens, .. } | Error::PromptFarTooLong { tokens, .. } if limits.whole_rows => {
                Error::TextTooLong { tokens, limit, option }
            }
            other => other,
        }
    }

    /// Refuses a prompt whose length the model cannot process.
    fn check_length(&self, tokens: usize) -> Result<()> {
        let limit = self.length_limit();
        match tokens {
            0 => Err(Error::PromptEmpty),
            _ if tokens >= limit => Err(self.of_length(Error::PromptTooLong { tokens, limit })),
            _ => Ok(()),
        }
    }
}
