//! What lies in the files of models: a [`source`] gives config, text files and tensors by name, and [`coding`] says how the numbers of a
//! tensor are written.
//!
//! Backends and the tokenizer both stand on this, and not on each other.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod coding;
mod dtype;
pub mod source;

pub use coding::{
    Block, Codes, Coding, E2M1, IQ4, Lattice, Scaled, ScaledRow, Scales, from_e4m3, from_e8m0, q3_scale, scale_and_min,
};
pub use dtype::DType;
