//! Encoders in GGUF files. Those of RoBERTa and XLM-RoBERTa are files of BERT: the conversion leaves out the rows of no position.

use super::{GgufFamily, PLAIN};
use crate::families::{bert, gemma3, modernbert, nomic_bert};
use crate::gguf::config::Config;
use crate::gguf::names;
use base::error::Result;
use serde_json::{Value, json};

const LAYER_NORM_EPS: &str = "attention.layer_norm_epsilon";

pub const BERT: GgufFamily =
    GgufFamily { family: &bert::FAMILY, architecture: "bert", names: &names::BERT, fields: bert_fields, ..PLAIN };

pub const NOMIC_BERT: GgufFamily = GgufFamily {
    family: &nomic_bert::FAMILY,
    architecture: "nomic-bert",
    names: &names::NOMIC_BERT,
    fields: nomic_bert_fields,
    ..PLAIN
};

pub const MODERN_BERT: GgufFamily = GgufFamily {
    family: &modernbert::FAMILY,
    architecture: "modern-bert",
    names: &names::MODERN_BERT,
    fields: modern_bert_fields,
    ..PLAIN
};

pub const GEMMA_EMBEDDING: GgufFamily = GgufFamily {
    family: &gemma3::FAMILY,
    architecture: "gemma-embedding",
    names: &names::GEMMA2,
    // The tensors of the layers behind the pooling say it.
    ignores: &["dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"],
    fields: gemma_embedding_fields,
    ..PLAIN
};

/// What the three families have in common. The file does not say the curve of the MLP: it is that of published models.
fn encoder_fields(config: &mut Config) -> Result<()> {
    config.keys.must_be("attention.causal", false)?;
    let types = config.rows("token_types.weight");
    config.set("type_vocab_size", types);
    config.copy(LAYER_NORM_EPS, "layer_norm_eps")
}

fn bert_fields(config: &mut Config) -> Result<()> {
    let rows = config.rows("position_embd.weight");
    let rows = rows.ok_or_else(|| config.keys.refuse("tensor position_embd.weight is missing".into()))?;
    config.set("max_position_embeddings", rows);
    encoder_fields(config)
}

fn nomic_bert_fields(config: &mut Config) -> Result<()> {
    encoder_fields(config)
}

fn modern_bert_fields(config: &mut Config) -> Result<()> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    config.keys.must_be("attention.causal", false)?;
    // Its place is that of another kind of norm where the config had one epsilon.
    let rms = "attention.layer_norm_rms_epsilon";
    config.copy(if config.keys.get(LAYER_NORM_EPS).is_some() { LAYER_NORM_EPS } else { rms }, "norm_eps")?;
    let full = config.keys.positive_or_none("rope.freq_base")?.unwrap_or(10_000.0);
    let sliding = config.keys.positive_or_none("rope.freq_base_swa")?.unwrap_or(full);
    config.set("global_rope_theta", full);
    config.set("local_rope_theta", sliding);
    let window = config.positive("attention.sliding_window")?;
    let slides = match config.keys.get(PATTERN) {
        _ if window.is_none() => vec![false; config.layers()?],
        Some(Value::Array(_)) => config.flags(PATTERN)?.unwrap_or_default(),
        _ => {
            let interval = config.keys.count_or_none(PATTERN)?.unwrap_or(3);
            (0..config.layers()?).map(|layer| !layer.is_multiple_of(interval)).collect()
        }
    };
    config.set_layer_types(&slides, "sliding_attention", "full_attention");
    config.set("local_attention", window.map_or(1, |window| window as u64));
    let activation = config.keys.text("hidden_activation")?.unwrap_or("gelu").to_owned();
    config.set("hidden_activation", activation);
    config.set_bias("attention_bias", &["attn_output.bias"]);
    config.set_bias("mlp_bias", &["ffn_down.bias"]);
    config.set_bias("norm_bias", &["ffn_norm.bias"]);
    Ok(())
}

/// The window of both sides together.
fn gemma_embedding_fields(config: &mut Config) -> Result<()> {
    config.keys.must_be("attention.causal", false)?;
    super::gemma3_fields(config)?;
    config.set("query_pre_attn_scalar", json!(config.head_dim()?));
    config.set("use_bidirectional_attention", true);
    Ok(())
}
