//! Decoder models, described as data and computed by one decoder.
//!
//! A [`Source`](formats::source::Source) brings a model, [`config`] reads what it says ([`gguf`] translates what a GGUF file says into the same), [`families`] turn it into a [`spec::DecoderSpec`], [`weights`] finds the
//! tensors by the [`names`] of the family, and [`decoder`] computes. No family has code of its own in the forward pass.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attention;
mod config;
pub mod decoder;
pub mod description;
pub mod explain;
mod families;
mod family;
mod feed_forward;
mod fields;
mod gguf;
mod identity;
mod latent;
mod layer;
mod layer_inputs;
mod linear;
mod mixture;
pub mod names;
mod norm;
pub mod pooled;
mod pooled_layers;
mod products;
pub mod quantization;
mod recurrent;
pub mod rope;
mod settings;
pub mod shard;
pub mod spec;
mod standard;
mod stream;
pub mod weight_summary;
pub mod weights;
mod wrappers;
