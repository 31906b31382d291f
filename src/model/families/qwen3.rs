//! Qwen3, dense: the standard decoder with normalized queries and keys.

use super::{Family, qwen2};
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, NormOrder, QkNorm, SelfAttention};
use crate::standard::Standard;
use base::error::Result;

/// Numbers per head where the config does not say.
const HEAD_DIM: usize = 128;

pub const FAMILY: Family = Family {
    models: "Qwen3, Qwen3-Embedding, Qwen3-Reranker",
    classes: &["Qwen3ForCausalLM"],
    model_type: "qwen3",
    defaults: qwen2::FAMILY.defaults,
    // The window counts only with use_sliding_window.
    ignores: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = attention(fields, &standard, HEAD_DIM)?;
    let mlp = standard.mlp(Bias::None);
    let windows = qwen2::windows(fields, &standard)?;
    Ok(standard.decoder_with_windows(windows, attention, mlp))
}

/// Attention with normalized queries and keys. `head_dim` is that of a config that does not say.
pub fn attention(fields: Fields, standard: &Standard, head_dim: usize) -> Result<SelfAttention> {
    let bias = fields.bias("attention_bias")?;
    Ok(SelfAttention {
        qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
        qkv_bias: bias,
        output_bias: bias,
        ..standard.attention(head_dim)
    })
}
