//! A GGUF file opens as the folder that it was made of: the same logits, from the same weights.
//!
//! `tests/gguf/make_gguf.py` says what is in the files. A conversion reorders the rows of queries and keys of some families, so that
//! dot products sum their terms in another order: these agree up to rounding, and the others bit for bit.

use crate::blocks;
use crate::driver;
use crate::gguf_file;
use crate::reference;
use crate::scratch_folder;
use crate::small;
use crate::writer;

use base::error::Result;
use compute::cpu::Isa;
use driver::{config, config_of, dtype_of, greedy, open};
use formats::DType;
use gguf_file::GgufFile;
use reference::{Reference, distance};
use runner::options::EngineOptions;
use scratch_folder::Folder;
use serde_json::Value;
use std::path::Path;

/// The cases, and whether their logits are those of the folder bit for bit.
const CASES: &[(&str, bool)] = &[
    ("afmoe-f32", true),
    ("arcee-f32", false),
    ("cohere-f32", true),
    ("cohere2-f32", true),
    ("deepseek2-bf16-glm", true),
    ("deepseek2-f32-glm", true),
    ("deepseek2-f32-yarn", true),
    ("dots1-bf16", true),
    ("ernie4_5-bf16", true),
    ("ernie4_5-f32", true),
    ("ernie4_5_moe-f32", true),
    ("exaone4-bf16", true),
    ("exaone4-f32", false),
    ("exaone_moe-f32", true),
    ("falcon_h1-bf16", true),
    ("falcon_h1-f32", true),
    ("gemma-f32", true),
    ("gemma2-bf16", true),
    ("gemma2-f32", true),
    ("gemma3-bf16", true),
    ("gemma3-f32", true),
    ("gemma4-bf16", true),
    ("gemma4-f32", true),
    ("gemma4-f32-experts", true),
    ("gemma4-f32-per-layer", true),
    ("glm4-bf16", true),
    ("glm4-f32", true),
    ("glm4_moe-bf16", true),
    ("glm4_moe-f32", true),
    ("gpt_oss-f32", true),
    ("granite-f16", false),
    ("granite-f32", false),
    ("granitemoe-bf16-shared", false),
    ("granitemoe-f32", false),
    ("granitemoehybrid-bf16-mamba", false),
    ("granitemoehybrid-f32", false),
    ("granitemoehybrid-f32-experts", false),
    ("granitemoehybrid-f32-mamba", false),
    ("hunyuan-bf16-alpha", true),
    ("hunyuan-f32", true),
    ("hunyuan_moe-f32", true),
    ("lfm2-f32", true),
    ("lfm2_moe-bf16", true),
    ("llama-bf16-llama3-tied", false),
    ("llama-f16", false),
    ("llama-f32", false),
    ("llama-f32-biased", false),
    ("llama-f32-fused", false),
    ("llama-f32-llama3", false),
    ("minimax_m2-bf16", true),
    ("ministral3-f32", false),
    ("mistral-f16", false),
    ("mistral3-bf16", false),
    ("mistral4-bf16", false),
    ("mixtral-bf16", false),
    ("mixtral-f32", false),
    ("muse_glimmer-f32", false),
    ("nemotron_h-bf16", false),
    ("nemotron_h-bf16-latent", false),
    ("nemotron_h-f32", false),
    ("nemotron_h-f32-experts", false),
    ("olmo-f32", false),
    ("olmo2-f16", true),
    ("olmo2-f32", true),
    ("olmo3-bf16", true),
    ("olmo3-f32", true),
    ("olmoe-f32", true),
    ("phi3-f16-longrope-short96", true),
    ("phi3-f32-longrope", true),
    ("phi3-f32-partial", true),
    ("qwen2-bf16", true),
    ("qwen2-f16-tied", false),
    ("qwen2-f32", true),
    ("qwen2_moe-bf16", true),
    ("qwen2vl-bf16", true),
    ("qwen3-bf16-tied", true),
    ("qwen3-f16-wide", true),
    ("qwen3-f32-embedding", true),
    ("qwen3-f32-fused", true),
    ("qwen3-f32-yarn", true),
    ("qwen3_5-bf16", false),
    ("qwen3_5-f32", false),
    ("qwen3_5_moe-bf16", false),
    ("qwen3_5_moe-f32", false),
    ("qwen3_moe-bf16", true),
    ("qwen3_next-bf16", true),
    ("qwen3_next-bf16-fused", true),
    ("qwen3vl-f32", true),
    ("seed_oss-bf16", true),
    ("seed_oss-f32", true),
    ("smollm3-f32", false),
    ("stablelm-bf16", true),
    ("stablelm-f32", true),
    ("starcoder2-f32", true),
];

/// Tokens that are compared.
const TOKENS: usize = 12;

fn limit(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::Bf16 => 1e-2,
    }
}

fn merge(config: &mut Value, edits: &Value) {
    for (name, value) in edits.as_object().unwrap() {
        match (config.get_mut(name), value) {
            (Some(inner @ Value::Object(_)), Value::Object(_)) => merge(inner, value),
            _ => config[name] = value.clone(),
        }
    }
}

#[test]
fn every_file_is_a_case() {
    let cases: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    assert_eq!(GgufFile::names(), cases);
}

#[test]
fn a_file_gives_the_logits_of_its_folder() {
    let mut wrong = Vec::new();
    for &(name, is_exact) in CASES {
        let file = GgufFile::assemble(name, "logits");
        let folder = Folder::copy(&file.folder, &format!("gguf-{name}"));
        folder.edit_json("config.json", |config| merge(config, &file.config));
        let prompt = Reference::read(&file.folder).prompt;
        let follow = |path: &Path| -> Result<_> {
            let (mut runner, info) = open(path, &config_of(name), Isa::Portable)?;
            Ok((greedy(&mut runner, &info.limits, &prompt, TOKENS), info.num_parameters))
        };
        let ((tokens, wanted), parameters_of_folder) = follow(&folder.path).unwrap();
        let wanted_parameters = parameters_of_folder + file.made_weights;
        let ((found_tokens, found), parameters) = match follow(&file.path) {
            Ok(found) => found,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let furthest = found.iter().zip(&wanted).map(|(a, b)| distance(a, b)).fold(0.0, f32::max);
        println!("{name}: {furthest:.2e} apart");
        let is_near = if is_exact { found == wanted } else { furthest <= limit(dtype_of(name)) };
        let compares_tokens = is_exact || dtype_of(name) == DType::F32;
        if !is_near || parameters != wanted_parameters || compares_tokens && tokens != found_tokens {
            wrong.push(format!("{name}: {furthest:.2e} apart, {parameters} of {wanted_parameters} parameters"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A tensor has a type of its own: a file of one type, of Q4_K_M's mixture, and of what that has where rows are no multiple of 256.
#[test]
fn a_file_of_blocks_gives_the_logits_of_the_numbers_that_they_stand_for() {
    for (name, kinds) in blocks::mixtures() {
        let (coded, plain) = blocks::files(&kinds, blocks::narrowest(&kinds));
        let path = std::env::temp_dir().join(format!("nanovllm-gguf-blocks-{}.gguf", std::process::id()));
        let config = EngineOptions { dtype: Some(DType::F32), ..config() };
        let follow = |file: &writer::Writer| {
            std::fs::write(&path, file.bytes()).unwrap();
            let (mut runner, info) =
                open(&path, &config, Isa::Portable).unwrap_or_else(|error| panic!("{name}: {error}"));
            std::fs::remove_file(&path).unwrap();
            let prompt: Vec<u32> = (0..20).map(|token| token * 7 % small::VOCAB as u32).collect();
            (greedy(&mut runner, &info.limits, &prompt, TOKENS), info.weight_bytes)
        };
        let ((found, wanted), (bytes, plain_bytes)) = {
            let (coded, plain) = (follow(&coded), follow(&plain));
            ((coded.0, plain.0), (coded.1, plain.1))
        };
        assert!(found == wanted, "{name}: logits are {:?} apart", distance(&found.1[0], &wanted.1[0]));
        assert!(wanted.1[0].iter().all(|logit| logit.is_finite()), "{name}");
        assert!(bytes * 3 < plain_bytes, "{name}: {bytes} bytes stay of {plain_bytes}");
    }
}
