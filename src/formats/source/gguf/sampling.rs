//! The sampling that a GGUF file recommends, as the generation_config.json that it was made of.

use super::Header;
use serde_json::{Map, Value};

/// The keys, and the fields of a generation_config.json.
const KEYS: &[(&str, &str)] = &[
    ("general.sampling.temp", "temperature"),
    ("general.sampling.top_p", "top_p"),
    ("general.sampling.min_p", "min_p"),
    ("general.sampling.penalty_repeat", "repetition_penalty"),
];

/// The generation_config.json of a file; `None` if it recommends nothing.
///
/// # Errors
///
/// What is no number.
pub fn json(header: &Header) -> Result<Option<Vec<u8>>, String> {
    let mut config = Map::new();
    for (key, field) in KEYS {
        if let Some(number) = header.number(key)? {
            config.insert((*field).into(), Value::from(number));
        }
    }
    // 0 and negative numbers stand for all tokens.
    if let Some(number) = header.number("general.sampling.top_k")? {
        config.insert("top_k".into(), Value::from(number.clamp(0.0, f64::from(u32::MAX)) as u32));
    }
    if config.is_empty() {
        return Ok(None);
    }
    let is_greedy = config.get("temperature").and_then(Value::as_f64) == Some(0.0);
    let samples = !is_greedy && config.keys().any(|field| field != "repetition_penalty");
    config.insert("do_sample".into(), Value::Bool(samples));
    Ok(Some(Value::Object(config).to_string().into_bytes()))
}
