//! Numbers of a config that are 0 or infinite in single precision, or that no model can use, are refused when the model opens.
//! This holds for each family and kind of file. Those that are accepted compute a step.

use crate::driver;
use crate::scratch_folder;
use crate::small;
use crate::writer;

use base::error::Error;
use compute::cpu::Isa;
use driver::{config, greedy, open};
use scratch_folder::Folder;
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use writer::{Value, Writer};

/// Folders, and where the numbers that they are computed with stand in config.json.
const NUMBERS: &[(&str, &[&str])] = &[
    (
        "gemma2-f32",
        &[
            "/rms_norm_eps",
            "/attn_logit_softcapping",
            "/final_logit_softcapping",
            "/query_pre_attn_scalar",
            "/rope_parameters/rope_theta",
        ],
    ),
    (
        "gemma3-f32",
        &[
            "/query_pre_attn_scalar",
            "/rope_parameters/full_attention/factor",
            "/rope_parameters/full_attention/rope_theta",
            "/rope_parameters/sliding_attention/rope_theta",
        ],
    ),
    ("gemma3-bf16-old-keys", &["/rope_local_base_freq", "/rope_theta"]),
    ("granite-f32", &["/attention_multiplier", "/embedding_multiplier", "/logits_scaling", "/residual_multiplier"]),
    (
        "granitemoehybrid-f32",
        &["/attention_multiplier", "/embedding_multiplier", "/logits_scaling", "/residual_multiplier"],
    ),
    ("cohere2-f32", &["/layer_norm_eps", "/logit_scale"]),
    (
        "llama-f32-llama3",
        &[
            "/rope_parameters/factor",
            "/rope_parameters/high_freq_factor",
            "/rope_parameters/low_freq_factor",
            "/rope_parameters/rope_theta",
        ],
    ),
    ("llama-f32-linear-biased", &["/rope_parameters/factor"]),
    ("qwen3-f32-yarn", &["/rope_parameters/factor", "/rope_parameters/attention_factor"]),
    (
        "qwen3-f32-yarn-mscale",
        &[
            "/rope_scaling/beta_fast",
            "/rope_scaling/beta_slow",
            "/rope_scaling/factor",
            "/rope_scaling/mscale",
            "/rope_scaling/mscale_all_dim",
            "/rope_theta",
        ],
    ),
    ("ministral3-f32-yarn", &["/rope_parameters/llama_4_scaling_beta"]),
    (
        "phi3-f32-longrope-long",
        &[
            "/partial_rotary_factor",
            "/rope_scaling/attention_factor",
            "/rope_scaling/factor",
            "/rope_scaling/long_factor/1",
            "/rope_scaling/short_factor/1",
        ],
    ),
    ("hunyuan-bf16-alpha", &["/rope_scaling/alpha", "/rope_theta"]),
    ("glm4-f32", &["/rope_parameters/partial_rotary_factor"]),
    ("olmo3-f32", &["/rope_parameters/full_attention/factor"]),
    (
        "gemma4_text-f32-biased",
        &[
            "/rms_norm_eps",
            "/rope_parameters/full_attention/factor",
            "/rope_parameters/full_attention/partial_rotary_factor",
            "/rope_parameters/full_attention/rope_theta",
            "/rope_parameters/sliding_attention/rope_theta",
        ],
    ),
    ("gemma4-f32-keys-are-values", &["/text_config/final_logit_softcapping"]),
    (
        "muse_glimmer-f32",
        &[
            "/text_config/final_logit_softcapping",
            "/text_config/output_multiplier",
            "/text_config/post_norm_eps",
            "/text_config/qk_scale_factor",
            "/text_config/rms_norm_eps",
        ],
    ),
];

/// Sets a value, and adds the field if it is not there.
fn set(config: &mut Json, place: &str, value: &Json) {
    let (parent, field) = place.rsplit_once('/').unwrap();
    match config.pointer_mut(parent).unwrap() {
        Json::Array(list) => list[field.parse::<usize>().unwrap()] = value.clone(),
        object => object[field] = value.clone(),
    }
}

/// Opens a model and computes a step with it, unless it is refused as one that is not right.
fn answer(path: &Path) -> Result<(), Error> {
    let (mut runner, info) = open(path, &config(), Isa::Portable)?;
    greedy(&mut runner, &info.limits, &[1, 2, 3], 2);
    Ok(())
}

fn assert_refused(what: &str, answered: Result<(), Error>) {
    match answered {
        Err(Error::ModelFile { .. } | Error::UnsupportedModel { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_number_that_is_none_in_single_precision_is_refused() {
    let bad = [json!(0), json!(1e-300), json!(1e-40), json!(1e300), json!(1e39), json!(-1), json!("NaN"), json!(true)];
    for (name, places) in NUMBERS {
        let folder = Folder::copy(name, "bad-numbers");
        answer(&folder.path).unwrap();
        let config = fs::read(folder.file("config.json")).unwrap();
        for place in *places {
            for value in &bad {
                // It stands for a weight that is not set.
                if place.contains("mscale") && *value == json!(0) {
                    continue;
                }
                folder.edit_json("config.json", |config| set(config, place, value));
                assert_refused(&format!("{name}, {place} is {value}"), answer(&folder.path));
                fs::write(folder.file("config.json"), &config).unwrap();
            }
        }
    }
}

#[test]
fn extreme_numbers_that_single_precision_has_are_refused_or_computed() {
    for (name, places) in NUMBERS {
        let folder = Folder::copy(name, "extreme-numbers");
        let config = fs::read(folder.file("config.json")).unwrap();
        for place in *places {
            for value in [json!(1.2e-38), json!(1e-20), json!(1e20), json!(3.4e38)] {
                folder.edit_json("config.json", |config| set(config, place, &value));
                if let answered @ Err(_) = answer(&folder.path) {
                    assert_refused(&format!("{name}, {place} is {value}"), answered);
                }
                fs::write(folder.file("config.json"), &config).unwrap();
            }
        }
    }
}

#[test]
fn numbers_that_are_good_each_and_not_together_are_refused() {
    type Changes = &'static [(&'static str, f64)];
    const CASES: &[(&str, Changes, &str)] = &[
        (
            "llama-f32-llama3",
            &[("/rope_parameters/low_freq_factor", 1.0), ("/rope_parameters/high_freq_factor", 1.000_000_000_1)],
            "must be above low_freq_factor",
        ),
        ("llama-f32-linear-biased", &[("/rope_parameters/factor", 1e-36)], "rope_scaling is one that makes"),
        (
            "phi3-f32-longrope-long",
            &[("/original_max_position_embeddings", 1.0), ("/rope_scaling/factor", 2.0)],
            "the factor of attention",
        ),
        ("ministral3-f32-yarn", &[("/rope_parameters/llama_4_scaling_beta", 1e38)], "llama_4_scaling_beta is inf"),
        ("llama-f32-gqa1", &[("/rope_parameters/rope_theta", 1.000_000_000_1)], "must be a number above 1"),
    ];
    for (name, changes, words) in CASES {
        let folder = Folder::copy(name, "numbers-together");
        for (place, number) in *changes {
            let value = if number.fract() == 0.0 && *number < 10.0 { json!(*number as u64) } else { json!(number) };
            folder.edit_json("config.json", |config| set(config, place, &value));
        }
        let error = answer(&folder.path).expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[test]
fn what_is_no_number_of_json_is_refused() {
    for word in ["NaN", "Infinity", "-Infinity", "1e999"] {
        let folder = Folder::copy("gemma2-f32", "no-numbers");
        let config = fs::read_to_string(folder.file("config.json")).unwrap();
        let changed = config.replace("\"attn_logit_softcapping\": 2.0", &format!("\"attn_logit_softcapping\": {word}"));
        assert_ne!(config, changed);
        fs::write(folder.file("config.json"), changed).unwrap();
        assert_refused(word, answer(&folder.path));
    }
}

/// A small Gemma 2.
fn gemma2() -> Writer {
    let mut file = small::model();
    for (key, _) in &mut file.entries {
        if key.starts_with(b"llama.") {
            key.splice(..b"llama".len(), *b"gemma2");
        }
    }
    file.set("general.architecture", "gemma2")
        .set("gemma2.attention.sliding_window", Value::U32(16))
        .set("gemma2.attention.key_length", Value::U32(16))
        .set("gemma2.attention.value_length", Value::U32(16))
        .set("gemma2.attn_logit_softcapping", Value::F32(50.0))
        .set("gemma2.final_logit_softcapping", Value::F32(30.0));
    for name in ["blk.0.post_attention_norm.weight", "blk.0.post_ffw_norm.weight"] {
        file.tensor(name, &[small::HIDDEN], &small::numbers(7, small::HIDDEN));
    }
    file
}

/// A small model whose rotation is stretched.
fn yarn() -> Writer {
    let mut file = small::model();
    file.set("llama.rope.scaling.type", "yarn")
        .set("llama.rope.scaling.factor", Value::F32(4.0))
        .set("llama.rope.scaling.original_context_length", Value::U32(16))
        .set("llama.rope.freq_base", Value::F32(10_000.0));
    file
}

/// A small Granite.
fn granite() -> Writer {
    let mut file = small::model();
    for (key, _) in &mut file.entries {
        if key.starts_with(b"llama.") {
            key.splice(..b"llama".len(), *b"granite");
        }
    }
    file.set("general.architecture", "granite");
    file
}

#[test]
fn numbers_of_a_gguf_file_are_checked_in_single_precision_too() {
    type Make = fn() -> Writer;
    const FILES: &[(Make, &[&str])] = &[
        (
            gemma2,
            &[
                "gemma2.attention.layer_norm_rms_epsilon",
                "gemma2.attn_logit_softcapping",
                "gemma2.final_logit_softcapping",
                "gemma2.rope.freq_base",
            ],
        ),
        (
            granite,
            &["granite.embedding_scale", "granite.residual_scale", "granite.logit_scale", "granite.attention.scale"],
        ),
        (
            yarn,
            &[
                "llama.rope.freq_base",
                "llama.rope.scaling.factor",
                "llama.rope.scaling.attn_factor",
                "llama.rope.scaling.yarn_beta_fast",
                "llama.rope.scaling.yarn_beta_slow",
                "llama.rope.scaling.yarn_attn_factor",
                "llama.rope.scaling.yarn_log_multiplier",
            ],
        ),
    ];
    let folder = std::env::temp_dir().join(format!("nanovllm-gguf-numbers-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.gguf");
    for (make, keys) in FILES {
        fs::write(&path, make().bytes()).unwrap();
        answer(&path).unwrap();
        for key in *keys {
            let doubles = [1e-300, 1e-40, -1e-300, 1e300, 1e39, -1.0, f64::NAN, f64::INFINITY];
            let doubles = doubles.map(|number| Value::Raw(12, number.to_le_bytes().to_vec()));
            let singles = [1e-40, -1e-40, -1.0, f32::NAN, f32::INFINITY].map(Value::F32);
            for value in doubles.into_iter().chain(singles) {
                let mut file = make();
                let shown = match &value {
                    Value::F32(number) => format!("F32 {number:e}"),
                    Value::Raw(_, bytes) => format!("F64 {:e}", f64::from_le_bytes(bytes[..].try_into().unwrap())),
                    _ => unreachable!("numbers alone"),
                };
                file.set(key, value);
                fs::write(&path, file.bytes()).unwrap();
                assert_refused(&format!("{key} is {shown}"), answer(&path));
            }
            // 0 stands for nothing in these files, but for the base of the rotation, and yarn needs its factor.
            let mut file = make();
            file.set(key, Value::F32(0.0));
            fs::write(&path, file.bytes()).unwrap();
            match key.ends_with("freq_base") || key.ends_with("scaling.factor") {
                true => assert_refused(key, answer(&path)),
                false => answer(&path).unwrap_or_else(|error| panic!("{key}: {error}")),
            }
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
