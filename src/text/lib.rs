//! Text: the [`tokenizer`], [`chat_template`]s, [`structure`], which holds completions to a grammar, and [`answer`], which reads them.
//!
//! Everything here reads files that nobody vouches for: each cost has a bound, and each panic of a dependency is an error of its input.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod answer;
pub mod chat_template;
pub mod structure;
pub mod tokenizer;
