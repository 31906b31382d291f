//! GTE and Jina Embeddings v3: encoders with rotary embeddings and types, and norms of the stream behind each part. GTE's MLP has a gate, and a bias behind it
//! alone; its projections are one tensor with the gate last.

use super::{Family, bert};
use crate::fields::Fields;
use crate::names::{AddedNames, AttentionNames, GateUpNames, LLAMA, MlpNames, Names, NormNames, QkvNames};
use crate::rope::RopeDefaults;
use crate::spec::{AddedEmbeddings, Bias, Curve, DecoderSpec, Mlp, MlpForm, SelfAttention, SublayerNorms};
use crate::standard::{Standard, curve, rope_with_defaults};
use base::error::Result;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "GTE multilingual and English v1.5, as transformers has them",
    classes: &["GteModel", "GteForMaskedLM"],
    model_type: "gte",
    defaults: || {
        json!({
            "vocab_size": 250048, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "max_position_embeddings": 8192, "layer_norm_eps": 1e-12, "type_vocab_size": 1, "hidden_act": "gelu"
        })
    },
    ignores: IGNORES,
    names: &NAMES,
    spec: |fields| {
        let curve = curve(fields, "hidden_act")?.unwrap_or(Curve::Gelu);
        spec(fields, 160_000.0, |mlp| Mlp { form: MlpForm::GatedBy(curve), bias: Bias::None, ..mlp })
    },
};

pub const JINA_V3: Family = Family {
    models: "Jina Embeddings v3, as transformers has it",
    classes: &["JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"],
    model_type: "jina_embeddings_v3",
    defaults: || {
        json!({
            "vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "max_position_embeddings": 8194, "layer_norm_eps": 1e-5, "type_vocab_size": 1, "hidden_act": "gelu"
        })
    },
    names: &JINA_NAMES,
    spec: |fields| {
        let curve = curve(fields, "hidden_act")?.unwrap_or(Curve::Gelu);
        spec(fields, 20_000.0, |mlp| Mlp { form: MlpForm::Ungated(curve), ..mlp })
    },
    ..FAMILY
};

/// Of the head of a masked language model, which is not read, and of caches.
const IGNORES: &[&str] = &["tie_word_embeddings", "use_cache"];

const NAMES: Names = Names {
    layers: "encoder.layer.",
    mixer_norms: NormNames { before: "", after: "attn_ln" },
    attention: AttentionNames {
        qkv: QkvNames::Fused("attention.qkv_proj"),
        output: "attention.o_proj",
        ..bert::NAMES.attention
    },
    feed_forward_norms: NormNames { before: "", after: "mlp_ln" },
    mlp: MlpNames { gate_up: GateUpNames::UpFirst("mlp.up_gate_proj"), down: "mlp.down_proj" },
    added: AddedNames { positions: "", ..bert::NAMES.added },
    ..bert::NAMES
};

const JINA_NAMES: Names = Names {
    layers: "encoder.layers.",
    mixer_norms: NormNames { before: "", after: "norm1" },
    attention: AttentionNames { qkv: QkvNames::Fused("mixer.Wqkv"), output: "mixer.out_proj", ..LLAMA.attention },
    feed_forward_norms: NormNames { before: "", after: "norm2" },
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "mlp.fc1" }, down: "mlp.fc2" },
    added: AddedNames { norm: "emb_ln", ..NAMES.added },
    ..NAMES
};

/// An encoder whose MLPs `mlp` makes of those with biases everywhere.
fn spec(fields: Fields, theta: f64, mlp: impl FnOnce(Mlp) -> Mlp) -> Result<DecoderSpec> {
    let rope = rope_with_defaults(fields, RopeDefaults { theta, ..RopeDefaults::default() })?;
    let standard = Standard::with_ropes(fields, vec![rope])?.into_encoder(fields)?;
    let norm = bert::layer_norm(fields, "layer_norm_eps")?;
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: Bias::Added, output_bias: Bias::Added, ..attention };
    let layer = standard.layer(attention, mlp(standard.mlp(Bias::Added)));
    let layers = vec![layer.with_norms(SublayerNorms::of_sum(norm)); standard.layers];
    // GTE in English has none.
    let types = match fields.get("type_vocab_size").and_then(Value::as_u64) {
        Some(0) => None,
        _ => fields.count_or_none("type_vocab_size")?,
    };
    Ok(DecoderSpec {
        added: AddedEmbeddings { types, ..AddedEmbeddings::NONE },
        embedding_norm: Some(norm),
        final_norm: None,
        ..standard.decoder_of(layers)
    })
}
