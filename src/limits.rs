//! How much a request or a model folder may ask for, whatever the engine's options say.
//!
//! Each limit keeps the work and the memory of untrusted input within bounds. Those that a caller can reach stand in the
//! header, in `src/ffi/limits.rs`, which is checked against this table when it is compiled. `docs/security.md` has all of
//! them.

/// Completions of one request.
pub const COMPLETIONS: usize = 1024;
/// Completions of all requests that have not ended, and of all prompts of one `nvllm_generate`.
pub const QUEUED_COMPLETIONS: usize = 1 << 20;
/// Stop strings of one request.
pub const STOP_STRINGS: usize = 128;
/// Bytes of one stop string.
pub const STOP_STRING_BYTES: usize = 4096;
/// Stop tokens of one request.
pub const STOP_TOKENS: usize = 1024;
/// Logit biases of one request.
pub const BIASES: usize = 16384;
/// Bytes of one text: a prompt, or what is to be tokenized.
pub const TEXT_BYTES: usize = 16 << 20;
/// Bytes of a JSON schema, a regular expression or a grammar.
pub const STRUCTURE_BYTES: usize = 256 << 10;
/// Bytes of the messages of one conversation, and of its tools.
pub const MESSAGES_BYTES: usize = 16 << 20;

/// Values in the JSON text of the messages of one conversation, of its options, and of tokenizer_config.json.
pub const JSON_VALUES: usize = 1 << 18;
/// Bytes of the chat templates of a model folder, all together.
pub const TEMPLATE_BYTES: usize = 256 << 10;
/// Words and signs between `{{` and `}}`, or between `{%` and `%}`, of a chat template.
pub const TEMPLATE_TAG_TOKENS: usize = 2048;
/// `elif` tags of a chat template.
pub const TEMPLATE_ELIFS: usize = 512;
/// Bytes of a constant that a chat template computes from constants, such as `"=" * 80`.
pub const TEMPLATE_CONSTANT_BYTES: usize = 64 << 10;
/// How deep the lists and dicts of a chat template may be nested.
pub const TEMPLATE_VALUE_DEPTH: u32 = 256;
/// Bytes of the values that a rendering holds at one time, besides [`TEMPLATE_BYTES_PER_INPUT`].
pub const TEMPLATE_VALUE_BYTES: u64 = 24 << 20;
/// Bytes of values that a rendering may hold per byte of its messages and options.
pub const TEMPLATE_BYTES_PER_INPUT: u64 = 12;
/// Bytes that a rendering writes, captured text included, besides [`TEMPLATE_OUTPUT_PER_INPUT`].
pub const TEMPLATE_OUTPUT_BYTES: u64 = 8 << 20;
/// Bytes that a rendering may write per byte of its messages and options.
pub const TEMPLATE_OUTPUT_PER_INPUT: u64 = 16;
/// Work of a rendering, besides [`TEMPLATE_WORK_PER_INPUT`]: about a byte that is copied or compared. An operation counts 16.
pub const TEMPLATE_WORK: u64 = 64 << 20;
/// Work of a rendering per byte of its messages and options.
pub const TEMPLATE_WORK_PER_INPUT: u64 = 256;
/// Instructions of the template engine that a rendering may run.
pub const TEMPLATE_INSTRUCTIONS: u64 = 20_000_000;
/// Chat templates of a model folder.
pub const TEMPLATES: usize = 64;
/// Bytes of tokenizer_config.json, and of special_tokens_map.json.
pub const TOKENIZER_CONFIG_BYTES: u64 = 16 << 20;
/// Seconds that a rendering may take, besides one per MiB of its messages and options. Only a machine that is far too slow for
/// the other limits gets there.
pub const TEMPLATE_SECONDS: u64 = 5;
/// Bytes of the reason that a chat template gives when it refuses.
pub const TEMPLATE_REASON_BYTES: usize = 16 << 10;
