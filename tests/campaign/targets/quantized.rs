//! Quantized folders whose settings or tensors are changed.

use super::folders::{change_json, change_tensors, file, replaced};
use crate::case::{Content, Input};
use crate::random::Rng;
use serde_json::{Value, json};

const FOLDERS: &[&str] = &[
    "tests/golden/quantized/awq-group32",
    "tests/golden/quantized/ct-fp8-block",
    "tests/golden/quantized/ct-int4-zeros",
    "tests/golden/quantized/ct-int8-zeros",
    "tests/golden/quantized/ct-mixed",
    "tests/golden/quantized/fp8-block-bf16-scales",
    "tests/golden/quantized/gptq4-desc-act",
    "tests/golden/quantized/gptq8-v2",
];

const NAMES: &[&str] = &[
    "quant_method",
    "compressed-tensors",
    "fp8",
    "awq",
    "gptq",
    "mxfp4",
    "bits",
    "group_size",
    "desc_act",
    "sym",
    "checkpoint_format",
    "gptq_v2",
    "dynamic",
    "zero_point",
    "version",
    "weight_block_size",
    "config_groups",
    "targets",
    "Linear",
    "re:.*",
    "re:(a*)*b",
    "re:(?!x)(.*)*$",
    "weights",
    "num_bits",
    "type",
    "int",
    "float",
    "symmetric",
    "strategy",
    "tensor",
    "channel",
    "group",
    "block",
    "block_structure",
    "actorder",
    "format",
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "mixed-precision",
    "ignore",
];

/// The folders as they are, and settings that ask for much.
pub fn corpus() -> Vec<Input> {
    let of = |folder: &str, what: &str, quantization: Value| {
        let mut config: Value = serde_json::from_slice(&file(folder, "config.json")).unwrap();
        config["quantization_config"] = quantization;
        replaced(what.to_owned(), folder, "config.json", Content::Bytes(config.to_string().into_bytes()))
    };
    let as_they_are = FOLDERS.iter().map(|folder| {
        replaced(format!("{folder} as it is"), folder, "config.json", Content::Bytes(file(folder, "config.json")))
    });
    let mut all: Vec<Input> = as_they_are.collect();
    let packed = |targets: Value| {
        let weights = json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32});
        json!({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": targets, "weights": weights}}})
    };
    let slow = |pattern: String| packed(Value::from(vec![pattern; 64]));
    for pattern in
        ["re:(a*)*b", "re:(?=(.*)*x)(.*)*y", "re:((((.*)*)*)*)*z", "re:(?:a{1000}){1000}", "re:(.*)\\1\\1\\1x"]
    {
        all.push(of(FOLDERS[2], pattern, slow(pattern.to_owned())));
    }
    all.push(of(FOLDERS[2], "a long pattern", slow(format!("re:{}", "(a|b)*".repeat(600)))));
    all.push(of(FOLDERS[2], "many names", packed(Value::from(vec!["model.layers.0.mlp"; 50_000]))));
    for size in [1u64, 3, 16, 1 << 20, 1 << 24, 1 << 40, u64::MAX] {
        all.push(of(FOLDERS[0], "groups", json!({"quant_method": "awq", "bits": 4, "group_size": size})));
        all.push(of(FOLDERS[6], "groups", json!({"quant_method": "gptq", "bits": 4, "group_size": size})));
        let block = json!({"quant_method": "fp8", "weight_block_size": [size, size]});
        all.push(of(FOLDERS[5], "blocks", block));
    }
    all
}

/// Other settings, or other tensors.
pub fn change(rng: &mut Rng, _: &[Input]) -> Input {
    let folder = *rng.pick(FOLDERS);
    if rng.one_in(2) {
        let bytes = change_json(rng, file(folder, "config.json"), NAMES);
        return replaced("config.json changed".to_owned(), folder, "config.json", Content::Bytes(bytes));
    }
    let bytes = change_tensors(rng, file(folder, "model.safetensors"));
    replaced("model.safetensors changed".to_owned(), folder, "model.safetensors", Content::Bytes(bytes))
}
