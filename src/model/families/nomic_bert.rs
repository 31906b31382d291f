//! Nomic BERT: an encoder with rotary embeddings and types, norms of the stream behind each part, and gates.
//!
//! The folders of 2024 have the field names of GPT-2 and tensors of all three projections; those that transformers writes have Llama's.

use super::{Family, bert};
use crate::fields::Fields;
use crate::names::{AddedNames, AttentionNames, GateUpNames, LLAMA, MlpNames, Names, NormNames, QkvNames};
use crate::rope::{Rope, RopeDefaults};
use crate::spec::{AddedEmbeddings, Bias, DecoderSpec, SublayerNorms};
use crate::standard::{Standard, rope_with_defaults};
use base::error::{Error, Result};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Nomic Embed v1 and v1.5",
    classes: &["NomicBertModel", "NomicBertForMaskedLM"],
    model_type: "nomic_bert",
    defaults: || {
        json!({
            "layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 2048, "num_hidden_layers": 12,
            "num_attention_heads": 12, "hidden_size": 768, "intermediate_size": 3072
        })
    },
    // Of training, of other kernels, and of the head of a masked language model.
    ignores: &[
        "tie_word_embeddings",
        "attn_pdrop",
        "scale_attn_weights",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "fused_bias_fc",
        "fused_dropout_add_ln",
        "use_flash_attn",
        "use_xentropy",
        "dense_seq_output",
        "pad_vocab_size_multiple",
        "reorder_and_upcast_attn",
        "mlp_fc1_bias",
        "mlp_fc2_bias",
        "qkv_proj_bias",
        "last_layer_subset",
        "max_trained_positions",
        "rotary_emb_scale_base",
    ],
    names: &NAMES,
    spec,
};

/// Older names of fields, and those of today.
pub const RENAMED: &[(&str, &str)] = &[
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_layer", "num_hidden_layers"),
    ("n_inner", "intermediate_size"),
    ("n_positions", "max_position_embeddings"),
    ("layer_norm_epsilon", "layer_norm_eps"),
    ("rotary_emb_base", "rope_theta"),
    ("rotary_emb_interleaved", "rope_interleaved"),
    ("rotary_emb_fraction", "rotary_pct"),
];

const NAMES: Names = Names {
    embedding: "embeddings.word_embeddings",
    added: AddedNames { positions: "", types: "embeddings.token_type_embeddings", norm: "emb_ln" },
    layers: "encoder.layers.",
    mixer_norms: NormNames { before: "", after: "norm1" },
    attention: AttentionNames { qkv: QkvNames::Fused("attn.Wqkv"), output: "attn.out_proj", ..LLAMA.attention },
    feed_forward_norms: NormNames { before: "", after: "norm2" },
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "mlp.fc12", up: "mlp.fc11" }, down: "mlp.fc2" },
    final_norm: "",
    head: "",
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    for name in ["causal", "prenorm", "use_rms_norm", "parallel_block"] {
        fields.must_be(name, false)?;
    }
    match fields.text("activation_function")?.or(fields.text("hidden_act")?) {
        None | Some("swiglu" | "silu") => {}
        Some(other) => {
            return Err(Error::UnsupportedModel {
                setting: "activation_function",
                value: format!("{other:.60}"),
                supported: "swiglu in a model of this class",
            });
        }
    }
    let rope: Rope = rope_with_defaults(fields, RopeDefaults { theta: 1000.0, ..RopeDefaults::default() })?;
    let standard = Standard::with_ropes(fields, vec![rope])?.into_encoder(fields)?;
    let norm = bert::layer_norm(fields, "layer_norm_eps")?;
    let layer = standard.layer(standard.attention(standard.shared_width()), standard.mlp(Bias::None));
    let layers = vec![layer.with_norms(SublayerNorms::of_sum(norm)); standard.layers];
    Ok(DecoderSpec {
        added: AddedEmbeddings { types: fields.count_or_none("type_vocab_size")?, ..AddedEmbeddings::NONE },
        embedding_norm: Some(norm),
        final_norm: None,
        ..standard.decoder_of(layers)
    })
}
