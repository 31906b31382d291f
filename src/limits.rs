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

/// Bytes of config.json, and of generation_config.json. Parsed, they take up to 16 times as many.
pub const CONFIG_FILE_BYTES: u64 = 1 << 20;
/// Bytes of tokenizer_config.json.
pub const TOKENIZER_CONFIG_FILE_BYTES: u64 = 4 << 20;
/// Bytes of model.safetensors.index.json.
pub const INDEX_FILE_BYTES: u64 = 16 << 20;
/// Bytes of tokenizer.json. The largest of published models has 33 MB.
pub const TOKENIZER_FILE_BYTES: u64 = 64 << 20;
/// Files that hold the weights of a model.
pub const WEIGHT_FILES: usize = 1024;
/// Bytes of the header of a file of weights, which names its tensors.
pub const WEIGHT_HEADER_BYTES: u64 = 8 << 20;
/// Tensors of a model.
pub const TENSORS: usize = 1 << 16;
/// Query heads of a model, and so key and value heads.
pub const HEADS: usize = 1 << 14;
/// Tokens of one sequence where max_model_len is not set and config.json says more.
pub const UNASKED_MODEL_LEN: usize = 1 << 20;

/// Tokens of a vocabulary, and what its ids are below. The largest of published models has 262,144.
pub const TOKENS: usize = 1 << 20;
/// Merges of a tokenizer. The largest of published models has 514,906.
pub const MERGES: usize = 1 << 21;
/// Values in tokenizer.json besides its vocabulary and its merges.
pub const TOKENIZER_VALUES: usize = 1 << 18;
/// Tokens that are added to a vocabulary by name.
pub const ADDED_TOKENS: usize = 1 << 14;
/// Bytes of the spelling of a token.
pub const TOKEN_BYTES: usize = 4096;
/// Bytes of the spelling of a token of a unigram model, whose trie is as deep as its tokens are long.
pub const UNIGRAM_TOKEN_BYTES: usize = 128;
/// Bytes of all spellings of a unigram model, each of which takes up to 350 in its trie.
pub const UNIGRAM_BYTES: usize = 2 << 20;
/// Steps of a normalizer, a pre-tokenizer, a post-processor and a decoder together.
pub const TOKENIZER_STEPS: usize = 64;
/// Tokens that the post-processor adds to a text.
pub const TEMPLATE_TOKENS: usize = 256;
/// Bytes of a regular expression in tokenizer.json.
pub const PATTERN_BYTES: usize = 4096;
/// How many bytes the normalizer and the pre-tokenizer may make of one.
pub const TEXT_GROWTH: usize = 64;
/// How many bytes the decoder may make of one.
pub const DECODER_GROWTH: usize = 4;
/// Bytes of all added tokens, as the normalizer makes them.
pub const ADDED_BYTES: usize = 8 << 20;
/// Bytes that the normalizer and the pre-tokenizer may make of one text.
pub const GROWN_TEXT_BYTES: usize = 192 << 20;
/// Bytes of a text for a tokenizer whose patterns may take time with the square of a text's length.
pub const SLOW_TEXT_BYTES: usize = 32 << 10;
/// Bytes that are tokenized in one piece. A tokenizer takes some hundred bytes of memory for each.
pub const TEXT_PIECE_BYTES: usize = 4 << 20;
