//! Gemma 4, dense or with experts beside the MLP, and its small models E2B and E4B, whose layers get an input of their own and whose last layers read the keys and values of others: as Gemma 3, with norms whose weights are stored as they are, scores that are not scaled, values that are normalized without
//! weights, and a factor of the stream behind each layer. Layers without a window have heads of another size, other KV heads, and in larger models
//! no projection to values of their own; the first pairs of their heads turn, and the others do not.

mod experts;
mod layers;

use super::Family;
use crate::fields::Fields;
use crate::names::{LayerInputNames, Names, NormNames};
use crate::spec::{
    Bias, DecoderSpec, FeedForward, Head, KvSource, LayerInput, LayerInputs, LayerSpec, Mlp, MlpForm, NormOrder, Part,
    QkNorm, SelfAttention, StreamScale, Sublayer, SublayerNorms, Values,
};
use crate::standard::{FULL, SLIDING, Standard, activation, embedding_scale, ropes_by_layer_type};
use base::error::{Error, Result};
use compute::AttentionSpec;
use layers::{count_above_zero, heads, kv_sources, windows};
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Gemma 4 E2B, E4B, 26B-A4B and dense, its decoder alone",
    classes: &["Gemma4ForCausalLM"],
    model_type: "gemma4_text",
    defaults: || {
        let of_class = json!({
            "max_position_embeddings": 131_072, "sliding_window": 512, "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144
        });
        with_defaults(of_class)
    },
    ignores: &["hidden_act"],
    names: &NAMES,
    spec,
};

pub const UNIFIED: Family = Family {
    models: "Gemma 4 12B and 31B, their decoder alone",
    classes: &["Gemma4UnifiedForCausalLM"],
    model_type: "gemma4_unified_text",
    defaults: || with_defaults(json!({"max_position_embeddings": 262_144, "sliding_window": 1024})),
    ..FAMILY
};

pub const NAMES: Names = Names {
    layer_inputs: LayerInputNames {
        table: "embed_tokens_per_layer",
        projection: "per_layer_model_projection",
        norm: "per_layer_projection_norm",
        gate: "per_layer_input_gate",
        back: "per_layer_projection",
        norms: NormNames { before: "", after: "post_per_layer_input_norm" },
    },
    stream_scale: "layer_scalar",
    ..experts::NAMES
};

/// Base of the rotary embedding of layers with a window.
const SLIDING_THETA: f64 = 10_000.0;

/// The defaults of both classes and those of one.
fn with_defaults(of_class: Value) -> Value {
    let mut defaults = json!({
        "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": true,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
        },
    });
    let fields = defaults.as_object_mut().expect("an object");
    fields.extend(of_class.as_object().expect("an object").clone());
    defaults
}

fn spec(fields: Fields) -> Result<DecoderSpec> {
    refuse_other_parts(fields)?;
    let standard = Standard::with_ropes(fields, ropes_by_layer_type(fields, SLIDING_THETA)?)?;
    let windows = windows(fields, &standard)?;
    let heads = heads(fields, &standard, &windows)?;
    let values_are_keys = fields.flag("attention_k_eq_v")? == Some(true);
    let bias = fields.bias("attention_bias")?;
    let qk_norm = QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope };
    let activation = activation(fields, "hidden_activation")?;
    let kv_sources = kv_sources(fields, &windows, &heads)?;
    let is_double = fields.flag("use_double_wide_mlp")? == Some(true);
    let layer_inputs = layer_inputs(fields, &standard)?;
    let mlp = Mlp { form: MlpForm::gated(activation), ..standard.mlp(Bias::None) };
    let norms = SublayerNorms::around(standard.norm);
    let experts = experts::experts(fields, &mlp, standard.norm.eps)?;
    let layer = |((window, [head_dim, kv_heads]), kv_source): ((Option<usize>, [usize; 2]), KvSource)| {
        let attention = standard.attention(head_dim);
        let is_full = window.is_none();
        let attention = SelfAttention {
            scores: AttentionSpec { window, scale: 1.0, ..attention.scores },
            kv_heads,
            head_dim,
            qk_norm,
            kv_source,
            values: if values_are_keys && is_full { Values::Keys } else { Values::Projected },
            value_norm: Some(standard.norm.eps),
            qkv_bias: bias,
            output_bias: bias,
            rope: Some(if is_full { FULL } else { SLIDING }),
            ..attention
        };
        let is_wide = is_double && kv_source != KvSource::Own;
        let mlp = Mlp { width: if is_wide { 2 * mlp.width } else { mlp.width }, ..mlp.clone() };
        let mut layer = standard.layer(attention, mlp).with_norms(norms);
        if let Some(experts) = &experts {
            layer = experts::beside(layer, experts, standard.norm);
        }
        if let Some(LayerInputs { width, .. }) = layer_inputs {
            let part = Part::FeedForward(FeedForward::LayerInput(LayerInput { width, activation }));
            layer.sublayers.push(Sublayer::new(SublayerNorms::after(standard.norm), part));
        }
        LayerSpec { stream_scale: StreamScale::Stored, ..layer }
    };
    let layers = windows.into_iter().zip(heads).zip(kv_sources).map(layer).collect();
    let softcap = fields.positive_or_none("final_logit_softcapping")?.map(|cap| cap as f32);
    let embedding_scale = embedding_scale(fields, standard.hidden)?;
    let decoder = standard.decoder_of(layers);
    Ok(DecoderSpec { embedding_scale, layer_inputs, head: Head { softcap, ..decoder.head }, ..decoder })
}

/// Refuses what only some of these models have.
fn refuse_other_parts(fields: Fields) -> Result<()> {
    if let Some(other) = fields.text("use_bidirectional_attention")?.filter(|&which| which != "vision") {
        return Err(Error::UnsupportedModel {
            setting: "use_bidirectional_attention",
            value: format!("{other:.60}"),
            supported: "absent or vision: text is read from left to right",
        });
    }
    Ok(())
}

/// What layers get of a token besides the stream.
fn layer_inputs(fields: Fields, standard: &Standard) -> Result<Option<LayerInputs>> {
    let Some(width) = count_above_zero(fields, "hidden_size_per_layer_input")? else {
        fields.pass_over(&["vocab_size_per_layer_input"]);
        return Ok(None);
    };
    let [rows, tokens] = ["vocab_size_per_layer_input", "vocab_size"].map(|name| fields.count(name));
    let (rows, tokens) = (rows?, tokens?);
    if rows != tokens {
        return Err(fields.refuse(format!("vocab_size_per_layer_input is {rows}, but must be vocab_size, {tokens}")));
    }
    Ok(Some(LayerInputs { width, table_scale: embedding_scale(fields, width)?, norm: standard.norm }))
}
