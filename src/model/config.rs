//! What config.json of a Hugging Face model folder says, checked: later layers need not doubt these numbers.

use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::rope::Rope;
use crate::model::spec::{Bias, Head};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A config.json larger than this is not one.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

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
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Io { path, source }
        };
        if !fs::metadata(folder).map_err(at(folder))?.is_dir() {
            return Err(Error::ModelFile { path: folder.into(), reason: "is not a folder".into() });
        }
        let path = folder.join("config.json");
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::ModelFile { path, reason: "is missing from the model folder".into() });
            }
            Err(error) => return Err(at(&path)(error)),
            Ok(facts) if facts.len() > CONFIG_BYTES_MAX => {
                let reason = format!("has {} bytes, but at most {CONFIG_BYTES_MAX} are read", facts.len());
                return Err(Error::ModelFile { path, reason });
            }
            Ok(_) => fs::read(&path).map_err(at(&path))?,
        };
        HfConfig::parse(&path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<HfConfig> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|e| Error::ModelFile { path: path.into(), reason: format!("is not JSON: {e}") })?;
        let fields = Fields::new(path, &value)?;
        let architectures = architectures(fields)?;
        refuse_what_is_not_computed(fields)?;

        let num_attention_heads = fields.count("num_attention_heads")?;
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
