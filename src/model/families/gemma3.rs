//! Gemma 3: as Gemma 2, with normalized queries and keys instead of caps, five layers with a window to one without, and a rotary embedding
//! of their own for the layers with a window.

use super::{Family, gemma2};
use crate::fields::Fields;
use crate::spec::{Bias, DecoderSpec, Head, Mlp, MlpForm, NormOrder, QkNorm, SelfAttention, SublayerNorms};
use crate::standard::{FULL, SLIDING, Standard, activation, embedding_scale, ropes_by_layer_type, score_scale};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Gemma 3 270M and 1B, EmbeddingGemma",
    classes: &["Gemma3ForCausalLM", "Gemma3TextModel"],
    model_type: "gemma3_text",
    // Published configs leave nearly everything out.
    defaults: || {
        json!({
            "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
            "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "rope_theta": 1000000.0
        })
    },
    // transformers writes the second and does not read it.
    ignores: &["hidden_act", "_sliding_window_pattern"],
    names: &gemma2::NAMES,
    spec,
};

/// Base of the rotary embedding of layers with a window.
const SLIDING_THETA: f64 = 10_000.0;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, ropes_by_layer_type(fields, SLIDING_THETA)?)?.with_norms_plus_one();
    // EmbeddingGemma: half of the window lies on either side.
    let is_encoder = fields.flag("use_bidirectional_attention")? == Some(true);
    let standard = if is_encoder { standard.into_encoder(fields)? } else { standard };
    let width = |window: usize| if is_encoder { window / 2 + 1 } else { window };
    let bias = fields.bias("attention_bias")?;
    let scale = score_scale(fields)?;
    let qk_norm = QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope };
    let mlp = Mlp { form: MlpForm::gated(activation(fields, "hidden_activation")?), ..standard.mlp(Bias::None) };
    let norms = SublayerNorms::around(standard.norm);
    let layer = |window: Option<usize>| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window: window.map(width), scale, ..attention.scores };
        let rope = Some(if window.is_some() { SLIDING } else { FULL });
        let attention = SelfAttention { scores, rope, qk_norm, qkv_bias: bias, output_bias: bias, ..attention };
        standard.layer(attention, mlp.clone()).with_norms(norms)
    };
    let layers = standard.windows_by_pattern(fields, 6)?.into_iter().map(layer).collect();
    let embedding_scale = embedding_scale(fields, standard.hidden)?;
    let decoder = standard.decoder_of(layers);
    let softcap = fields.positive_or_none("final_logit_softcapping")?.map(|cap| cap as f32);
    Ok(DecoderSpec { embedding_scale, head: Head { softcap, ..decoder.head }, ..decoder })
}
