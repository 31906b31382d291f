//! Decoder models, described as data and computed by one decoder.
//!
//! [`config`] reads what a model folder says, [`families`] turns it into a [`spec::DecoderSpec`], [`weights`] finds the
//! tensors, and [`decoder`] computes. No family has code of its own in the forward pass.

mod attention;
pub mod config;
pub mod decoder;
pub mod families;
mod fields;
mod linear;
mod mlp;
pub mod rope;
pub mod spec;
mod weight_index;
pub mod weights;
