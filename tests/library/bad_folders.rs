//! A model folder that is not right is refused with an error that says what is wrong, and where.

use crate::driver;
use crate::scratch_folder;

use base::error::Error;
use base::log::{self, Level};
use compute::cpu::{Cpu, Isa};
use driver::{config, golden};
use formats::source::Source;
use runner::options::EngineOptions;
use runner::{Loading, ModelInfo};
use safetensors::tensor::Dtype;
use scratch_folder::Folder;
use serde_json::{Value, json};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const WHOLE: &str = "llama-f32-gqa1";
const SHARDED: &str = "qwen2-f32-tied-sharded";
const FIRST_SHARD: &str = "model-00001-of-00003.safetensors";

fn open_with(folder: &Path, config: &EngineOptions) -> Result<ModelInfo, Error> {
    let go_on = &mut |_| ControlFlow::Continue(());
    runner::cpu::open(&Source::open(folder)?, config, Cpu::new(1, Isa::Portable), go_on).map(|(_, info)| info)
}

fn refusal(folder: &Path) -> Error {
    match open_with(folder, &config()) {
        Err(error) => error,
        Ok(_) => panic!("the folder was accepted"),
    }
}

/// Fails unless the error is of this file and its message has these words.
fn assert_file(error: Error, file: &str, words: &str) {
    let Error::ModelFile { path, reason } = &error else { panic!("{error:?}") };
    assert!(path.ends_with(file), "{error}");
    assert!(reason.contains(words), "{error}");
}

#[test]
fn a_copy_of_a_good_folder_opens() {
    let folder = Folder::copy(SHARDED, "good");
    assert!(open_with(&folder.path, &config()).is_ok());
}

#[test]
fn a_path_that_leads_nowhere() {
    let error = refusal(Path::new("/nowhere/at/all"));
    assert!(matches!(&error, Error::Io { path, .. } if path == Path::new("/nowhere/at/all")), "{error}");
}

#[test]
fn a_path_to_a_file() {
    assert_file(
        refusal(&golden(WHOLE).join("config.json")),
        "config.json",
        "is neither a model folder nor a GGUF file",
    );
}

#[test]
fn a_gguf_file_in_a_folder_is_pointed_at() {
    let folder = Folder::copy(WHOLE, "gguf");
    fs::write(folder.file("model-Q4_K_M.GGUF"), "GGUF").unwrap();
    assert!(open_with(&folder.path, &config()).is_ok(), "one beside the model is left alone");
    fs::remove_file(folder.file("config.json")).unwrap();
    let words =
        "is missing from the model folder, which holds model-Q4_K_M.GGUF: give the path of that file to open it";
    assert_file(refusal(&folder.path), "config.json", words);
}

#[test]
fn a_folder_without_a_config() {
    let folder = Folder::copy(WHOLE, "no-config");
    fs::remove_file(folder.file("config.json")).unwrap();
    assert_file(refusal(&folder.path), "config.json", "missing");
}

/// Each message of docs/troubleshooting.md, with the path of the folder as `…`.
#[test]
fn what_troubleshooting_says_of_paths_are_messages() {
    let page = fs::read_to_string(crate::tree::root().join("docs/troubleshooting.md")).unwrap();
    // A message may go on in the next line.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = |error: Error, folder: &Path| {
        let message = error.to_string().replace(folder.to_str().unwrap(), "…");
        let message = message.split_inclusive("is not supported; supported: ").next().unwrap().to_owned();
        let message = if message.ends_with("supported: ") { message + "…" } else { message };
        assert!(page.contains(&format!("`{message}`")), "docs/troubleshooting.md does not have `{message}`");
    };
    let nothing = Path::new("Qwen/Qwen3-0.6B");
    quoted(Source::open(nothing).err().expect("no such folder"), Path::new("none"));
    let folder = Folder::copy(WHOLE, "troubleshooting");
    quoted(Source::open(&folder.file("config.json")).err().expect("no model"), &folder.path);
    folder.edit_json("config.json", |config| config["architectures"] = json!(["PhimoeForCausalLM"]));
    quoted(refusal(&folder.path), &folder.path);
    fs::copy(golden(WHOLE).join("config.json"), folder.file("config.json")).unwrap();
    let pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 12345\n";
    fs::write(folder.file("model.safetensors"), pointer).unwrap();
    quoted(refusal(&folder.path), &folder.path);
    let whole = fs::read(golden(WHOLE).join("model.safetensors")).unwrap();
    fs::write(folder.file("model.safetensors"), &whole[..whole.len() / 2]).unwrap();
    let cut = refusal(&folder.path).to_string();
    assert!(
        cut.contains("incomplete metadata, file not fully covered")
            && page.contains("`incomplete metadata, file not fully covered`")
    );
    fs::remove_file(folder.file("model.safetensors")).unwrap();
    quoted(refusal(&folder.path), &folder.path);
    fs::remove_file(folder.file("config.json")).unwrap();
    quoted(refusal(&folder.path), &folder.path);
    fs::write(folder.file("model-Q4_K_M.gguf"), "GGUF").unwrap();
    quoted(refusal(&folder.path), &folder.path);
}

#[test]
fn a_config_that_cannot_be_read() {
    let folder = Folder::copy(WHOLE, "unreadable");
    fs::remove_file(folder.file("config.json")).unwrap();
    fs::create_dir(folder.file("config.json")).unwrap();
    assert!(matches!(refusal(&folder.path), Error::Io { path, .. } if path.ends_with("config.json")));
}

#[test]
fn a_config_that_is_not_json() {
    let folder = Folder::copy(WHOLE, "not-json");
    let nested = "[".repeat(100_000);
    for text in ["", "{", "\u{1}\u{2}", nested.as_str()] {
        fs::write(folder.file("config.json"), text).unwrap();
        assert_file(refusal(&folder.path), "config.json", "is not JSON");
    }
    fs::write(folder.file("config.json"), b"{\"architectures\": \"\xff\"}").unwrap();
    assert_file(refusal(&folder.path), "config.json", "is not JSON");
    fs::write(folder.file("config.json"), "[]").unwrap();
    assert_file(refusal(&folder.path), "config.json", "is not a JSON object");
}

/// Makes something at a path.
type Make = fn(&Path);

/// What stands in the place of a file and is none.
const NO_FILES: &[(&str, Make)] = &[
    ("a FIFO", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
    ("an endless device", |path| symlink("/dev/zero", path).unwrap()),
    ("a terminal", |path| symlink("/dev/tty", path).unwrap()),
    ("a folder", |path| fs::create_dir(path).unwrap()),
    ("a link to itself", |path| symlink(path, path).unwrap()),
];

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    for (case, names) in
        [(WHOLE, &["config.json", "model.safetensors"][..]), (SHARDED, &["model.safetensors.index.json", FIRST_SHARD])]
    {
        for name in names {
            for (kind, make) in NO_FILES {
                let folder = Folder::copy(case, "no-file");
                fs::remove_file(folder.file(name)).unwrap();
                make(&folder.file(name));
                for loading in [Loading::Map, Loading::Read] {
                    let error = open_with(&folder.path, &EngineOptions { loading, ..config() }).unwrap_err();
                    // A link to itself leads to nothing, as a file that is missing.
                    assert!(matches!(error, Error::Io { .. } | Error::ModelFile { .. }), "{name} is {kind}: {error}");
                    if *kind == "a FIFO" {
                        assert_file(error, name, "is a FIFO, but must be a regular file");
                    }
                }
            }
        }
    }
}

#[test]
fn weights_that_were_read_stay_when_their_file_is_cut() {
    let folder = Folder::copy(WHOLE, "read");
    let config = EngineOptions { loading: Loading::Read, ..config() };
    let (runner, info) = driver::open(&folder.path, &config, Isa::Portable).unwrap();
    let mapped = open_with(&golden(WHOLE), &driver::config()).unwrap();
    assert_eq!((info.fingerprint, info.weight_bytes), (mapped.fingerprint, mapped.weight_bytes));
    fs::OpenOptions::new().write(true).open(folder.file("model.safetensors")).unwrap().set_len(0).unwrap();
    let (reference, _) = driver::open(&golden(WHOLE), &driver::config(), Isa::Portable).unwrap();
    let answer = |mut runner| driver::greedy(&mut runner, &info.limits, &[3, 1, 4, 1, 5], 4);
    assert_eq!(answer(runner), answer(reference));
}

#[test]
fn weights_that_do_not_fit_into_memory_are_refused_when_they_are_to_be_read() {
    let folder = Folder::copy(WHOLE, "too-large");
    // No block of this file exists on the disk.
    fs::File::options().write(true).open(folder.file("model.safetensors")).unwrap().set_len(1 << 42).unwrap();
    let error = open_with(&folder.path, &EngineOptions { loading: Loading::Read, ..config() }).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes, knob: "load_mode", .. } if bytes == 1 << 42), "{error}");
}

#[test]
fn a_config_of_a_gigabyte() {
    let folder = Folder::copy(WHOLE, "gigabyte");
    fs::File::create(folder.file("config.json")).unwrap().set_len(1 << 30).unwrap();
    assert_file(refusal(&folder.path), "config.json", "bytes");
}

#[test]
fn an_unknown_architecture_is_told_the_known_ones() {
    let folder = Folder::copy(WHOLE, "architecture");
    folder.edit_json("config.json", |config| config["architectures"] = json!(["MambaForCausalLM"]));
    let message = refusal(&folder.path).to_string();
    for name in [
        "MambaForCausalLM",
        " Llama, ",
        " Qwen2, ",
        " Qwen3, ",
        "each followed by ForCausalLM",
        "Gemma3ForConditionalGeneration",
    ] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn a_config_that_promises_more_layers_than_there_are() {
    let folder = Folder::copy(WHOLE, "layers");
    let promise = |layers| {
        folder.edit_json("config.json", |config| {
            config["num_hidden_layers"] = json!(layers);
            config["layer_types"] = Value::Null;
        });
    };
    promise(1024);
    let config = EngineOptions { kv_cache_bytes: Some(1 << 40), ..config() };
    let error = open_with(&folder.path, &config).unwrap_err();
    assert!(matches!(&error, Error::MissingTensor { name, .. } if name.contains("layers.2.")), "{error}");
    promise(16_000_000);
    let error = open_with(&folder.path, &config).unwrap_err();
    assert_file(error, "config.json", "num_hidden_layers is 16000000, but must be at most 1024");
}

#[test]
fn a_config_with_sizes_beyond_reason() {
    let folder = Folder::copy(WHOLE, "sizes");
    let most = 1 << 24;
    for field in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings"] {
        folder.edit_json("config.json", |config| config[field] = json!(most));
    }
    for (heads, head_dim) in [(1, 2), (most, 512)] {
        folder.edit_json("config.json", |config| {
            config["num_attention_heads"] = json!(heads);
            config["num_key_value_heads"] = json!(heads);
            config["head_dim"] = json!(head_dim);
            config["layer_types"] = Value::Null;
        });
        for budget in [(Some(u64::MAX), None), (None, Some(0.5))] {
            let (kv_cache_bytes, memory_utilization) = budget;
            let config = EngineOptions {
                kv_cache_bytes,
                memory_utilization,
                max_num_seqs: None,
                max_batched_tokens: None,
                ..config()
            };
            assert!(open_with(&folder.path, &config).is_err(), "{heads} heads of {head_dim}, {budget:?}");
        }
    }
}

#[test]
fn a_config_whose_sizes_multiply_beyond_all_numbers() {
    let folder = Folder::copy(WHOLE, "overflow");
    folder.edit_json("config.json", |config| {
        config["num_hidden_layers"] = json!(1024);
        config["num_attention_heads"] = json!(1 << 14);
        config["num_key_value_heads"] = json!(1 << 14);
        config["head_dim"] = json!(512);
        config["layer_types"] = Value::Null;
    });
    for kv_block_size in [1, 16, 1024] {
        let config = EngineOptions { kv_block_size: Some(kv_block_size), ..config() };
        let error = open_with(&folder.path, &config).unwrap_err();
        assert!(matches!(error, Error::KvCacheTooSmall { block_bytes, .. } if block_bytes >= 1 << 36), "{error}");
    }
    folder.edit_json("config.json", |config| config["num_attention_heads"] = json!(1 << 15));
    assert_file(refusal(&folder.path), "config.json", "num_attention_heads is 32768, but must be at most 16384");
}

#[test]
fn a_config_that_claims_millions_of_positions_does_not_size_the_table_by_them() {
    let folder = Folder::copy(WHOLE, "positions");
    folder.edit_json("config.json", |config| config["max_position_embeddings"] = json!(1 << 24));
    let config = EngineOptions { kv_cache_bytes: Some(8 << 20), ..config() };
    assert_eq!(open_with(&folder.path, &config).unwrap().limits.model_len, 1 << 20);
    let asked = EngineOptions { max_model_len: Some(1 << 24), ..config };
    assert_eq!(open_with(&folder.path, &asked).unwrap().limits.model_len, 1 << 24, "8 MiB of blocks bound the table");
}

#[test]
fn a_folder_without_weights() {
    let folder = Folder::copy(WHOLE, "no-weights");
    fs::remove_file(folder.file("model.safetensors")).unwrap();
    let error = refusal(&folder.path);
    assert!(error.to_string().contains("neither model.safetensors nor model.safetensors.index.json"), "{error}");
}

#[test]
fn a_truncated_file() {
    let folder = Folder::copy(WHOLE, "truncated");
    let bytes = fs::read(folder.file("model.safetensors")).unwrap();
    for len in [0, 7, 8, 1000, bytes.len() / 2, bytes.len() - 1] {
        fs::write(folder.file("model.safetensors"), &bytes[..len]).unwrap();
        assert_file(refusal(&folder.path), "model.safetensors", "not a whole safetensors file");
    }
}

#[test]
fn a_header_length_beyond_the_file() {
    let folder = Folder::copy(WHOLE, "header");
    let mut bytes = fs::read(folder.file("model.safetensors")).unwrap();
    for len in [u64::MAX, u64::MAX - 8, 1 << 40, bytes.len() as u64] {
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        fs::write(folder.file("model.safetensors"), &bytes).unwrap();
        assert_file(refusal(&folder.path), "model.safetensors", "not a whole safetensors file");
    }
}

#[test]
fn a_header_that_would_take_much_memory() {
    let folder = Folder::copy(WHOLE, "large-header");
    let name = folder.file("model.safetensors");
    let file = |header: &str| [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let entry = |name: usize| format!(r#""{name}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let many = (0..70_000).map(entry).collect::<Vec<_>>().join(",");
    fs::write(&name, file(&format!("{{{many}}}"))).unwrap();
    assert_file(refusal(&folder.path), "model.safetensors", "more than 65536 tensors");
    fs::write(&name, file(&format!("{{\"__metadata__\":{{\"x\":\"{}\"}}}}", "y".repeat(9 << 20)))).unwrap();
    assert_file(refusal(&folder.path), "model.safetensors", "but at most 8388608 are read");
}

/// A thousand names of one file, whose header names no tensor.
#[test]
fn the_headers_of_all_files_have_one_limit() {
    let values: String = (0..50_000).map(|i| format!(r#""{i}":"","#)).collect();
    let text = "y".repeat(5 << 20);
    for (metadata, words, read) in [
        (format!(r#"{values}"x":"""#), "more than 1048576 values", 10),
        (format!(r#""x":"{text}""#), "bytes, but at most 16777216 are read", 3),
    ] {
        let folder = Folder::copy(SHARDED, "headers");
        let header = format!(r#"{{"__metadata__":{{{metadata}}}}}"#);
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        fs::write(folder.file("shared"), file).unwrap();
        let names: Vec<String> = (0..1020).map(|i| format!("a-{i:04}.safetensors")).collect();
        for name in &names {
            symlink("shared", folder.file(name)).unwrap();
        }
        folder.edit_json("model.safetensors.index.json", |index| {
            for name in &names {
                index["weight_map"][name] = json!(name);
            }
        });
        assert_file(refusal(&folder.path), &names[read], words);
        // Few of them are read.
        folder.edit_json("model.safetensors.index.json", |index| {
            index["weight_map"].as_object_mut().unwrap().retain(|tensor, _| !names[2..].contains(tensor));
        });
        assert!(open_with(&folder.path, &config()).is_ok());
    }
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let folder = Folder::copy(WHOLE, "missing-tensor");
    folder.edit_tensors(|tensors| drop(tensors.remove("model.layers.1.mlp.up_proj.weight")));
    match refusal(&folder.path) {
        Error::MissingTensor { name, shape } => {
            assert_eq!((name.as_str(), shape), ("model.layers.1.mlp.up_proj.weight", vec![80, 64]));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    let folder = Folder::copy(WHOLE, "misshapen");
    folder.edit_tensors(|tensors| tensors.get_mut("model.layers.0.self_attn.k_proj.weight").unwrap().1 = vec![32, 128]);
    match refusal(&folder.path) {
        Error::TensorShape { name, found, wanted } => {
            assert_eq!(name, "model.layers.0.self_attn.k_proj.weight");
            assert_eq!((found, wanted), (vec![32, 128], vec![64, 64]));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_tensor_of_an_unsupported_type_is_named_with_its_type() {
    let folder = Folder::copy(WHOLE, "dtype");
    folder.edit_tensors(|tensors| {
        let (dtype, shape, data) = tensors.get_mut("model.layers.0.mlp.down_proj.weight").unwrap();
        *dtype = Dtype::F8_E4M3;
        data.truncate(shape.iter().product());
    });
    match refusal(&folder.path) {
        Error::TensorDtype { name, found } => {
            assert_eq!(name, "model.layers.0.mlp.down_proj.weight");
            assert!(found.contains("F8_E4M3"), "{found}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_tensor_of_the_decoder_that_is_not_read_is_named() {
    let one = || (Dtype::F32, vec![1], vec![0; 4]);
    let cases = [
        ("model.layers.0.pre_feedforward_layernorm.weight", "of a layer that computes more"),
        ("model.layers.1.mlp.up_proj.bias", "a bias that config.json does not switch on"),
        ("model.layers.7.input_layernorm.weight", "of a layer that config.json does not have"),
        ("model.norm.bias", "of a norm that is another"),
        ("lm_head.bias", "of a head that adds it"),
    ];
    for (name, what) in cases {
        let folder = Folder::copy(WHOLE, "unread");
        folder.edit_tensors(|tensors| drop(tensors.insert(name.into(), one())));
        match refusal(&folder.path) {
            Error::UnreadTensor { name: found, others } => assert_eq!((found.as_str(), others), (name, 0), "{what}"),
            other => panic!("{what}: {other}"),
        }
    }
    let folder = Folder::copy(WHOLE, "unread-layers");
    folder.edit_json("config.json", |config| {
        config["num_hidden_layers"] = json!(1);
        config["layer_types"] = Value::Null;
    });
    match refusal(&folder.path) {
        Error::UnreadTensor { name, others } => {
            assert_eq!((name.as_str(), others), ("model.layers.1.input_layernorm.weight", 8));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn codes_are_held_against_the_file_that_describes_them() {
    for (file, settings) in [
        ("quantize_config.json", json!({"bits": 4, "group_size": 128, "desc_act": false})),
        ("quant_config.json", json!({"w_bit": 4, "q_group_size": 128, "zero_point": true, "version": "GEMM"})),
    ] {
        let folder = Folder::copy(WHOLE, "codes");
        fs::write(folder.file(file), settings.to_string()).unwrap();
        folder.edit_tensors(|tensors| {
            let quantized: Vec<String> = tensors.keys().filter(|name| name.contains("_proj.weight")).cloned().collect();
            for name in quantized {
                tensors.remove(&name);
                tensors.insert(name.replace("weight", "qweight"), (Dtype::I32, vec![8], vec![0; 32]));
            }
        });
        match refusal(&folder.path) {
            Error::TensorShape { name, found, .. } => {
                assert_eq!((name.as_str(), found), ("model.layers.0.self_attn.q_proj.qweight", vec![8]));
            }
            other => panic!("{file}: {other}"),
        }
    }
}

#[test]
fn surplus_tensors_and_fields_are_warnings_that_name_them() {
    let folder = Folder::copy(WHOLE, "surplus");
    folder.edit_tensors(|tensors| {
        let one = (Dtype::F32, vec![1], vec![0; 4]);
        tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), one.clone());
        tensors.insert("vision_tower.layers.7.surplus.weight".into(), one);
    });
    folder.edit_json("config.json", |config| config["new_trick"] = json!(3));
    log::set_max_level(Some(Level::Warn));
    open_with(&folder.path, &config()).unwrap();
    let messages: Vec<String> = std::iter::from_fn(log::pop).map(|(_, message)| message).collect();
    let of_this_folder = |message: &&String| message.contains(folder.path.to_str().unwrap());
    let warnings: Vec<&String> = messages.iter().filter(of_this_folder).collect();
    assert_eq!(warnings.len(), 2, "{messages:?}");
    assert!(warnings[0].ends_with("config.json: 1 fields are not read: new_trick"), "{}", warnings[0]);
    assert!(warnings[1].contains("1 tensor"), "computed tables are no surplus: {}", warnings[1]);
    assert!(warnings[1].contains("vision_tower.layers.7.surplus.weight"), "{}", warnings[1]);
}

#[test]
fn a_checkpoint_of_the_bare_decoder_opens_too() {
    let folder = Folder::copy("qwen3-bf16-tied-gqa2", "bare");
    folder.edit_tensors(|tensors| {
        *tensors = std::mem::take(tensors)
            .into_iter()
            .map(|(name, tensor)| (name.strip_prefix("model.").unwrap_or(&name).to_owned(), tensor))
            .collect();
    });
    assert!(open_with(&folder.path, &config()).is_ok());
}

#[test]
fn a_checkpoint_that_lost_its_head() {
    let folder = Folder::copy("qwen3-f32-yarn", "lost-head");
    folder.edit_tensors(|tensors| tensors.retain(|name, _| name != "lm_head.weight"));
    assert!(refusal(&folder.path).to_string().contains("lm_head.weight"));
}

#[test]
fn an_index_that_names_a_missing_shard() {
    let folder = Folder::copy(SHARDED, "missing-shard");
    fs::remove_file(folder.file(FIRST_SHARD)).unwrap();
    assert_file(refusal(&folder.path), FIRST_SHARD, "missing");
}

#[test]
fn an_index_that_leads_out_of_its_folder() {
    let folder = Folder::copy(SHARDED, "traversal");
    for name in ["../model.safetensors", "/etc/passwd", "..", "", "sub/model.safetensors", "./model.safetensors"] {
        folder
            .edit_json("model.safetensors.index.json", |index| index["weight_map"]["model.norm.weight"] = json!(name));
        assert_file(refusal(&folder.path), "model.safetensors.index.json", "not the name of a file in this folder");
    }
}

#[test]
fn an_index_that_is_none() {
    let folder = Folder::copy(SHARDED, "index");
    let cases = [
        ("{", "is not JSON"),
        ("{}", "weight_map"),
        (r#"{"weight_map": {}}"#, "empty"),
        (r#"{"weight_map": {"a": 1}}"#, "no file for a"),
    ];
    for (text, words) in cases {
        fs::write(folder.file("model.safetensors.index.json"), text).unwrap();
        assert_file(refusal(&folder.path), "model.safetensors.index.json", words);
    }
}

#[test]
fn two_files_with_the_same_tensor() {
    let folder = Folder::copy(SHARDED, "twice");
    fs::copy(folder.file(FIRST_SHARD), folder.file("model-00002-of-00003.safetensors")).unwrap();
    assert_file(refusal(&folder.path), "model-00002-of-00003.safetensors", "as another file");
}

#[test]
fn a_budget_that_holds_no_block() {
    let config = EngineOptions { kv_cache_bytes: Some(100), ..config() };
    let error = open_with(&golden(WHOLE), &config).unwrap_err();
    assert!(matches!(error, Error::KvCacheTooSmall { bytes: 100, block_bytes: 4096 }), "{error:?}");
}

#[test]
fn progress_rises_to_one_and_a_break_cancels() {
    let mut heard = Vec::new();
    let cpu = || Cpu::new(1, Isa::Portable);
    let mut listen = |fraction| {
        heard.push(fraction);
        ControlFlow::Continue(())
    };
    let source = Source::open(&golden(SHARDED)).unwrap();
    runner::cpu::open(&source, &config(), cpu(), &mut listen).unwrap();
    assert!(heard.is_sorted() && heard.len() >= 3 && heard.last() == Some(&1.0), "{heard:?}");
    let cancelled = runner::cpu::open(&source, &config(), cpu(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
}
