//! ModernBERT: an encoder with windows on both sides in two of three layers, rotary embeddings of two bases, and gates behind an exact GELU. The first
//! layer reads the norm of the embeddings as it is.

use super::Family;
use crate::fields::Fields;
use crate::names::{AddedNames, AttentionNames, GateUpNames, LLAMA, MlpNames, Names, NormNames, QkvNames};
use crate::spec::{Curve, DecoderSpec, Mlp, MlpForm, Norm, NormKind, SelfAttention, SublayerNorms};
use crate::standard::{FULL, SLIDING, Standard, curve, recurrent_layers, ropes_of_bases};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "ModernBERT: GTE ModernBERT, Nomic ModernBERT Embed, Granite Embedding R2",
    classes: &[
        "ModernBertModel",
        "ModernBertForMaskedLM",
        "ModernBertForSequenceClassification",
        "ModernBertForTokenClassification",
    ],
    model_type: "modernbert",
    defaults: || {
        json!({
            "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12,
            "max_position_embeddings": 8192, "hidden_activation": "gelu", "norm_eps": 1e-5, "local_attention": 128
        })
    },
    // Of training, of other kernels, and of the head of a masked language model; the second and the third belong to no part of it.
    ignores: &[
        "tie_word_embeddings",
        "position_embedding_type",
        "layer_norm_eps",
        "embedding_dropout",
        "mlp_dropout",
        "initializer_cutoff_factor",
        "deterministic_flash_attn",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
        "decoder_bias",
    ],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    embedding: "embeddings.tok_embeddings",
    added: AddedNames { norm: "embeddings.norm", ..AddedNames::NONE },
    mixer_norms: NormNames { before: "attn_norm", after: "" },
    attention: AttentionNames { qkv: QkvNames::Fused("attn.Wqkv"), output: "attn.Wo", ..LLAMA.attention },
    feed_forward_norms: NormNames { before: "mlp_norm", after: "" },
    mlp: MlpNames { gate_up: GateUpNames::Fused("mlp.Wi"), down: "mlp.Wo" },
    final_norm: "final_norm",
    head: "",
    ..LLAMA
};

/// One layer of this many has no window.
const INTERVAL: usize = 3;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let base = |name, otherwise| Ok(fields.positive_or_none(name)?.unwrap_or(otherwise));
    let bases = [base("local_rope_theta", 10_000.0)?, base("global_rope_theta", 160_000.0)?];
    let standard = Standard::with_ropes(fields, ropes_of_bases(fields, bases)?)?.into_encoder(fields)?;
    let kind = if fields.flag("norm_bias")? == Some(true) { NormKind::LayerBiased } else { NormKind::Layer };
    let norm = Norm { kind, eps: fields.factor("norm_eps")?, ..standard.norm };
    let bias = fields.bias("attention_bias")?;
    let form = MlpForm::GatedBy(curve(fields, "hidden_activation")?.unwrap_or(Curve::Gelu));
    let mlp = Mlp { form, ..standard.mlp(fields.bias("mlp_bias")?) };
    // Half of the window lies on either side.
    let window = fields.count("local_attention")? / 2 + 1;
    let layer = |(index, slides): (usize, bool)| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window: slides.then_some(window), ..attention.scores };
        let rope = Some(if slides { SLIDING } else { FULL });
        let attention = SelfAttention { scores, rope, qkv_bias: bias, output_bias: bias, ..attention };
        let mut layer = standard.layer(attention, mlp.clone()).with_norms(SublayerNorms::before(norm));
        if index == 0 {
            layer.sublayers[0].norms = SublayerNorms::NONE;
        }
        layer
    };
    let layers = windows(fields, standard.layers)?.into_iter().enumerate().map(layer).collect();
    Ok(DecoderSpec { embedding_norm: Some(norm), final_norm: Some(norm), ..standard.decoder_of(layers) })
}

/// Which layers have a window.
fn windows(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    let kinds = (&["sliding_attention"][..], &["full_attention"][..]);
    let interval = fields.count_or_none("global_attn_every_n_layers")?.unwrap_or(INTERVAL);
    let listed = recurrent_layers(fields, layers, kinds, "full_attention or sliding_attention")?;
    Ok(listed.unwrap_or_else(|| (0..layers).map(|layer| !layer.is_multiple_of(interval)).collect()))
}
