//! BERT, RoBERTa and XLM-RoBERTa: encoders with a table of positions, a norm of the stream behind each part, and an MLP without a gate.

use super::Family;
use crate::fields::Fields;
use crate::names::{AddedNames, AttentionNames, GateUpNames, LLAMA, MlpNames, Names, NormNames, QkvNames};
use crate::spec::{
    AddedEmbeddings, Bias, Curve, DecoderSpec, Mlp, MlpForm, Norm, NormKind, NormWeight, PositionRows, SelfAttention,
    SublayerNorms,
};
use crate::standard::{Standard, curve, max_position_embeddings};
use base::error::{Error, Result};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "BERT: MiniLM, BGE, E5, GTE, Arctic Embed, MS MARCO cross-encoders",
    classes: &[
        "BertModel",
        "BertForMaskedLM",
        "BertForPreTraining",
        "BertForSequenceClassification",
        "BertForTokenClassification",
    ],
    model_type: "bert",
    defaults: || json!({"layer_norm_eps": 1e-12, "type_vocab_size": 2, "hidden_act": "gelu", "pad_token_id": 0}),
    ignores: IGNORES,
    names: &NAMES,
    spec: |fields| spec(fields, 0),
};

pub const ROBERTA: Family = Family {
    models: "RoBERTa",
    classes: &[
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "RobertaForTokenClassification",
    ],
    model_type: "roberta",
    defaults: roberta_defaults,
    spec: roberta,
    ..FAMILY
};

pub const XLM_ROBERTA: Family = Family {
    models: "XLM-RoBERTa: BGE-M3, multilingual E5, BGE rerankers",
    classes: &[
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
        "XLMRobertaForTokenClassification",
    ],
    model_type: "xlm-roberta",
    ..ROBERTA
};

/// Of the head of a masked language model, which is not read, and of caches.
const IGNORES: &[&str] = &["tie_word_embeddings", "output_past"];

pub const NAMES: Names = Names {
    embedding: "embeddings.word_embeddings",
    added: AddedNames {
        positions: "embeddings.position_embeddings",
        types: "embeddings.token_type_embeddings",
        norm: "embeddings.LayerNorm",
    },
    layers: "encoder.layer.",
    mixer_norms: NormNames { before: "", after: "attention.output.LayerNorm" },
    attention: AttentionNames {
        qkv: QkvNames::Separate {
            query: "attention.self.query",
            key: "attention.self.key",
            value: "attention.self.value",
        },
        output: "attention.output.dense",
        ..LLAMA.attention
    },
    feed_forward_norms: NormNames { before: "", after: "output.LayerNorm" },
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "intermediate.dense" }, down: "output.dense" },
    final_norm: "",
    head: "",
    ..LLAMA
};

fn roberta_defaults() -> serde_json::Value {
    json!({"layer_norm_eps": 1e-12, "type_vocab_size": 2, "hidden_act": "gelu", "pad_token_id": 1})
}

/// The rows up to that of the token that pads are those of no position.
fn roberta(fields: Fields) -> Result<DecoderSpec> {
    let padding = fields.token_ids("pad_token_id")?.first().map_or(1, |&token| token as usize);
    spec(fields, padding + 1)
}

/// An encoder of which the first position has row `first` of the table.
fn spec(fields: Fields, first: usize) -> Result<DecoderSpec> {
    for name in ["is_decoder", "add_cross_attention"] {
        fields.must_be(name, false)?;
    }
    absolute_positions(fields)?;
    let standard = Standard::with_ropes(fields, Vec::new())?.into_encoder(fields)?;
    let norm = layer_norm(fields, "layer_norm_eps")?;
    let attention = SelfAttention {
        qkv_bias: Bias::Added,
        output_bias: Bias::Added,
        rope: None,
        ..standard.attention(standard.shared_width())
    };
    let form = MlpForm::Ungated(curve(fields, "hidden_act")?.unwrap_or(Curve::Gelu));
    let layer = standard.layer(attention, Mlp { form, ..standard.mlp(Bias::Added) });
    let layers = vec![layer.with_norms(SublayerNorms::of_sum(norm)); standard.layers];
    let rows = max_position_embeddings(fields)?;
    let max_positions = rows.checked_sub(first).filter(|&positions| positions > 0).ok_or_else(|| {
        fields.refuse(format!("max_position_embeddings is {rows}, but the first position has row {first}"))
    })?;
    Ok(DecoderSpec {
        added: AddedEmbeddings {
            positions: Some(PositionRows { rows, first }),
            types: fields.count_or_none("type_vocab_size")?,
        },
        embedding_norm: Some(norm),
        final_norm: None,
        max_positions,
        ..standard.decoder_of(layers)
    })
}

/// Refuses positions that are not rows of a table.
fn absolute_positions(fields: Fields) -> Result<()> {
    match fields.text("position_embedding_type")? {
        None | Some("absolute") => Ok(()),
        Some(other) => Err(Error::UnsupportedModel {
            setting: "position_embedding_type",
            value: format!("{other:.60}"),
            supported: "absolute in a model of this class",
        }),
    }
}

/// A layer norm with biases.
pub fn layer_norm(fields: Fields, eps: &str) -> Result<Norm> {
    Ok(Norm { kind: NormKind::LayerBiased, eps: fields.factor(eps)?, weight: NormWeight::Plain })
}
