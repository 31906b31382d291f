//! What all parts of the library share: [`error`], [`limits`], the [`log`] and [`contain`], which makes errors of panics.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod contain;
pub mod error;
pub mod limits;
pub mod log;

/// A token, as the model numbers it.
pub type TokenId = u32;
