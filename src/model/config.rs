//! What config.json of a Hugging Face model folder says, checked: later layers need not doubt these numbers.

use crate::backend::read_file;
use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::limits;
use crate::model::fields::Fields;
use crate::model::rope::Rope;
use crate::model::spec::{Bias, Head};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The fields of config.json that this library understands. Where `null` or absence means a default, it is applied,
/// except where the default depends on the family.
#[derive(Clone, Debug, PartialEq)]
pub struct HfConfig {
    /// Class names of the model, by which the family is chosen.
    pub architectures: Vec<String>,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads, of which `num_attention_heads` is a multiple.
    pub num_key_value_heads: usize,
    /// Numbers in a head; the default depends on the family.
    pub head_dim: Option<usize>,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Added to the mean of squares in norms.
    pub rms_norm_eps: f32,
    /// By `tie_word_embeddings`.
    pub head: Head,
    /// Of the linear layers of attention, in families that let the config say.
    pub attention_bias: Bias,
    /// Of the linear layers of the MLP, in families that let the config say.
    pub mlp_bias: Bias,
    /// Positions the model was made for, those that rope scaling adds included.
    pub max_positions: usize,
    /// Rotary position embedding.
    pub rope: Rope,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
}

impl HfConfig {
    /// Reads and checks config.json of `folder`.
    pub fn read(folder: &Path) -> Result<HfConfig> {
        let facts = fs::metadata(folder).map_err(|source| Error::Io { path: folder.into(), source })?;
        if !facts.is_dir() {
            return Err(Error::ModelFile { path: folder.into(), reason: "is not a folder".into() });
        }
        let path = folder.join("config.json");
        match read_file(&path, limits::CONFIG_FILE_BYTES)? {
            Some(bytes) => HfConfig::parse(&path, &bytes),
            None => Err(Error::ModelFile { path, reason: "is missing from the model folder".into() }),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<HfConfig> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|e| Error::ModelFile { path: path.into(), reason: format!("is not JSON: {e}") })?;
        let fields = Fields::new(path, &value)?;
        let architectures = architectures(fields)?;
        refuse_what_is_not_computed(fields)?;

        let num_attention_heads = fields.count("num_attention_heads")?;
        if num_attention_heads > limits::HEADS {
            let most = limits::HEADS;
            return Err(
                fields.refuse(format!("num_attention_heads is {num_attention_heads}, but must be at most {most}"))
            );
        }
        let num_key_value_heads = fields.count_or_none("num_key_value_heads")?.unwrap_or(num_attention_heads);
        if !num_attention_heads.is_multiple_of(num_key_value_heads) {
            return Err(fields.refuse(format!(
                "num_attention_heads is {num_attention_heads}, but must be a multiple of num_key_value_heads, which is {num_key_value_heads}"
            )));
        }
        let max_position_embeddings = fields.count("max_position_embeddings")?;
        let rope = Rope::from_config(fields, max_position_embeddings)?;
        Ok(HfConfig {
            architectures,
            hidden_size: fields.count("hidden_size")?,
            num_hidden_layers: fields.count("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads,
            head_dim: fields.count_or_none("head_dim")?,
            intermediate_size: fields.count("intermediate_size")?,
            vocab_size: fields.count("vocab_size")?,
            rms_norm_eps: fields.positive_or_none("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            head: if fields.flag("tie_word_embeddings")? == Some(true) { Head::Tied } else { Head::Own },
            attention_bias: bias(fields, "attention_bias")?,
            mlp_bias: bias(fields, "mlp_bias")?,
            max_positions: rope.scaling.max_positions(max_position_embeddings),
            rope,
            bos_token: fields.token_ids("bos_token_id")?.first().copied(),
            eos_tokens: fields.token_ids("eos_token_id")?,
        })
    }
}

fn bias(fields: Fields, name: &str) -> Result<Bias> {
    Ok(if fields.flag(name)? == Some(true) { Bias::Added } else { Bias::None })
}

fn architectures(fields: Fields) -> Result<Vec<String>> {
    let names = match fields.get("architectures") {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    let names = names.ok_or_else(|| fields.refuse("architectures must be a list of names".into()))?;
    crate::model::families::check_known(&names)?;
    Ok(names)
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
    if let Some(quantization) = fields.object("quantization_config")? {
        let method = quantization.get("quant_method").map_or("set".into(), Value::to_string);
        return refuse("quantization_config", method, "weights in BF16, F16 or F32");
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
    use crate::model::families;
    use crate::model::spec::QkNorm;
    use serde_json::json;

    /// The config of Qwen3-0.6B as its folder has it, with changes.
    fn parse(changes: Value) -> Result<HfConfig> {
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
        HfConfig::parse(Path::new("config.json"), config.to_string().as_bytes())
    }

    #[test]
    fn the_config_of_a_real_model_is_read() {
        let spec = families::spec(&parse(json!({})).unwrap()).unwrap();
        assert_eq!((spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim), (28, 1024, 16, 8, 128));
        assert_eq!((spec.intermediate, spec.vocab, spec.max_positions), (3072, 151936, 40960));
        assert_eq!((spec.qk_norm, spec.qkv_bias, spec.head), (QkNorm::PerHead, Bias::None, Head::Tied));
        assert_eq!(spec.rope.theta, 1e6);
    }

    #[test]
    fn what_is_absent_or_null_has_the_default_of_its_family() {
        for gone in [json!("(absent)"), json!(null)] {
            let config = parse(json!({
                "num_key_value_heads": gone, "head_dim": gone, "rms_norm_eps": gone, "tie_word_embeddings": gone,
                "hidden_act": gone, "bos_token_id": gone, "eos_token_id": gone, "rope_theta": gone
            }));
            let config = config.unwrap();
            assert_eq!((config.num_key_value_heads, config.rms_norm_eps), (16, 1e-6));
            assert_eq!((config.head, config.rope.theta), (Head::Own, 10_000.0));
            assert_eq!((config.bos_token, config.eos_tokens.len()), (None, 0));
            assert_eq!(families::spec(&config).unwrap().head_dim, 128, "Qwen3 has its own default");
        }
        let changes = json!({"architectures": ["LlamaForCausalLM"], "head_dim": null});
        assert_eq!(families::spec(&parse(changes).unwrap()).unwrap().head_dim, 64, "hidden_size / heads");
    }

    #[test]
    fn families_differ_in_norms_and_biases() {
        let spec = |name: &str, flag: bool| {
            let changes = json!({"architectures": [name], "attention_bias": flag, "mlp_bias": flag});
            families::spec(&parse(changes).unwrap()).unwrap()
        };
        let of = |name, flag| {
            let spec = spec(name, flag);
            (spec.qk_norm, spec.qkv_bias, spec.output_bias, spec.mlp_bias)
        };
        use Bias::{Added, None as No};
        assert_eq!(of("Qwen3ForCausalLM", true), (QkNorm::PerHead, Added, Added, No));
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
            let config = parse(json!({"head_dim": head_dim})).unwrap();
            assert!(matches!(families::spec(&config), Err(Error::UnsupportedModel { setting: "head_dim", .. })));
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
