//! How much a request or a model folder may ask for, whatever the engine's options say, and how much the options may ask for.
//!
//! Each limit bounds the work and the memory of untrusted input. Those that a caller can reach are in the header, in
//! `src/capi/limits.rs`, which is checked against this table when it is compiled. `docs/security.md` lists all of them.

use crate::error::{Error, Result};

/// Completions per request.
pub const COMPLETIONS: usize = 1024;
/// Completions of all requests that have not ended, and of all prompts of one `nvllm_generate`.
pub const QUEUED_COMPLETIONS: usize = 1 << 20;
/// Stop strings per request.
pub const STOP_STRINGS: usize = 128;
/// Bytes per stop string.
pub const STOP_STRING_BYTES: usize = 4096;
/// Stop tokens per request.
pub const STOP_TOKENS: usize = 1024;
/// Logit biases per request.
pub const BIASES: usize = 16384;
/// Tokens per request whose probabilities are its scores.
pub const SCORE_TOKENS: usize = 64;
/// Sequence breakers of the DRY penalty per request.
pub const DRY_BREAKERS: usize = 64;
/// Bytes per sequence breaker.
pub const DRY_BREAKER_BYTES: usize = 128;
/// Bytes per text: a prompt, or a text to tokenize.
pub const TEXT_BYTES: usize = 16 << 20;
/// Bytes of a JSON schema, a regular expression or a grammar.
pub const STRUCTURE_BYTES: usize = 256 << 10;
/// Milliseconds that a thread waits for a structure to be compiled, the wait for its turn included.
pub const STRUCTURE_COMPILE_MS: u64 = 2000;
/// Milliseconds that finding the next tokens of one sequence may take, and a fiftieth of it once another sequence with the same
/// structure took longer. Each token that is consumed again adds one.
pub const MASK_MS: u64 = 500;
/// Structures that are compiled at once per engine. One that was abandoned counts until its compilation has ended.
pub const STRUCTURES_COMPILING: usize = 2;
/// Nested levels of a JSON schema: those of its text and of everything that a `$ref` refers to. Compiling recurses.
pub const SCHEMA_LEVELS: usize = 4096;
/// Different names of properties, required ones included, in a JSON schema. The work grows with their square.
pub const SCHEMA_NAMES: usize = 4096;
/// Values inside `const` and `enum` of a JSON schema, without those of `enum` that are strings. The work grows with their square.
pub const SCHEMA_CONSTANTS: usize = 8192;
/// Pairs of a pattern and another pattern or name of `patternProperties` in one object: each pair is compared.
pub const SCHEMA_PATTERN_PAIRS: usize = 16384;
/// Patterns and formats that one string of a JSON schema has to match at the same time. The work doubles with each.
pub const SCHEMA_PATTERNS_TOGETHER: u64 = 12;
/// Bytes of a regular expression, alone or in a schema or a grammar.
pub const REGEX_BYTES: usize = 64 << 10;
/// Parts of a regular expression; four letters count as one. All expressions of a schema or a grammar together may have four
/// times as many. The work grows with their square.
pub const REGEX_PARTS: u64 = 4096;
/// Parts of a regular expression once its repetitions are expanded, where each letter is one. An answer may have to count them.
pub const REGEX_WRITTEN_OUT: u64 = 20_000;
/// `multipleOf` of a number of a JSON schema without its factors 2 and 5: the least common multiple if several apply. The lexer
/// has a state per remainder.
pub const SCHEMA_MULTIPLE: u64 = 100_000;
/// Subschemas of a JSON schema after each `$ref` in `allOf`, or beside other keywords, was replaced by what it refers to.
pub const SCHEMA_EXPANDED: u64 = 131_072;
/// Rules and terminals of a Lark grammar. Compiling recurses along chains of them.
pub const GRAMMAR_RULES: usize = 4096;
/// Names in a terminal of a Lark grammar once each is replaced by its definition, as the compiler does.
pub const GRAMMAR_EXPANDED: u64 = 65_536;
/// Terms that `&` joins in one terminal of a Lark grammar and in the terminals that it refers to. The work doubles with each.
pub const GRAMMAR_TERMS_TOGETHER: u64 = 12;
/// Expressions that the first transitions of a structure's lexer may create: about 100 ns and 6 to 50 bytes each.
pub const STRUCTURE_START_FUEL: u64 = 1_500_000;
/// Estimated bytes of the tables of one compiled structure.
pub const STRUCTURE_TABLE_BYTES: usize = 32 << 20;
/// Estimated bytes of the compiled structures that an engine keeps for later requests.
pub const STRUCTURES_KEPT_BYTES: usize = 64 << 20;
/// States that the lexer of one answer may reach, at one or two kilobytes each.
pub const ANSWER_LEXER_STATES: usize = 10_000;
/// Expressions that the lexer of one answer may create, at about 6 bytes each.
pub const ANSWER_FUEL: u64 = 2_000_000;
/// Messages of one conversation that is given as an array.
pub const MESSAGES: usize = 1 << 15;
/// Bytes of the messages of one conversation, and of its tools.
pub const MESSAGES_BYTES: usize = 16 << 20;

/// Groups in `quantization_config`.
pub const QUANTIZATION_GROUPS: usize = 64;
/// Patterns among the targets of one group of `quantization_config`.
pub const QUANTIZATION_PATTERNS: usize = 64;
/// Bytes of such a pattern.
pub const QUANTIZATION_PATTERN_BYTES: usize = 4096;
/// Parts of all patterns of `quantization_config`, equal ones counted once and with their repetitions expanded. A range of characters
/// of a class is a part. A pattern of published models has less than 200.
pub const QUANTIZATION_PROGRAM: usize = 1 << 16;
/// Steps of all matches of the names of modules with patterns of `quantization_config`, about 10 ns each.
pub const QUANTIZATION_STEPS: u64 = 1 << 25;

/// Files beside the weights of a folder that `nvllm_quantize_folder` reads: it copies them.
pub const COPIED_FILES: usize = 1024;
/// Bytes of these files.
pub const COPIED_BYTES: u64 = 4 << 30;

/// Values in the JSON text of the messages of one conversation, of its options, of tokenizer_config.json, and of the arguments of a
/// tool call.
pub const JSON_VALUES: usize = 1 << 18;
/// Bytes of the chat templates of a model folder, all together.
pub const TEMPLATE_BYTES: usize = 256 << 10;
/// Identifiers, literals and operators between `{{` and `}}`, or between `{%` and `%}`, of a chat template.
pub const TEMPLATE_TAG_TOKENS: usize = 2048;
/// `elif` tags of a chat template.
pub const TEMPLATE_ELIFS: usize = 512;
/// Bytes of a constant that a chat template computes from constants, such as `"=" * 80`.
pub const TEMPLATE_CONSTANT_BYTES: usize = 64 << 10;
/// Levels of nested lists and dicts in a chat template.
pub const TEMPLATE_VALUE_DEPTH: u32 = 256;
/// Bytes of the values that a rendering holds at one time, in addition to those per byte of its messages and options.
pub const TEMPLATE_VALUE_BYTES: u64 = 24 << 20;
/// Bytes of values that a rendering may hold per byte of its messages and options.
pub const TEMPLATE_BYTES_PER_INPUT: u64 = 12;
/// Bytes that a rendering writes, captured text included, in addition to those per byte of its messages and options.
pub const TEMPLATE_OUTPUT_BYTES: u64 = 8 << 20;
/// Bytes that a rendering may write per byte of its messages and options.
pub const TEMPLATE_OUTPUT_PER_INPUT: u64 = 16;
/// Work of a rendering, in addition to that per byte of its messages and options. One unit is about one byte that is copied or
/// compared; an operation counts 16.
pub const TEMPLATE_WORK: u64 = 44 << 20;
/// Work of a rendering per byte of its messages and options.
pub const TEMPLATE_WORK_PER_INPUT: u64 = 256;
/// Instructions of the template engine that a rendering may run.
pub const TEMPLATE_INSTRUCTIONS: u64 = 14_000_000;
/// Chat templates of a model folder.
pub const TEMPLATES: usize = 64;
/// Seconds that a rendering may take, in addition to one per MiB of its messages and options. Only a machine that is far too slow for
/// the other limits reaches it.
pub const TEMPLATE_SECONDS: u64 = 5;
/// Bytes of the reason that a chat template gives when it refuses.
pub const TEMPLATE_REASON_BYTES: usize = 16 << 10;

/// Bytes of the JSON text of a `response_template`.
pub const ANSWER_TEMPLATE_BYTES: usize = 64 << 10;
/// Fields of a `response_template`.
pub const ANSWER_FIELDS: usize = 64;
/// Bytes of a regular expression of a `response_template`.
pub const ANSWER_PATTERN_BYTES: usize = 4096;
/// Named groups of a regular expression of a `response_template`.
pub const ANSWER_GROUPS: usize = 6;
/// States of the automata of all expressions of a `response_template`.
pub const ANSWER_STATES: usize = 1 << 14;
/// Levels of content parsers within each other in a `response_template`.
pub const ANSWER_TEMPLATE_LEVELS: usize = 32;
/// Visits of states while the markers of an answer are searched, in addition to those per byte of the answer.
pub const ANSWER_WORK: u64 = 4 << 20;
/// Visits of states per byte of an answer. Whatever is written in a built-in format needs less than 64.
pub const ANSWER_WORK_PER_BYTE: u64 = 128;
/// Tool calls of one answer. What follows them is content.
pub const ANSWER_CALLS: usize = 1024;
/// Levels of nested lists and objects in the arguments of a tool call.
pub const ANSWER_LEVELS: usize = 100;

/// Bytes of config.json, and of generation_config.json. Parsed, they take up to 16 times as many.
pub const CONFIG_FILE_BYTES: u64 = 1 << 20;
/// Bytes of tokenizer_config.json, and of special_tokens_map.json.
pub const TOKENIZER_CONFIG_FILE_BYTES: u64 = 4 << 20;
/// Bytes of model.safetensors.index.json.
pub const INDEX_FILE_BYTES: u64 = 16 << 20;
/// Bytes of tokenizer.json. The largest of published models has 33 MB.
pub const TOKENIZER_FILE_BYTES: u64 = 64 << 20;
/// Files that hold the weights of a model.
pub const WEIGHT_FILES: usize = 1024;
/// Bytes of the header of a file of weights, which names its tensors.
pub const WEIGHT_HEADER_BYTES: u64 = 8 << 20;
/// Bytes of the headers of all files of weights together, and of the names of all tensors of a GGUF file.
pub const WEIGHT_HEADERS_BYTES: u64 = 16 << 20;
/// Values in the JSON of the headers of all files of weights together. A tensor has about 12.
pub const WEIGHT_HEADER_VALUES: usize = 1 << 20;
/// Bytes of the headers of all parts of a GGUF file together, which have the vocabulary and the merges of its tokenizer.
pub const GGUF_HEADER_BYTES: u64 = 64 << 20;
/// Keys of a GGUF file.
pub const GGUF_KEYS: usize = 4096;
/// Keys of all parts of a GGUF file together. The parts after the first need three each.
pub const GGUF_ALL_KEYS: usize = 1 << 14;
/// Elements of all arrays in the headers of all parts of a GGUF file together.
pub const GGUF_ELEMENTS: u64 = 1 << 23;
/// Bytes of a key, and of the name of a tensor, of a GGUF file.
pub const GGUF_NAME_BYTES: usize = 65_535;
/// Places at which the tokens of a GGUF file that has scores instead of merges can be divided into two. Each is looked at when the
/// merges are rebuilt. The largest of published models has 1.6 million.
pub const GGUF_DIVISIONS: usize = 1 << 22;
/// Merges that are rebuilt from scores. The largest of published models has 514,906.
pub const GGUF_MERGES: usize = 1 << 20;
/// Tensors of a model.
pub const TENSORS: usize = 1 << 16;
/// Layers of a model. The largest of published models has 126.
pub const LAYERS: usize = 1024;
/// Query heads of a model, and therefore also key and value heads.
pub const HEADS: usize = 1 << 14;
/// Tokens of one sequence where max_model_len is not set and config.json says more.
pub const UNASKED_MODEL_LEN: usize = 1 << 20;

/// Ranks that compute one model together, by `tensor_parallel_size`.
pub const RANKS: usize = 1024;

/// Threads that compute for one engine, by `num_threads`.
pub const THREADS: usize = 4096;
/// Tokens of one sequence, by `max_model_len`.
pub const MODEL_LEN: usize = 1 << 28;
/// Sequences that run at once, by `max_num_seqs`, which sizes arrays.
pub const RUNNING_SEQUENCES: usize = 1 << 16;
/// New tokens per pass, by `max_batched_tokens`.
pub const PASS_TOKENS: usize = 1 << 20;
/// Tokens per KV block, by `kv_block_size`.
pub const BLOCK_TOKENS: usize = 1024;
/// Entries of the block tables of a batch, 4 bytes each.
pub const BLOCK_TABLE_ENTRIES: usize = 1 << 28;

/// Tokens of a vocabulary. Each id is below this number. The largest of published models has 262,144.
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
/// Bytes of all spellings of a unigram model. Each byte takes up to 350 bytes in its trie. The vocabulary of XLM-RoBERTa has about 2.6 million.
pub const UNIGRAM_BYTES: usize = 3 << 20;
/// Steps of a normalizer, a pre-tokenizer, a post-processor and a decoder together.
pub const TOKENIZER_STEPS: usize = 64;
/// Tokens that the post-processor adds to a text.
pub const TEMPLATE_TOKENS: usize = 256;
/// Bytes of a regular expression in tokenizer.json.
pub const PATTERN_BYTES: usize = 4096;
/// Bytes into which the normalizer and the pre-tokenizer may turn one byte.
pub const TEXT_GROWTH: usize = 64;
/// Bytes into which the decoder may turn one byte.
pub const DECODER_GROWTH: usize = 4;
/// Bytes of all added tokens after normalization.
pub const ADDED_BYTES: usize = 8 << 20;
/// Bytes into which the normalizer and the pre-tokenizer may turn one text.
pub const GROWN_TEXT_BYTES: usize = 192 << 20;
/// Bytes of a text for a tokenizer whose patterns may take time with the square of a text's length.
pub const SLOW_TEXT_BYTES: usize = 32 << 10;
/// Bytes that are tokenized in one piece. A tokenizer needs some hundred bytes of memory per byte.
pub const TEXT_PIECE_BYTES: usize = 4 << 20;

/// Refuses a value above a limit. `field` names the value, and `name` the limit, as the header does.
///
/// # Errors
///
/// [`Error::Limit`].
pub fn at_most(field: &'static str, found: usize, limit: usize, name: &'static str) -> Result<()> {
    if found > limit { Err(Error::Limit { field, found, limit, name }) } else { Ok(()) }
}

/// An upper bound of the number of values in a JSON text. Each value takes some hundred bytes of memory, however short its text.
pub fn json_values(text: &str) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' | b':' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}
