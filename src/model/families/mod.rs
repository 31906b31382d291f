//! The model families: one file each, which says how its config becomes a [`DecoderSpec`](crate::spec::DecoderSpec).
//!
//! To add one: `docs/adding-a-family.md`.

pub(crate) mod afmoe;
pub(crate) mod bamba;
pub(crate) mod bert;
pub(crate) mod cohere2;
pub(crate) mod deepseek_v2;
pub(crate) mod deepseek_v3;
pub(crate) mod dots1;
pub(crate) mod ernie4_5;
pub(crate) mod ernie4_5_moe;
pub(crate) mod exaone4;
pub(crate) mod exaone_moe;
pub(crate) mod falcon_h1;
pub(crate) mod gemma;
pub(crate) mod gemma2;
pub(crate) mod gemma3;
pub(crate) mod gemma4;
pub(crate) mod glm4;
pub(crate) mod glm4_moe;
pub(crate) mod glm4_moe_lite;
pub(crate) mod gpt_oss;
pub(crate) mod granite;
pub(crate) mod granite_hybrid;
pub(crate) mod granite_moe;
pub(crate) mod gte;
pub(crate) mod hunyuan;
pub(crate) mod hunyuan_moe;
pub(crate) mod lfm2;
pub(crate) mod lfm2_moe;
pub(crate) mod lfm3;
pub(crate) mod llama;
pub(crate) mod mamba2;
pub(crate) mod minimax_m2;
pub(crate) mod ministral3;
pub(crate) mod mistral;
pub(crate) mod mistral4;
pub(crate) mod mixtral;
pub(crate) mod modernbert;
pub(crate) mod muse_glimmer;
pub(crate) mod nemotron_h;
pub(crate) mod nomic_bert;
pub(crate) mod olmo;
pub(crate) mod olmo2;
pub(crate) mod olmo3;
pub(crate) mod olmoe;
pub(crate) mod phi3;
pub(crate) mod qwen2;
pub(crate) mod qwen2_moe;
pub(crate) mod qwen3;
pub(crate) mod qwen3_5;
pub(crate) mod qwen3_5_moe;
pub(crate) mod qwen3_moe;
pub(crate) mod qwen3_next;
pub(crate) mod seed_oss;
pub(crate) mod smollm3;
pub(crate) mod stablelm;
pub(crate) mod starcoder2;

use crate::family::{Family, no_defaults};

/// All families. An error that lists them keeps this order.
pub const FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &llama::ARCEE,
    &mistral::FAMILY,
    &ministral3::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3_5::FAMILY,
    &phi3::FAMILY,
    &smollm3::FAMILY,
    &granite::FAMILY,
    &granite_hybrid::FAMILY,
    &seed_oss::FAMILY,
    &ernie4_5::FAMILY,
    &hunyuan::FAMILY,
    &starcoder2::FAMILY,
    &stablelm::FAMILY,
    &gemma::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &olmo::FAMILY,
    &olmo2::FAMILY,
    &olmo3::FAMILY,
    &exaone4::FAMILY,
    &glm4::GLM,
    &glm4::FAMILY,
    &cohere2::COHERE,
    &cohere2::FAMILY,
    &muse_glimmer::FAMILY,
    &gemma4::FAMILY,
    &gemma4::UNIFIED,
    &lfm2::FAMILY,
    &lfm3::FAMILY,
    &nemotron_h::FAMILY,
    &falcon_h1::FAMILY,
    &bamba::FAMILY,
    &mamba2::FAMILY,
    &qwen2_moe::FAMILY,
    &qwen3_moe::FAMILY,
    &mixtral::FAMILY,
    &olmoe::FAMILY,
    &olmoe::FLEX,
    &qwen3_5_moe::FAMILY,
    &qwen3_next::FAMILY,
    &glm4_moe::FAMILY,
    &glm4_moe::SOLAR_OPEN,
    &dots1::FAMILY,
    &exaone_moe::FAMILY,
    &glm4_moe_lite::FAMILY,
    &deepseek_v3::FAMILY,
    &deepseek_v2::FAMILY,
    &minimax_m2::FAMILY,
    &mistral4::FAMILY,
    &lfm2_moe::FAMILY,
    &afmoe::FAMILY,
    &ernie4_5_moe::FAMILY,
    &hunyuan_moe::FAMILY,
    &granite_moe::FAMILY,
    &granite_moe::SHARED,
    &gpt_oss::FAMILY,
    &bert::FAMILY,
    &bert::ROBERTA,
    &bert::XLM_ROBERTA,
    &modernbert::FAMILY,
    &nomic_bert::FAMILY,
    &gte::FAMILY,
    &gte::JINA_V3,
];
