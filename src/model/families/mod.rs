//! The model families: one file each, which says how its config becomes a [`DecoderSpec`](crate::model::spec::DecoderSpec).
//!
//! To add one: `docs/adding-a-family.md`.

pub(in crate::model) mod cohere2;
pub(in crate::model) mod ernie4_5;
pub(in crate::model) mod exaone4;
pub(in crate::model) mod gemma2;
pub(in crate::model) mod gemma3;
pub(in crate::model) mod glm4;
pub(in crate::model) mod granite;
pub(in crate::model) mod granite_hybrid;
pub(in crate::model) mod hunyuan;
pub(in crate::model) mod llama;
pub(in crate::model) mod ministral3;
pub(in crate::model) mod mistral;
pub(in crate::model) mod olmo2;
pub(in crate::model) mod olmo3;
pub(in crate::model) mod phi3;
pub(in crate::model) mod qwen2;
pub(in crate::model) mod qwen3;
pub(in crate::model) mod seed_oss;
pub(in crate::model) mod smollm3;

use crate::model::family::{Family, no_defaults};

/// All families. An error that lists them keeps this order.
pub const FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &mistral::FAMILY,
    &ministral3::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &phi3::FAMILY,
    &smollm3::FAMILY,
    &granite::FAMILY,
    &granite_hybrid::FAMILY,
    &seed_oss::FAMILY,
    &ernie4_5::FAMILY,
    &hunyuan::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &olmo2::FAMILY,
    &olmo3::FAMILY,
    &exaone4::FAMILY,
    &glm4::FAMILY,
    &cohere2::FAMILY,
];
