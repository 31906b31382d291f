//! Requests: prompts in.
//!
//! Scheduling: higher priority first, then first come, first served. No request overtakes an older one of the same priority,
//! even if it would fit where the older one does not. Each running sequence contributes one token per pass; the rest of
//! max_batched_tokens goes to prompts, which are split where necessary, so that a long prompt delays no other request. When
//! the KV cache is full, the youngest sequence of the lowest priority is preempted: it gives up its blocks and returns to
//! its place in the queue. Its completion stays the same. The oldest request of the highest priority is never preempted, so
//! every request completes in its turn. A lower priority may wait for as long as requests of a higher one arrive:
//! max_wait_us and max_queue bound that.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::{guard, guard_value};
use super::handle::visit;
use super::memory::{self, OutStruct, Versioned};
use super::refusal::Refusal;
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use engine::sampling_params::SamplingParams;
use engine::{EngineHandle, Prompt};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Kinds of structured output.
#[repr(C)]
pub enum nvllm_structure {
    /// None: the completion is unconstrained.
    NVLLM_STRUCTURE_NONE = 0,
    /// A JSON schema, which the completion satisfies. {} accepts any JSON.
    NVLLM_STRUCTURE_JSON_SCHEMA = 1,
    /// A regular expression in the syntax of Rust, which matches the whole completion.
    NVLLM_STRUCTURE_REGEX = 2,
    /// A context-free grammar in llguidance's dialect of Lark. Its first rule is named start.
    NVLLM_STRUCTURE_LARK = 3,
}

/// Options of a request. nvllm_request_options_init sets greedy decoding without limits; nvllm_default_options sets what the model
/// recommends.
///
/// Where a function takes options, NULL means what nvllm_default_options fills in. To change one field of that, call
/// nvllm_default_options first: with nvllm_request_options_init, the change would come with greedy decoding.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_request_options {
    /// sizeof(nvllm_request_options), set by nvllm_request_options_init.
    pub struct_size: usize,
    /// Returned in every output: an index, a pointer, a handle. Default 0.
    pub tag: u64,
    /// Maximum number of tokens to generate, at least 1. Default UINT32_MAX: limited by max_model_len and the KV cache only.
    pub max_tokens: u32,
    /// Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default 0.
    pub min_tokens: u32,
    /// Sampling temperature. Default 0: always the most likely token. Greater values increase randomness.
    pub temperature: f32,
    /// Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0 and at most 1.
    /// Default 1: all tokens.
    pub top_p: f32,
    /// Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1. Default 0: drop
    /// none.
    pub min_p: f32,
    /// Sample from this many of the most likely tokens. Default 0: all tokens.
    pub top_k: u32,
    /// Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the
    /// completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in transformers.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of each token that occurs in the completion. Any finite number. Default 0. As in the OpenAI
    /// API.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once per occurrence in the completion. Any finite number. Default 0. As in the
    /// OpenAI API.
    pub frequency_penalty: f32,
    /// Seed of the request's own random stream: the same seed, prompt and options give the same completion. Default 0:
    /// derived from the engine's seed and the request's id.
    pub seed: u64,
    /// 0 or 1: whether EOS tokens are treated as ordinary tokens. Default 0.
    pub ignore_eos: u32,
    /// Requests with a higher priority run first. Default 0.
    pub priority: i32,
    /// Stop strings, NUL-terminated UTF-8. The completion ends when its text contains one; the text ends before the first
    /// one to be complete, even if that is inside a token. The tokens that spell the string stay in the output. Needs a
    /// tokenizer.
    pub stop: *const *const c_char,
    /// Length of `stop`, at most NVLLM_MAX_STOP_STRINGS. Default 0. Each string has at most NVLLM_MAX_STOP_STRING_BYTES.
    pub num_stop: usize,
    /// Tokens that end the completion, in addition to EOS.
    pub stop_tokens: *const u32,
    /// Length of `stop_tokens`, at most NVLLM_MAX_STOP_TOKENS. Default 0.
    pub num_stop_tokens: usize,
    /// Logit bias: bias_values[i] is added to the logit of bias_tokens[i], after the penalties. Each token occurs once.
    pub bias_tokens: *const u32,
    /// As many values as bias_tokens: finite, or minus infinity to exclude a token.
    pub bias_values: *const f32,
    /// Length of `bias_tokens` and `bias_values`, at most NVLLM_MAX_BIASES. Default 0.
    pub num_bias: usize,
    /// If not 0, outputs contain the log-probability of each token, and those of this many most likely tokens, at most 64.
    /// They are the model's own, before penalties, biases, temperature and filters. Default 0.
    pub num_logprobs: u32,
    /// Number of completions of this prompt, from 1 to NVLLM_MAX_COMPLETIONS. Default 1. They share the KV blocks of the
    /// prompt, which is computed once. Each has its own outputs, which differ by index. Completion i samples as a request
    /// with seed + i does.
    pub n: u32,
    /// Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as completions 0 to n-1,
    /// best first, all at the end. As num_beams in transformers. At most 32, and at most 64 / (1 + number of EOS tokens).
    /// Cannot be combined with temperature, penalties, biases, stop strings or num_logprobs.
    pub beam_width: u32,
    /// Beam search: results are ranked by the sum of their log-probabilities divided by their length to the power of this
    /// value. More than 0 favours long results. Any finite number. Default 1.
    pub length_penalty: f32,
    /// 0 or 1: whether the output includes the token that stopped the completion, or the stop string in its text. Default 0.
    pub include_stop: u32,
    /// Time in microseconds that the request may wait until it first runs. The first step after that ends it with
    /// NVLLM_FINISH_EXPIRED. Default 0: no limit.
    pub max_wait_us: u64,
    /// Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts from timing.
    /// Default 0, which is a salt like any other.
    pub cache_salt: u64,
    /// 0 or 1: whether the full KV blocks of the prompt stay in the prefix cache after the request has ended, until
    /// nvllm_release_prefix. Default 0. Pinned blocks may take at most the KV cache minus what one sequence of max_model_len
    /// tokens needs, so that no request waits forever; beyond that the request is refused with NVLLM_ERR_OUT_OF_MEMORY.
    pub pin_prompt: u32,
    /// NVLLM_POOLING_*: how the prompt becomes an embedding. Default NVLLM_POOLING_NONE. With any other value the request
    /// generates nothing, and its only output has the embedding and NVLLM_FINISH_STOP; n must be 1, beam_width must be 0, and
    /// options of generation are ignored.
    pub pooling: u32,
    /// As num_logprobs, for the prompt. The output with the first token contains them, that of completion 0 if n is more
    /// than 1. The whole prompt is then computed without the prefix cache, with at most max_num_seqs + 64 of its tokens per pass.
    /// Default 0.
    pub num_prompt_logprobs: u32,
    /// NVLLM_EARLY_STOPPING_*: when a beam search ends once it has as many results as beams. Default
    /// NVLLM_EARLY_STOPPING_HEURISTIC.
    pub early_stopping: u32,
    /// The schema, expression or grammar that constrains the completion, of the kind structure_kind, NUL-terminated UTF-8 of
    /// at most NVLLM_MAX_STRUCTURE_BYTES. Default NULL. If it is refused, the message says why. Compiled structures are
    /// cached.
    pub structure: *const c_char,
    /// NVLLM_STRUCTURE_*: what `structure` is. Default NVLLM_STRUCTURE_NONE. The other options apply to the tokens that the
    /// structure allows. The structure may end the completion before min_tokens if nothing can follow; stop strings, stop tokens and
    /// max_tokens may end it before the structure is complete. A completion that cannot continue ends with
    /// NVLLM_FINISH_ERROR. Needs a tokenizer.
    pub structure_kind: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Tools that the model may call: a JSON array of {"type": "function", "function": {"name", "description", "parameters"}}, as in the
    /// OpenAI API, or of the inner objects, NUL-terminated UTF-8 of at most NVLLM_MAX_MESSAGES_BYTES. Default NULL. Where messages are
    /// rendered with these options, as by nvllm_add_chat, the chat template gets them as "tools", unless its options have "tools". To
    /// read the calls, set keep_special_tokens and use a nvllm_answer_parser. Needs a tokenizer.
    pub tools: *const c_char,
    /// The name of the tool that is called with NVLLM_TOOL_CHOICE_NAMED, NUL-terminated UTF-8. Default NULL.
    pub tool_name: *const c_char,
    /// NVLLM_TOOL_CHOICE_*: which of tools the completion calls. Default NVLLM_TOOL_CHOICE_AUTO.
    pub tool_choice: i32,
    /// 0 or 1: whether the completion may have more than one call. Default 1.
    pub parallel_tool_calls: u32,
    /// 0 or 1: whether the arguments of a call follow the schema of its tool; with 0 they are any JSON object. A tool with a "strict" of
    /// its own decides for itself. Default 1.
    pub strict_tools: u32,
    /// 0 or 1: whether the text of outputs has special tokens, spelled out. A nvllm_answer_parser needs them. Default 0.
    pub keep_special_tokens: u32,
    /// Number of tokens of reasoning after which its end marker is forced: 0 ends it at once. Default UINT32_MAX: no limit, and
    /// reasoning_tokens of outputs is 0. Tokens of the markers do not count. A model whose answers have no reasoning is not limited. Cannot
    /// be combined with structure_kind or beam_width. Needs a tokenizer.
    pub max_thinking_tokens: u32,
    /// Must be 0.
    pub reserved_too: u32,
    /// DRY: strings across which no repetition extends, NUL-terminated UTF-8. Default NULL: newline, colon, quotation mark and asterisk, as in
    /// llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or with one that does not decode token by token,
    /// the default has no effect.
    pub dry_sequence_breakers: *const *const c_char,
    /// Length of `dry_sequence_breakers`, at most NVLLM_MAX_DRY_BREAKERS. Default 0. Each string has at most NVLLM_MAX_DRY_BREAKER_BYTES.
    pub num_dry_sequence_breakers: usize,
    /// DRY, a penalty of repetitions. If the last n tokens occurred before, dry_multiplier * dry_base^(n - dry_allowed_length) is subtracted from the
    /// logit of the token that followed them there. The greatest such n counts, if it is at least dry_allowed_length. A finite number, not negative.
    /// Default 0: off. Applies after the other penalties and the biases, before temperature and filters. As in llama.cpp; the formula is that of
    /// github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass is scheduled, as one with a
    /// structure does. Cannot be combined with beam_width.
    pub dry_multiplier: f32,
    /// DRY: the base, a finite number of at least 1. Default 1.75.
    pub dry_base: f32,
    /// DRY: the length from which on a repetition is penalized, at least 1. Default 2.
    pub dry_allowed_length: u32,
    /// DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default UINT32_MAX: all.
    pub dry_penalty_last_n: u32,
    /// Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Any finite number. Default 0: off, as
    /// is less. The deviation is that of all logits that are not excluded, after penalties and biases; the temperature does not change what is
    /// kept. Distances of more than 512 from the greatest logit count as 512. The filters apply in this order: top_n_sigma, top_k, top_p, min_p,
    /// XTC. As in llama.cpp; the formula is that of arxiv.org/abs/2411.07641.
    pub top_n_sigma: f32,
    /// XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All tokens with a probability of at least
    /// xtc_threshold are then dropped, except the least likely of them and those that are as likely. Default 0: never. Drawn from the seed and the position
    /// of the token. Probabilities are those that temperature and other filters leave; llama.cpp applies the temperature later. No effect at
    /// temperature 0. The rule is that of github.com/oobabooga/text-generation-webui/pull/6335.
    pub xtc_probability: f32,
    /// XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More than 0.5 is off, because no two tokens reach it.
    pub xtc_threshold: f32,
    /// Must be 0.
    pub reserved_last: u32,
    /// The number of leading values of the embedding that are returned, from 1 to all of them, normalized again where the model normalizes its embeddings: for models
    /// that were trained for it (Matryoshka). Default 0: all.
    pub embedding_dimensions: u32,
    /// Must be 0.
    pub reserved_of_dimensions: u32,
    /// Tokens whose probabilities after the prompt are asked for, each once: the request generates nothing. scores of its output has
    /// their probabilities among these tokens alone, which add up to 1, and cumulative_logprob the logarithm of their sum among all tokens. So a model that
    /// answers yes or no ranks texts: see nvllm_score. Default NULL.
    pub score_tokens: *const u32,
    /// Length of `score_tokens`, at most NVLLM_MAX_SCORE_TOKENS. Default 0.
    pub num_score_tokens: usize,
    /// Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay, and of a pair the longer text is cut first.
    /// UINT32_MAX: to the most that the model takes, with NVLLM_POOLING_AUTO at most to max_seq_length of its folder. For requests that generate nothing. Default 0: no
    /// prompt is cut.
    pub truncate_prompt_tokens: u32,
    /// Must be 0.
    pub reserved_of_truncation: u32,
}

/// Which tools a completion calls.
#[repr(C)]
pub enum nvllm_tool_choice {
    /// The model decides.
    NVLLM_TOOL_CHOICE_AUTO = 0,
    /// None. The chat template gets no tools.
    NVLLM_TOOL_CHOICE_NONE = 1,
    /// At least one.
    NVLLM_TOOL_CHOICE_REQUIRED = 2,
    /// The one that tool_name names.
    NVLLM_TOOL_CHOICE_NAMED = 3,
}

/// How the final hidden states of a prompt, after the model's last norm, become an embedding. A classifier takes NVLLM_POOLING_AUTO alone.
#[repr(C)]
pub enum nvllm_pooling {
    /// No embedding: the request generates.
    NVLLM_POOLING_NONE = 0,
    /// The hidden state of the last token.
    NVLLM_POOLING_LAST = 1,
    /// The mean of the hidden states of all tokens. Such a request does not use the prefix cache, which holds no hidden
    /// states.
    NVLLM_POOLING_MEAN = 2,
    /// The hidden state of the first token. Only for encoders.
    NVLLM_POOLING_CLS = 3,
    /// As the model's folder says, for sentence-transformers or in the config of a classifier: one of those above, then the layers and the normalization that
    /// the folder names. A classifier gives scores instead of an embedding. Refused where the folder says nothing.
    NVLLM_POOLING_AUTO = 4,
}

/// When a beam search ends once it has as many results as beams.
#[repr(C)]
pub enum nvllm_early_stopping {
    /// When the best beam, at its current length, cannot rank above the worst result. As in transformers with False.
    NVLLM_EARLY_STOPPING_HEURISTIC = 0,
    /// Immediately. As in transformers with True.
    NVLLM_EARLY_STOPPING_AT_ONCE = 1,
    /// When no beam can rank above the worst result at any length. As in transformers with "never".
    NVLLM_EARLY_STOPPING_NEVER = 2,
}

/// [any] Sets the defaults, which are greedy decoding: nvllm_request_options_init(&options, sizeof options). Writes at most struct_size
/// bytes. For the sampling that the model recommends, call nvllm_default_options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_request_options_init(options: *mut nvllm_request_options, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_request_options_init", (), || unsafe {
        memory::init(options, struct_size, nvllm_request_options::default());
    });
}

/// [any] Fills *options with what NULL options mean: the defaults of nvllm_request_options_init with the sampling that the
/// model's generation_config.json recommends. A caller can then change one field and keep the rest.
///
/// Set options->struct_size first, to sizeof or by nvllm_request_options_init; at most that many bytes are written. A
/// request with the unchanged options is the same as one with NULL. The file recommends temperature, top_p, top_k and min_p
/// if its do_sample is true, and repetition_penalty in any case. Without the file, the result is that of
/// nvllm_request_options_init.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_default_options(
    engine: *const nvllm_engine,
    options: *mut nvllm_request_options,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_default_options", error, || {
        let options = NonNull::new(options).ok_or(Refusal::Null("options"))?;
        // SAFETY: the header asks for NULL or a live engine, and for struct_size bytes; NULL was refused above.
        let (engine, options) = unsafe { (visit(engine)?, OutStruct::new(options)?) };
        options.write(nvllm_request_options::of(&engine.handle().default_params()));
        Ok(NVLLM_OK)
    })
}

/// [any] Queues a prompt of prompt_len bytes. Special tokens that are spelled out in the text are parsed, as a chat template
/// requires. The tokens that the model's tokenizer adds to a text are added, unless the prompt begins with them. options may
/// be NULL, and so may request_id, which receives the id. Ids start at 1 and are never reused.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_add_request(
    engine: *mut nvllm_engine,
    prompt: *const c_char,
    prompt_len: usize,
    options: *const nvllm_request_options,
    request_id: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_add_request", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for prompt_len bytes.
        let (engine, prompt) = unsafe { (visit(engine)?, memory::text("prompt", prompt, prompt_len)?) };
        // SAFETY: the header asks for NULL or options of struct_size bytes, and for NULL or a place for the id.
        unsafe { add(engine.handle(), Prompt::Text(prompt), options, request_id) }
    })
}

/// [any] Queues a prompt of tokens, which are used unchanged.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_add_request_tokens(
    engine: *mut nvllm_engine,
    tokens: *const u32,
    num_tokens: usize,
    options: *const nvllm_request_options,
    request_id: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_add_request_tokens", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for num_tokens tokens.
        let (engine, tokens) = unsafe { (visit(engine)?, memory::slice("tokens", tokens, num_tokens)?) };
        // SAFETY: the header asks for NULL or options of struct_size bytes, and for NULL or a place for the id.
        unsafe { add(engine.handle(), Prompt::Tokens(tokens), options, request_id) }
    })
}

/// [any] Cancels a request with all its completions: their last outputs have NVLLM_FINISH_CANCELLED. NVLLM_ERR_NOT_FOUND if
/// the request has ended or never existed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_cancel(engine: *mut nvllm_engine, request_id: u64) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_cancel", None, || unsafe { cancel(engine, request_id) })
}

/// [any] As nvllm_cancel, and says in *error why it failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_cancel_with_error(
    engine: *mut nvllm_engine,
    request_id: u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_cancel_with_error", error, || unsafe { cancel(engine, request_id) })
}

/// Cancels a request.
///
/// # Safety
///
/// `engine` is NULL or live.
unsafe fn cancel(engine: *mut nvllm_engine, request_id: u64) -> Result<nvllm_status_code, Refusal> {
    // SAFETY: promised by the caller.
    let engine = unsafe { visit(engine)? };
    engine.handle().cancel(request_id)?;
    Ok(NVLLM_OK)
}

/// Queues a request and stores its id.
///
/// # Safety
///
/// `options` is NULL or has struct_size bytes; `request_id` is NULL or may be written.
pub(super) unsafe fn add(
    handle: &EngineHandle,
    prompt: Prompt,
    options: *const nvllm_request_options,
    request_id: *mut u64,
) -> Result<super::status::nvllm_status_code, Refusal> {
    if !request_id.is_aligned() {
        return Err(Refusal::Misaligned("request_id", align_of::<u64>()));
    }
    // SAFETY: promised by the caller.
    let params = unsafe { sampling_params(handle, options)? };
    let id = handle.add_request(prompt, params)?;
    if !request_id.is_null() {
        // SAFETY: not NULL and aligned by the checks above; writable by the caller's promise.
        unsafe { request_id.write(id) };
    }
    Ok(NVLLM_OK)
}

/// The engine's view of a caller's options; the model's own where there are none.
///
/// # Safety
///
/// `options` is NULL or has struct_size bytes, and its arrays have the lengths it says.
pub(super) unsafe fn sampling_params(
    handle: &EngineHandle,
    options: *const nvllm_request_options,
) -> Result<SamplingParams, Refusal> {
    let Some(options) = NonNull::new(options.cast_mut()) else { return Ok(handle.default_params()) };
    // SAFETY: promised by the caller; not NULL by the check above.
    unsafe { memory::read(options, nvllm_request_options::default())?.params() }
}

/// The tag of a caller's options and how many results they ask for, whatever else is wrong with them.
///
/// # Safety
///
/// `options` is NULL or has struct_size bytes.
pub(super) unsafe fn tag_and_results(options: *const nvllm_request_options) -> (u64, usize) {
    let Some(options) = NonNull::new(options.cast_mut()) else { return (0, 1) };
    // SAFETY: promised by the caller; not NULL by the check above.
    let options = unsafe { memory::read(options, nvllm_request_options::default()) };
    let (tag, completions) = options.map_or((0, 1), |options| (options.tag, options.n));
    (tag, SamplingParams { completions, ..SamplingParams::default() }.results())
}

// SAFETY: repr(C), struct_size first; integers, floats and pointers.
unsafe impl Versioned for nvllm_request_options {
    const NAME: &'static str = "nvllm_request_options";
}
