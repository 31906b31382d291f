//! The rotary embedding of a GGUF file.
//!
//! `rope.scaling.type` names linear and yarn. Factors of single frequencies are tensors: `rope_freqs` for all contexts, as Llama 3
//! has them, and `rope_factors_short` and `rope_factors_long`, as Phi-3 has them. Both become a longrope scaling, whose first two sets
//! are the same in the first case.

use super::config::Config;
use base::error::{Error, Result};
use serde_json::{Value, json};

/// Sets the fields of the rotary embedding.
pub fn read(config: &mut Config) -> Result<()> {
    let keys = config.keys;
    config.set("rope_theta", keys.positive_or_none("rope.freq_base")?.unwrap_or(10_000.0));
    let head_dim = config.head_dim()?;
    if let Some(rotary) = keys.count_or_none("rope.dimension_count")?.filter(|&rotary| rotary != head_dim) {
        config.set("partial_rotary_factor", share(rotary, head_dim));
    }
    let original = match keys.count_or_none("rope.scaling.original_context_length")? {
        Some(original) => original,
        None => keys.count("context_length")?,
    };
    let factor = match config.positive("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => config.positive("rope.scale_linear")?,
    };
    let attention_factor = config.positive("rope.scaling.attn_factor")?;
    let kind = keys.text("rope.scaling.type")?;
    let scaling = match factors(config)? {
        Some((short, long)) => {
            if kind == Some("yarn") || factor.is_some_and(|factor| factor != 1.0) {
                return Err(
                    keys.refuse("has factors of frequencies and rope.scaling.factor, of which one is read".into())
                );
            }
            json!({
                "rope_type": "longrope", "short_factor": short, "long_factor": long,
                "attention_factor": attention_factor.unwrap_or(1.0), "original_max_position_embeddings": original,
            })
        }
        None => match (kind, factor) {
            (Some("yarn"), Some(factor)) => yarn(config, factor, original, attention_factor)?,
            (Some("yarn"), None) => return Err(keys.refuse("rope.scaling.factor is missing".into())),
            _ if attention_factor.is_some_and(|factor| factor != 1.0) => {
                return Err(Error::UnsupportedModel {
                    setting: "rope.scaling.attn_factor",
                    value: attention_factor.unwrap_or(1.0).to_string(),
                    supported: "1 without yarn and without factors of frequencies",
                });
            }
            (None | Some("linear"), Some(factor)) if factor != 1.0 => json!({"rope_type": "linear", "factor": factor}),
            (None | Some("none" | "linear" | "longrope"), _) => return Ok(()),
            (Some(other), _) => {
                return Err(Error::UnsupportedModel {
                    setting: "rope.scaling.type",
                    value: format!("{other:.60}"),
                    supported: "none, linear, yarn or longrope",
                });
            }
        },
    };
    config.set("rope_scaling", scaling);
    Ok(())
}

/// Sets the fields of two rotary embeddings: whole heads of layers with a window turn, and of the others, with heads of `head_dim` numbers, the first
/// pairs. The factors of the other pairs are so great that they stand still.
pub fn read_proportional(config: &mut Config, head_dim: usize, sliding_theta: f64) -> Result<()> {
    /// What a conversion writes is 1e30.
    const STANDS_STILL: f64 = 1e20;
    let keys = config.keys;
    let factors = config.small_tensor("rope_freqs.weight")?;
    let factors: Vec<f64> =
        factors.iter().flat_map(|factors| factors.as_array()).flatten().filter_map(Value::as_f64).collect();
    let turning = factors.iter().take_while(|&&factor| factor == 1.0).count();
    let stand_still = factors[turning..].iter().all(|&factor| factor > STANDS_STILL);
    if factors.len() != head_dim / 2 || turning == 0 || !stand_still {
        return Err(keys.refuse(format!(
            "rope_freqs.weight must have {} factors, first ones of 1 and then ones above {STANDS_STILL:e}",
            head_dim / 2
        )));
    }
    let theta = keys.positive("rope.freq_base")?;
    let full = json!({"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share(2 * turning, head_dim)});
    let sliding = json!({"rope_type": "default", "rope_theta": sliding_theta});
    config.set("rope_parameters", json!({"full_attention": full, "sliding_attention": sliding}));
    ["rope_theta", "rope_scaling", "partial_rotary_factor"].iter().for_each(|field| config.remove(field));
    Ok(())
}

/// The share of a head that turns, of which [`Rope::rotary`](crate::rope::Rope::rotary) makes `rotary` again.
fn share(rotary: usize, head_dim: usize) -> f64 {
    let share = rotary as f64 / head_dim as f64;
    if ((head_dim as f64 * share) as usize) < rotary { share.next_up() } else { share }
}

/// Factors by which frequencies are divided in contexts up to the original length, and in longer ones.
fn factors(config: &Config) -> Result<Option<(Value, Value)>> {
    if let Some(factors) = config.small_tensor("rope_freqs.weight")? {
        return Ok(Some((factors.clone(), factors)));
    }
    let short = config.small_tensor("rope_factors_short.weight")?;
    match (short, config.small_tensor("rope_factors_long.weight")?) {
        (Some(short), Some(long)) => Ok(Some((short, long))),
        (None, None) => Ok(None),
        _ => Err(config
            .keys
            .refuse("has one of rope_factors_short.weight and rope_factors_long.weight, but must have both".into())),
    }
}

fn yarn(config: &Config, factor: f64, original: usize, attention_factor: Option<f64>) -> Result<Value> {
    let mut scaling = json!({"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original});
    for (key, field) in [
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
        ("rope.scaling.yarn_attn_factor", "attention_factor"),
    ] {
        if let Some(number) = config.positive(key)? {
            scaling[field] = json!(number);
        }
    }
    if let Some(weight) = config.positive("rope.scaling.yarn_log_multiplier")? {
        (scaling["mscale"], scaling["mscale_all_dim"]) = (json!(1.0), json!(weight));
    }
    if let Some(more) = attention_factor.filter(|&more| more != 1.0) {
        let own = scaling.get("attention_factor").and_then(Value::as_f64);
        let own = own.unwrap_or(if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 });
        scaling["attention_factor"] = json!(own * more);
    }
    Ok(scaling)
}
