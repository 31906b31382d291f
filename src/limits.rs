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
/// Milliseconds that a thread waits for a structure to be compiled, the wait for its turn included.
pub const STRUCTURE_COMPILE_MS: u64 = 2000;
/// Structures that are compiled at once for one engine. One that was given up counts until it has come to its end.
pub const STRUCTURES_COMPILING: usize = 2;
/// Levels of a JSON schema, one below another: those of its text and of everything that a `$ref` names. Compiling recurses.
pub const SCHEMA_LEVELS: usize = 4096;
/// Different names of properties, required ones included, in a JSON schema. The work grows with their square.
pub const SCHEMA_NAMES: usize = 4096;
/// Values inside `const` and `enum` of a JSON schema, without those of `enum` that are strings. The work grows with their square.
pub const SCHEMA_CONSTANTS: usize = 8192;
/// Pairs of a pattern and another pattern or name of `patternProperties` in one object: each pair is compared.
pub const SCHEMA_PATTERN_PAIRS: usize = 16384;
/// Patterns and formats that one string of a JSON schema has to match together. The work doubles with each.
pub const SCHEMA_PATTERNS_TOGETHER: u64 = 12;
/// `multipleOf` of a number of a JSON schema without its factors 2 and 5: the least common multiple, where several are to hold
/// together. A lexer keeps every remainder apart.
pub const SCHEMA_MULTIPLE: u64 = 100_000;
/// Subschemas of a JSON schema after each `$ref` in `allOf`, or beside other keywords, was replaced by what it names.
pub const SCHEMA_EXPANDED: u64 = 131_072;
/// Rules and terminals of a Lark grammar. Compiling recurses along chains of them.
pub const GRAMMAR_RULES: usize = 4096;
/// Terms that `&` joins in one terminal of a Lark grammar, in what it refers to as well. The work doubles with each.
pub const GRAMMAR_TERMS_TOGETHER: u64 = 12;
/// Expressions that the first transitions of a structure's lexer may create: about 100 ns and 6 to 50 bytes each.
pub const STRUCTURE_START_FUEL: u64 = 1_500_000;
/// Bytes that the tables of one compiled structure may take, by estimate.
pub const STRUCTURE_TABLE_BYTES: usize = 32 << 20;
/// Bytes that the compiled structures take which an engine keeps for later requests, by estimate.
pub const STRUCTURES_KEPT_BYTES: usize = 64 << 20;
/// States that the lexer of one answer may reach, at one or two kilobytes each.
pub const ANSWER_LEXER_STATES: usize = 10_000;
/// Expressions that the lexer of one answer may create, at about 6 bytes each.
pub const ANSWER_FUEL: u64 = 4_000_000;
/// Bytes of the messages of one conversation, and of its tools.
pub const MESSAGES_BYTES: usize = 16 << 20;
