//! What is a model, before any of its weights is read?
//!
//! Invariant: a [`Description`] can be computed, as far as its numbers go; only tensors may still be missing.

use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::model::config::HfConfig;
use crate::model::families;
use crate::model::fields::Fields;
use crate::model::names::Names;
use crate::model::spec::DecoderSpec;
use serde_json::Value;
use std::path::Path;

/// A model, as its source describes it.
#[derive(Debug)]
pub struct Description {
    /// What is computed.
    pub spec: DecoderSpec,
    /// What the tensors are called.
    pub names: &'static Names,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
}

impl Description {
    /// Reads and checks the config of the model in `folder`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] for a config that
    /// cannot be read or says what no model is; [`Error::Architecture`] and
    /// [`Error::UnsupportedModel`] for a model that this library does not compute.
    pub fn read(folder: &Path) -> Result<Description> {
        Description::of(HfConfig::read(folder)?)
    }

    fn of(config: HfConfig) -> Result<Description> {
        let family = families::find(&config.architectures)?;
        let fields = config.fields();
        refuse_what_is_not_computed(fields)?;
        let spec = (family.spec)(fields)?;
        spec.check()?;
        Ok(Description { spec, names: family.names, bos_token: config.bos_token, eos_tokens: config.eos_tokens })
    }
}

/// Settings that change what a model computes, in ways that the decoder does not.
fn refuse_what_is_not_computed(fields: Fields) -> Result<()> {
    let refuse = |setting, value: String, supported| Err(Error::UnsupportedModel { setting, value, supported });
    match fields.text("hidden_act")? {
        None | Some("silu") => {}
        Some(other) => return refuse("hidden_act", other.into(), "silu"),
    }
    if fields.flag("use_sliding_window")? == Some(true) {
        return refuse("use_sliding_window", "true".into(), "false: every layer sees the whole context");
    }
    let layers = fields.get("layer_types").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if let Some(other) = layers.iter().find(|layer| layer.as_str() != Some("full_attention")) {
        return refuse("layer_types", other.to_string(), "full_attention in every layer");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::{Bias, FeedForward, Head, Norm, QkNorm};
    use serde_json::{Value, json};

    /// The config of Qwen3-0.6B as its folder has it, with changes.
    fn parse(changes: Value) -> Result<Description> {
        let mut config = json!({
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
            "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
            "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
            "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
            "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
            "use_sliding_window": false, "vocab_size": 151936
        });
        let object = config.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value.as_str() {
                Some("(absent)") => drop(object.remove(name)),
                _ => drop(object.insert(name.clone(), value.clone())),
            }
        }
        Description::of(HfConfig::parse(Path::new("config.json"), config.to_string().as_bytes())?)
    }

    #[test]
    fn the_config_of_a_real_model_is_read() {
        let spec = parse(json!({})).unwrap().spec;
        assert_eq!((spec.layers.len(), spec.hidden, spec.vocab, spec.max_positions), (28, 1024, 151936, 40960));
        assert_eq!((spec.feed_forward_width(), spec.head, spec.ropes[0].theta), (3072, Head::Tied, 1e6));
        let attention = spec.attention();
        assert_eq!((attention.scores.heads, attention.kv_heads, attention.head_dim), (16, 8, 128));
        assert_eq!((attention.qk_norm, attention.qkv_bias), (QkNorm::PerHead(spec.final_norm), Bias::None));
    }

    #[test]
    fn what_is_absent_or_null_has_the_default_of_its_family() {
        for gone in [json!("(absent)"), json!(null)] {
            let config = parse(json!({
                "num_key_value_heads": gone, "head_dim": gone, "rms_norm_eps": gone, "tie_word_embeddings": gone,
                "hidden_act": gone, "bos_token_id": gone, "eos_token_id": gone, "rope_theta": gone
            }));
            let Description { spec, bos_token, eos_tokens, .. } = config.unwrap();
            assert_eq!((spec.attention().kv_heads, spec.final_norm.eps), (16, 1e-6));
            assert_eq!((spec.head, spec.ropes[0].theta), (Head::Own, 10_000.0));
            assert_eq!((bos_token, eos_tokens.len()), (None, 0));
            assert_eq!(spec.attention().head_dim, 128, "Qwen3 has its own default");
        }
        let changes = json!({"architectures": ["LlamaForCausalLM"], "head_dim": null});
        assert_eq!(parse(changes).unwrap().spec.attention().head_dim, 64, "hidden_size / heads");
    }

    #[test]
    fn families_differ_in_norms_and_biases() {
        let of = |name: &str, flag: bool| {
            let changes = json!({"architectures": [name], "attention_bias": flag, "mlp_bias": flag});
            let spec = parse(changes).unwrap().spec;
            let (attention, FeedForward::Dense(mlp)) = (spec.attention(), &spec.layers[0].feed_forward);
            (attention.qk_norm, attention.qkv_bias, attention.output_bias, mlp.bias)
        };
        use Bias::{Added, None as No};
        let per_head = QkNorm::PerHead(Norm { eps: 1e-6 });
        assert_eq!(of("Qwen3ForCausalLM", true), (per_head, Added, Added, No));
        assert_eq!(of("Qwen2ForCausalLM", false), (QkNorm::None, Added, No, No));
        assert_eq!(of("LlamaForCausalLM", false), (QkNorm::None, No, No, No));
        assert_eq!(of("LlamaForCausalLM", true), (QkNorm::None, Added, Added, Added));
    }

    #[test]
    fn end_tokens_are_a_number_or_a_list() {
        assert_eq!(parse(json!({"eos_token_id": 7})).unwrap().eos_tokens, [7]);
        assert_eq!(parse(json!({"eos_token_id": [7, 9]})).unwrap().eos_tokens, [7, 9]);
        for wrong in [json!(-1), json!("7"), json!([7, null]), json!(1.5), json!(1u64 << 40)] {
            assert!(matches!(parse(json!({"eos_token_id": wrong})), Err(Error::ModelFile { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_field_that_is_missing_or_absurd_is_named() {
        let counts = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
        let absurd =
            [json!(0), json!(-4), json!(1.5), json!("many"), json!([1]), json!(u64::MAX), json!(1e30), json!(true)];
        for field in counts.iter().chain(&["max_position_embeddings"]) {
            for value in absurd.iter().chain(&[json!("(absent)"), json!(null)]) {
                match parse(json!({*field: value})) {
                    Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{reason}"),
                    other => panic!("{field} = {value}: {other:?}"),
                }
            }
        }
        for (field, value) in [
            ("num_key_value_heads", json!(3)),
            ("num_key_value_heads", json!(32)),
            ("head_dim", json!(0)),
            ("rms_norm_eps", json!(-1e-6)),
            ("tie_word_embeddings", json!("yes")),
            ("attention_bias", json!(1)),
            ("architectures", json!("Qwen3ForCausalLM")),
            ("hidden_act", json!(4)),
            ("quantization_config", json!([])),
        ] {
            match parse(json!({field: value})) {
                Err(Error::ModelFile { reason, .. }) => assert!(reason.contains(field), "{reason}"),
                other => panic!("{field} = {value}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_long_value_is_cut_in_the_message() {
        let Err(error) = parse(json!({"hidden_size": "é".repeat(5000)})) else { panic!("accepted") };
        assert!(error.to_string().len() < 300, "{error}");
    }

    #[test]
    fn what_the_decoder_does_not_compute_is_unsupported() {
        for (field, value) in [
            ("hidden_act", json!("gelu")),
            ("use_sliding_window", json!(true)),
            ("layer_types", json!(["full_attention", "sliding_attention"])),
            ("quantization_config", json!({"quant_method": "gptq", "bits": 4})),
        ] {
            match parse(json!({field: value})) {
                Err(Error::UnsupportedModel { setting, .. }) => assert_eq!(setting, field),
                other => panic!("{field} = {value}: {other:?}"),
            }
        }
        for head_dim in [127, 1024] {
            let described = parse(json!({"head_dim": head_dim}));
            assert!(matches!(described, Err(Error::UnsupportedModel { setting: "head_dim", .. })));
        }
    }

    #[test]
    fn an_architecture_is_known_or_the_known_ones_are_listed() {
        for names in [json!(["MambaForCausalLM"]), json!([]), json!(null), json!("(absent)")] {
            match parse(json!({"architectures": names})) {
                Err(Error::Architecture { known, .. }) => assert_eq!(known.len(), 3),
                other => panic!("{names}: {other:?}"),
            }
        }
    }
}
