//! Text: the [`tokenizer`], [`chat_template`]s, and [`structure`], which holds completions to a grammar.
//!
//! Everything here reads files that nobody vouches for: each cost has a bound, and each panic of a dependency is an error of its input.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chat_template;
pub mod structure;
pub mod tokenizer;
