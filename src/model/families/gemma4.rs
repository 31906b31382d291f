//! Gemma 4, dense: as Gemma 3, with norms whose weights are stored as they are, scores that are not scaled, values that are normalized without
//! weights, and a factor of the stream behind each layer. Layers without a window have heads of another size, other KV heads, and in larger models
//! no projection to values of their own; the first pairs of their heads turn, and the others do not.

use super::{Family, gemma2};
use crate::fields::Fields;
use crate::names::Names;
use crate::spec::{
    Bias, DecoderSpec, Head, LayerSpec, Mlp, MlpForm, NormOrder, QkNorm, SelfAttention, StreamScale, SublayerNorms,
    Values,
};
use crate::standard::{FULL, SLIDING, Standard, activation, embedding_scale, ropes_by_layer_type};
use base::error::{Error, Result};
use compute::AttentionSpec;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Gemma 4, dense without embeddings per layer, its decoder alone",
    classes: &["Gemma4ForCausalLM"],
    model_type: "gemma4_text",
    defaults: || {
        let of_class = json!({
            "max_position_embeddings": 131_072, "sliding_window": 512, "hidden_size_per_layer_input": 256
        });
        with_defaults(of_class)
    },
    ignores: &["num_experts", "hidden_act"],
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

pub const NAMES: Names = Names { stream_scale: "layer_scalar", ..gemma2::NAMES };

/// Base of the rotary embedding of layers with a window.
const SLIDING_THETA: f64 = 10_000.0;

/// Layers from one without a window to the next.
const INTERVAL: usize = 6;

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
    let mlp = Mlp { form: MlpForm::gated(activation(fields, "hidden_activation")?), ..standard.mlp(Bias::None) };
    let norms = SublayerNorms::around(standard.norm);
    let layer = |(window, [head_dim, kv_heads]): (Option<usize>, [usize; 2])| {
        let attention = standard.attention(head_dim);
        let is_full = window.is_none();
        let attention = SelfAttention {
            scores: AttentionSpec { window, scale: 1.0, ..attention.scores },
            kv_heads,
            head_dim,
            qk_norm,
            values: if values_are_keys && is_full { Values::Keys } else { Values::Projected },
            value_norm: Some(standard.norm.eps),
            qkv_bias: bias,
            output_bias: bias,
            rope: Some(if is_full { FULL } else { SLIDING }),
            ..attention
        };
        let layer = standard.layer(attention, mlp.clone()).with_norms(norms);
        LayerSpec { stream_scale: StreamScale::Stored, ..layer }
    };
    let layers = windows.into_iter().zip(heads).map(layer).collect();
    let softcap = fields.positive_or_none("final_logit_softcapping")?.map(|cap| cap as f32);
    let embedding_scale = embedding_scale(fields, standard.hidden)?;
    let decoder = standard.decoder_of(layers);
    Ok(DecoderSpec { embedding_scale, head: Head { softcap, ..decoder.head }, ..decoder })
}

/// Refuses what only some of these models have, and what has no effect without it is passed over.
fn refuse_other_parts(fields: Fields) -> Result<()> {
    fields.must_be("enable_moe_block", false)?;
    if let Some(other) = fields.text("use_bidirectional_attention")?.filter(|&which| which != "vision") {
        return Err(Error::UnsupportedModel {
            setting: "use_bidirectional_attention",
            value: format!("{other:.60}"),
            supported: "absent or vision: text is read from left to right",
        });
    }
    const ABSENT: &str =
        "absent or 0: models with embeddings per layer, or layers that read the keys of others, are not computed";
    for setting in ["hidden_size_per_layer_input", "num_kv_shared_layers"] {
        if let Some(value) = fields.get(setting).filter(|value| value.as_u64() != Some(0)) {
            return Err(Error::UnsupportedModel { setting, value: Fields::shown(value), supported: ABSENT });
        }
    }
    // Of experts, of embeddings per layer, and of layers that read the keys of others.
    fields.pass_over(&["top_k_experts", "moe_intermediate_size", "vocab_size_per_layer_input", "use_double_wide_mlp"]);
    Ok(())
}

/// The window of each layer. The last has none, whatever the config says.
fn windows(fields: Fields, standard: &Standard) -> Result<Vec<Option<usize>>> {
    let mut windows = standard.windows(fields, |layer| !(layer + 1).is_multiple_of(INTERVAL))?;
    if let Some(last @ Some(_)) = windows.last_mut() {
        *last = None;
        fields.warn(format_args!("the last layer has no window in a model of this class, whatever layer_types says"));
    }
    Ok(windows)
}

/// Numbers in a head of each layer, and its KV heads: what `per_layer_config` says, or else `global_head_dim` and
/// `num_global_key_value_heads` for layers without a window.
fn heads(fields: Fields, standard: &Standard, windows: &[Option<usize>]) -> Result<Vec<[usize; 2]>> {
    let own = [fields.count("head_dim")?, fields.count("num_key_value_heads")?];
    let query_heads = standard.attention(own[0]).scores.heads;
    let of_full = ["global_head_dim", "num_global_key_value_heads"];
    let mut heads = vec![own; windows.len()];
    if let Some(layers) = fields.object("per_layer_config")? {
        for (name, _) in layers.iter() {
            let Some(heads) = name.parse().ok().and_then(|layer: usize| heads.get_mut(layer)) else {
                let count = windows.len();
                return Err(layers.refuse(format!("per_layer_config has {name:.60}, but the model has {count} layers")));
            };
            let Some(layer) = layers.object(name)? else { continue };
            const KNOWN: [&str; 2] = ["head_dim", "num_key_value_heads"];
            if let Some((other, value)) = layer.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
                return Err(Error::UnsupportedModel {
                    setting: "per_layer_config",
                    value: format!("{other:.60} {}", Fields::shown(value)),
                    supported: "head_dim and num_key_value_heads",
                });
            }
            for (number, name) in heads.iter_mut().zip(KNOWN) {
                *number = layer.count_or_none(name)?.unwrap_or(*number);
            }
        }
        fields.pass_over(&of_full);
    } else {
        let [head_dim, kv_heads] = of_full.map(|name| fields.count_or_none(name));
        // As transformers has it.
        let kv_heads = kv_heads?.filter(|_| matches!(fields.flag("attention_k_eq_v"), Ok(Some(true))));
        let full = [head_dim?.unwrap_or(512), kv_heads.unwrap_or(own[1])];
        heads.iter_mut().zip(windows).filter(|(_, window)| window.is_none()).for_each(|(heads, _)| *heads = full);
    }
    match heads.iter().position(|&[_, kv_heads]| !query_heads.is_multiple_of(kv_heads)) {
        None => Ok(heads),
        Some(layer) => Err(fields.refuse(format!(
            "layer {layer} has {} KV heads by per_layer_config or num_global_key_value_heads, but must have a divisor of num_attention_heads, \
             which is {query_heads}",
            heads[layer][1]
        ))),
    }
}
