//! What lies in the files of models: a [`source`] gives config, text files and tensors by name, and [`coding`] says how the numbers of a
//! tensor are written.
//!
//! Backends and the tokenizer both stand on this, and not on each other.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod dtype;
pub mod source;
pub mod weight_format;

pub use dtype::DType;
pub use weight_format::{
    Block, Codes, E2M1, IQ4, Lattice, Scaled, ScaledRow, Scales, WeightFormat, from_e4m3, from_e8m0, q3_scale,
    scale_and_min,
};
