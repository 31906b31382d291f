//! Which layers of Gemma 4 have a window, which heads, and whose keys they read.

use crate::fields::Fields;
use crate::spec::KvSource;
use crate::standard::Standard;
use base::error::{Error, Result};
use serde_json::Value;

/// Layers from one without a window to the next.
const INTERVAL: usize = 6;

/// A count, where there is one and it is not 0.
pub fn count_above_zero(fields: Fields, name: &str) -> Result<Option<usize>> {
    match fields.get(name).and_then(Value::as_u64) {
        Some(0) => Ok(None),
        _ => fields.count_or_none(name),
    }
}

/// Whose keys and values each layer reads: each of the last `num_kv_shared_layers` reads those of the last layer of its kind before them, which has the same `heads`.
pub fn kv_sources(fields: Fields, windows: &[Option<usize>], heads: &[[usize; 2]]) -> Result<Vec<KvSource>> {
    let shared = count_above_zero(fields, "num_kv_shared_layers")?.unwrap_or(0);
    let own = windows.len().checked_sub(shared).filter(|&own| own > 0).ok_or_else(|| {
        let layers = windows.len();
        fields.refuse(format!("num_kv_shared_layers is {shared}, but must be less than num_hidden_layers, {layers}"))
    })?;
    let source = |(layer, window): (usize, &Option<usize>)| {
        match layer < own {
        true => Ok(KvSource::Own),
        false => windows[..own].iter().rposition(|of| of == window).map(KvSource::Attention).ok_or_else(|| {
            fields.refuse(format!(
                "num_kv_shared_layers is {shared}, but no layer before the last {shared} is of the kind of layer {layer}"
            ))
        }),
    }
    };
    let sources = windows.iter().enumerate().map(source).collect::<Result<Vec<_>>>()?;
    for (layer, source) in sources.iter().enumerate() {
        let KvSource::Attention(of) = *source else { continue };
        if heads[layer] != heads[of] {
            return Err(fields.refuse(format!(
                "per_layer_config gives layer {layer} {} KV heads, but it reads the keys of layer {of}, which has {}",
                heads[layer][1], heads[of][1]
            )));
        }
    }
    Ok(sources)
}

/// The window of each layer. The last has none, whatever the config says.
pub fn windows(fields: Fields, standard: &Standard) -> Result<Vec<Option<usize>>> {
    let mut windows = standard.windows(fields, |layer| !(layer + 1).is_multiple_of(INTERVAL))?;
    if let Some(last @ Some(_)) = windows.last_mut() {
        *last = None;
        fields.warn(format_args!("the last layer has no window in a model of this class, whatever layer_types says"));
    }
    Ok(windows)
}

/// Numbers in a head of each layer, and its KV heads: what `per_layer_config` says, or else `global_head_dim` and
/// `num_global_key_value_heads` for layers without a window.
pub fn heads(fields: Fields, standard: &Standard, windows: &[Option<usize>]) -> Result<Vec<[usize; 2]>> {
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
    // Layers with a window share a rotation, and so do those without.
    for (layer, [head_dim, _]) in heads.iter().enumerate() {
        let first = windows.iter().position(|window| *window == windows[layer]).unwrap_or(layer);
        if heads[first][0] != *head_dim {
            return Err(fields.refuse(format!(
                "head_dim of layer {layer} is {head_dim} by per_layer_config, but must be {}, as in layer {first}, which is of the same kind",
                heads[first][0]
            )));
        }
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
