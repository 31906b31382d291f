//! Quantized folders open, their codes stand for the numbers that their writers say, and whatever does not fit is refused by its name.
//!
//! `tests/golden/make_quantized.py` made the folders and says what is in them.

use crate::driver;
use crate::reference;
use crate::scratch_folder;

use base::error::{Error, Result};
use compute::HostMatrix;
use compute::cpu::Isa;
use driver::{config, golden, open};
use formats::DType;
use formats::source::Source;
use model::description::Description;
use model::weights::{Reading, Weights};
use os::Loading;
use reference::{Reference, assert_greedy, distance, follow};
use runner::options::EngineOptions;
use runner::{OnLoad, WeightPart, quantize_folder};
use safetensors::{Dtype, SafeTensors};
use scratch_folder::{Folder, Tensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

const CASES: &[&str] = &[
    "awq-f16-head64",
    "awq-f16-qwen3_5",
    "awq-f16-qwen3_moe",
    "awq-group32",
    "awq-row",
    "ct-fp8-block",
    "ct-fp8-channel",
    "ct-fp8-tensor",
    "ct-int4-bf16-head64",
    "ct-int4-bf16-lfm2",
    "ct-int4-bf16-qwen3_moe",
    "ct-int4-group32",
    "ct-int4-narrow",
    "ct-int4-zeros",
    "ct-int8-channel",
    "ct-int8-zeros",
    "ct-mixed",
    "ct-mxfp4-bf16-head64",
    "ct-nvfp4",
    "ct-w8a8",
    "ct-w8a8-bf16-head64",
    "fp8-block-bf16-deepseek_v3",
    "fp8-block-bf16-head64",
    "fp8-block-bf16-qwen3_5",
    "fp8-block-bf16-qwen3_moe",
    "fp8-block-bf16-scales",
    "fp8-block-f32-scales",
    "fp8-tensor",
    "gptq4-desc-act",
    "gptq4-f16-head64",
    "gptq4-f16-qwen3_5",
    "gptq4-f16-qwen3_moe",
    "gptq4-row",
    "gptq4-sym",
    "gptq8-v2",
    "modelopt-nvfp4-qwen3_moe",
    "mxfp4-bf16-gpt_oss",
];

fn folder(name: &str) -> String {
    format!("quantized/{name}")
}

fn weights(path: &Path, dtype: Option<DType>, on_load: OnLoad) -> Result<Weights> {
    let source = Source::open(path)?;
    let model = Description::read(&source)?;
    let reading = Reading { dtype, loading: Loading::Map, free_bytes: u64::MAX, on_load };
    Weights::open(&source, model.layout, model.quantization, reading)
}

/// The quantized matrices of layer 0 by the names that a decoder has for them: rows, columns, and the numbers of four rows.
fn decoded(name: &str) -> BTreeMap<String, (usize, usize, Vec<f32>)> {
    let bytes = fs::read(golden(&folder(name)).join("decoded.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let matrix = |module: &str| {
        let rows = file.tensor(&format!("{module}.rows")).unwrap();
        let rows = i32::from_le_bytes(rows.data().try_into().unwrap()) as usize;
        let numbers = file.tensor(module).unwrap();
        let values = numbers.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        (module.strip_prefix("model.").unwrap().to_owned(), (rows, numbers.shape()[1], values))
    };
    file.names().into_iter().filter(|name| !name.ends_with(".rows")).map(matrix).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn every_folder_is_a_case() {
    let entries = fs::read_dir(golden("quantized")).unwrap();
    let mut folders: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(folders, CASES);
}

#[test]
fn codes_stand_for_the_numbers_of_their_writers() {
    for name in CASES {
        let mut weights = weights(&golden(&folder(name)), Some(DType::F32), OnLoad::None).unwrap();
        for (module, (rows, cols, wanted)) in decoded(name) {
            let matrix = weights.matrix(&module, rows, cols).unwrap_or_else(|error| panic!("{name}: {error}"));
            let found: Vec<f32> = [0, 1, rows - 2, rows - 1].iter().flat_map(|&row| numbers(&matrix, row)).collect();
            assert_eq!(bits(&found), bits(&wanted), "{name}: {module}, {}", matrix.coding());
        }
    }
}

fn numbers(matrix: &HostMatrix, row: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; matrix.shape().1];
    matrix.dequantize_row(row, &mut numbers);
    numbers
}

/// As codes where a group has a multiple of 32 weights or all of a row, and the width is such a multiple too.
#[test]
fn matrices_keep_their_codes_unless_no_backend_holds_them() {
    for name in CASES {
        let mut weights = weights(&golden(&folder(name)), None, OnLoad::None).unwrap();
        for (module, (rows, cols, _)) in decoded(name) {
            let coding = weights.matrix(&module, rows, cols).unwrap().coding();
            let is_plain = match *name {
                "gptq4-desc-act" | "ct-int4-narrow" | "ct-nvfp4" | "modelopt-nvfp4-qwen3_moe" => true,
                "ct-mixed" => module.ends_with("up_proj"),
                _ => false,
            };
            assert_eq!(coding.is_plain(), is_plain, "{name}: {module} is {coding}");
        }
    }
}

#[test]
fn parts_of_ranks_have_the_numbers_of_the_whole() {
    for name in CASES {
        let path = golden(&folder(name));
        for (module, (rows, cols, _)) in decoded(name) {
            let open = || weights(&path, Some(DType::F32), OnLoad::None).unwrap();
            let whole = open().matrix(&module, rows, cols).unwrap().to_f32();
            // At the borders of groups, and across them.
            for (from, to) in [(0, cols), (0, 32), (32, 64), (8, 40), (cols - 24, cols)] {
                let own = [0..8, rows - 12..rows - 3];
                let parts = open().matrix_parts(&module, (rows, cols), &own, from..to).unwrap();
                for (own, part) in own.into_iter().zip(parts) {
                    let wanted: Vec<f32> =
                        own.flat_map(|row| whole[row * cols + from..row * cols + to].to_vec()).collect();
                    assert_eq!(bits(&part.to_f32()), bits(&wanted), "{name}: {module}, columns {from} to {to}");
                }
            }
        }
    }
}

/// Whether most weights of a case are codes of four bits.
fn is_of_4_bits(name: &str) -> bool {
    ["awq", "ct-int4", "ct-mixed", "gptq4"].iter().any(|kind| name.starts_with(kind))
}

#[test]
fn logits_are_those_of_the_numbers_that_codes_stand_for() {
    for &isa in Isa::available() {
        for name in CASES {
            let (mut runner, info) = open(&golden(&folder(name)), &config(), isa).unwrap();
            let reference = Reference::read(&folder(name));
            let (rows, chosen) = follow(&mut runner, &info.limits, &reference);
            let apart = rows.iter().zip(&reference.logits).map(|(found, wanted)| distance(found, wanted));
            let furthest = apart.fold(0.0, f32::max);
            let limit = match isa {
                // The numbers of codes may be rounded to bf16.
                Isa::Portable => 1.5e-2,
                // Codes are integers there, and activations are rounded to 8 bits beside codes of 4 bits.
                _ if is_of_4_bits(name) => 6e-2,
                _ => 3e-2,
            };
            println!("{name}, {isa:?}: at most {furthest:.2e} apart, {limit:.0e} allowed");
            assert!(furthest <= limit, "{name}, {isa:?}: {furthest} apart, {limit} allowed");
            let what = format!("{name}, {isa:?}");
            let decided = assert_greedy(&chosen, &rows, &reference, limit, &what);
            if isa == Isa::Portable {
                decided.assert_at_least(0.5, &what); // The wider limits leave less of some references.
            }
        }
    }
}

#[test]
fn a_caller_who_asks_for_f32_gets_the_logits_of_the_numbers_that_codes_stand_for() {
    let config = EngineOptions { dtype: Some(DType::F32), ..config() };
    for &isa in Isa::available() {
        for name in CASES {
            let (mut runner, info) = open(&golden(&folder(name)), &config, isa).unwrap();
            let reference = Reference::read(&folder(name));
            let (rows, _) = follow(&mut runner, &info.limits, &reference);
            let apart = rows.iter().zip(&reference.logits).map(|(found, wanted)| distance(found, wanted));
            let furthest = apart.fold(0.0, f32::max);
            println!("{name}, {isa:?}: at most {furthest:.2e} apart in f32");
            assert!(furthest <= 1e-4, "{name}, {isa:?}: {furthest} apart");
        }
    }
}

fn refusal(path: &Path) -> Error {
    open(path, &config(), Isa::Portable).err().expect("the folder must be refused")
}

#[test]
fn what_a_config_says_and_is_not_read_is_refused_by_its_name() {
    let weights = |changes: Value| {
        let mut weights =
            json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32});
        weights.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}})
    };
    let compressed = |field: &str, value: Value| {
        let mut config = weights(json!({}));
        config[field] = value;
        config
    };
    let gptq = |field: &str, value: Value| {
        let mut config = json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true});
        config[field] = value;
        config
    };
    let awq = |field: &str, value: Value| {
        let mut config =
            json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm"});
        config[field] = value;
        config
    };
    let targets = |targets: Value| compressed("config_groups", json!({"g": {"targets": targets, "weights": {}}}));
    let many: serde_json::Map<String, Value> =
        (0..65).map(|i| (i.to_string(), json!({"targets": ["Linear"], "weights": {}}))).collect();
    let cases = [
        (json!({"quant_method": "bitsandbytes"}), "quantization_config is bitsandbytes"),
        (json!({"bits": 4}), "quantization_config is without quant_method"),
        (json!({"quant_method": 4}), "quant_method is 4, but must be a string"),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "fmt is e5m2"),
        (json!({"quant_method": "fp8", "activation_scheme": "block"}), "activation_scheme is block"),
        (json!({"quant_method": "fp8", "weight_block_size": [128]}), "weight_block_size is [128], but must be two"),
        (
            json!({"quant_method": "fp8", "weight_block_size": [0, 128]}),
            "weight_block_size is [0,128], but must be two",
        ),
        (gptq("bits", json!(3)), "bits is 3, which is not supported: it must be 4 or 8"),
        (gptq("bits", json!("4")), "bits is 4, but must be a whole number"),
        (gptq("group_size", json!(0)), "group_size is 0, but must be a whole number"),
        (gptq("group_size", json!(null)), "group_size of the quantized weights is missing"),
        (gptq("checkpoint_format", json!("marlin")), "checkpoint_format is marlin"),
        (gptq("is_marlin_format", json!(true)), "is_marlin_format is true"),
        (gptq("dynamic", json!({"+:.*down.*": {"bits": 8}})), "dynamic is +:.*down.*"),
        (gptq("pack_dtype", json!("int64")), "pack_dtype is int64"),
        (awq("bits", json!(8)), "bits is 8, which is not supported: it must be 4"),
        (awq("version", json!("gemv")), "version is gemv"),
        (awq("zero_point", json!(false)), "zero_point is false"),
        (compressed("format", json!("marlin-24")), "format is marlin-24"),
        (compressed("quantization_status", json!("frozen")), "quantization_status is frozen"),
        (compressed("sparsity_config", json!({"format": "sparse-24-bitmask"})), "format is sparse-24-bitmask"),
        (compressed("transform_config", json!({"config_groups": {}})), "transform_config is set"),
        (compressed("config_groups", json!(null)), "config_groups is missing"),
        (compressed("config_groups", many.into()), "config_groups has more than 64 groups"),
        (weights(json!({"num_bits": 3})), "num_bits is 3 in type int"),
        (weights(json!({"type": "float", "group_size": 64})), "num_bits is 4 in type float"),
        (weights(json!({"type": "float"})), "weight_packed of quantized weights has type I32, but must have type U8"),
        (weights(json!({"type": "float", "num_bits": 16})), "num_bits is 16 in type float"),
        (weights(json!({"strategy": "tensor_group"})), "strategy is tensor_group"),
        (json!({"quant_method": "modelopt", "quant_algo": "FP8"}), "quant_algo is FP8"),
        (json!({"quant_method": "modelopt"}), "quant_algo is absent"),
        (weights(json!({"strategy": "block"})), "block_structure of strategy block is missing"),
        (weights(json!({"dynamic": true})), "dynamic of weights is set"),
        (weights(json!({"actorder": "first"})), "actorder is first"),
        (weights(json!({"symmetric": 1})), "symmetric is 1, but must be true or false"),
        (targets(json!("Linear")), "config_groups.g.targets must be a list of names"),
        (targets(json!(["re:("])), "config_groups.g.targets has a pattern that is not read: ("),
    ];
    for (quantization, wanted) in cases {
        let folder = Folder::copy("quantized/ct-int4-group32", "settings");
        folder.edit_json("config.json", |config| config["quantization_config"] = quantization.clone());
        let message = refusal(&folder.path).to_string();
        assert!(message.contains(wanted), "{quantization}: {message}");
    }
}

/// ct-mixed with other groups before its own, and modules of an image tower that are coded.
fn with_groups(groups: impl IntoIterator<Item = Vec<String>>, modules: &[String], test: &str) -> Folder {
    let folder = Folder::copy("quantized/ct-mixed", test);
    folder.edit_json("config.json", |config| {
        let own = config["quantization_config"]["config_groups"].take();
        let weights = &own["group_0"]["weights"];
        let more = groups.into_iter().enumerate();
        let mut all: serde_json::Map<String, Value> =
            more.map(|(i, targets)| (format!("more_{i}"), json!({"targets": targets, "weights": weights}))).collect();
        all.extend(own.as_object().unwrap().clone());
        config["quantization_config"]["config_groups"] = all.into();
    });
    folder.edit_tensors(|tensors| {
        let coded = |module: &String| (format!("{module}.weight"), (Dtype::I8, vec![0, 0], Vec::new()));
        tensors.extend(modules.iter().map(coded));
    });
    folder
}

#[test]
fn patterns_of_all_groups_share_one_budget() {
    let group = |i: usize, end: &str| (0..64).map(|j| format!("re:{i}_{j}{end}")).collect();
    let groups = (0..62).map(|i| group(i, r"\w{20}"));
    let folder = with_groups(groups, &[], "many-patterns");
    let error = refusal(&folder.path).to_string();
    let words = "has a pattern that is not read, because the patterns of the folder have more than 65536 parts";
    assert!(error.contains("config_groups.more_") && error.contains(words), "{error}");
    // Equal ones are one, and nobody minds small ones.
    for groups in [vec![vec![r"re:\w{20}x".to_owned(); 64]; 62], (0..62).map(|i| group(i, "x")).collect()] {
        let folder = with_groups(groups, &[], "few-patterns");
        open(&folder.path, &config(), Isa::Portable).unwrap();
    }
}

#[test]
fn names_of_modules_are_matched_within_one_budget() {
    // As many as a file may have, but for those of the model itself.
    let modules: Vec<String> = (0..65_000).map(|i| format!("visual.blocks.{i}.attention.qkv_proj")).collect();
    let slow = |i: usize| (0..64).map(|j| format!("re:(?:(?:.*)*)*(?:{i}_{j}|y)(?=x)")).collect();
    let folder = with_groups((0..20).map(slow), &modules, "slow-patterns");
    let error = refusal(&folder.path).to_string();
    assert!(error.contains("take more than 33554432 steps"), "{error}");
    // Patterns as configs have them, more than any has, of layers that the model has not.
    let group = |i: usize| {
        let forms = [
            r"re:.*layers\.N\..*gate_proj$",
            "re:^(?!.*visual).*N.*experts",
            r"re:model.*\.N\.self_attn\.(q|k|v)_proj",
        ];
        forms.map(|form| form.replace('N', &(i + 2).to_string())).into()
    };
    let folder = with_groups((0..17).map(group), &modules, "common-patterns");
    open(&folder.path, &config(), Isa::Portable).unwrap();
}

#[test]
fn the_first_of_the_groups_that_name_a_module_most_exactly_has_it() {
    let coding = |groups: Vec<Vec<String>>| {
        let folder = with_groups(groups, &[], "exact-groups");
        weights(&folder.path, None, OnLoad::None)
            .unwrap()
            .matrix("layers.0.self_attn.q_proj", 128, 64)
            .map(|m| m.coding())
    };
    let group = |entries: &[&str]| vec![entries.iter().map(|entry| entry.to_string()).collect()];
    let own = coding(vec![]).unwrap();
    // Its codes have eight bits, and those of the first group four.
    for (entries, is_own) in [
        (&["re:.*mlp.*"][..], true),
        (&["re:.*k_proj", "q_proj"], true),
        (&["re:.*q_proj"], false),
        (&["model.layers.0.self_attn.q_proj"], false),
        (&["Linear"], false),
        (&[r"re:self_attn"], true),
    ] {
        assert_eq!(coding(group(entries)).is_ok_and(|coding| coding == own), is_own, "{entries:?}");
    }
}

#[test]
fn a_matrix_without_numbers_is_not_quantized() {
    for shape in [[5, 0], [0, 0], [0, 64]] {
        for name in ["foo.weight", "model.layers.0.self_attn.q_proj.weight"] {
            let folder = Folder::copy("qwen3-f32-untied-gqa8", "no-numbers");
            folder.edit_tensors(|all| drop(all.insert(name.into(), (Dtype::F32, shape.into(), Vec::new()))));
            for on_load in [OnLoad::Int8, OnLoad::Int4] {
                let error = open(&folder.path, &EngineOptions { on_load, ..config() }, Isa::Portable).err().unwrap();
                let Error::EmptyMatrix { name: found, shape: found_shape } = &error else { panic!("{error:?}") };
                assert_eq!((&**found, &found_shape[..]), (name, &shape[..]));
                let to = std::env::temp_dir().join(format!("nvllm-no-numbers-new-{}", std::process::id()));
                let made = quantize_folder(&Source::open(&folder.path).unwrap(), &to, on_load, &mut |_| {
                    ControlFlow::Continue(())
                });
                assert!(matches!(made, Err(Error::EmptyMatrix { .. })), "{made:?}");
                assert!(!to.exists(), "nothing is written");
            }
            if name == "foo.weight" {
                open(&folder.path, &config(), Isa::Portable).unwrap();
            }
        }
    }
}

type Spoil = fn(&mut Tensors);

fn tensor<'a>(tensors: &'a mut Tensors, name: &str) -> &'a mut (Dtype, Vec<usize>, Vec<u8>) {
    tensors.get_mut(&format!("model.layers.1.{name}")).unwrap_or_else(|| panic!("{name}"))
}

fn remove(tensors: &mut Tensors, name: &str) {
    tensors.remove(&format!("model.layers.1.{name}")).unwrap_or_else(|| panic!("{name}"));
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_their_names() {
    const CASES: &[(&str, &str, Spoil)] = &[
        ("ct-int4-group32", "o_proj.weight_scale of shape [64, 4] is missing", |all| {
            remove(all, "self_attn.o_proj.weight_scale");
        }),
        ("ct-int4-group32", "o_proj.weight_scale has shape [4, 64], but config.json implies [64, 4]", |all| {
            tensor(all, "self_attn.o_proj.weight_scale").1 = vec![4, 64];
        }),
        ("ct-int4-group32", "o_proj.weight_scale of quantized weights has type I16, but must have type BF16", |all| {
            tensor(all, "self_attn.o_proj.weight_scale").0 = Dtype::I16;
        }),
        ("ct-int4-group32", "up_proj.weight_packed has shape [64, 16], but config.json implies [128, 8]", |all| {
            tensor(all, "mlp.up_proj.weight_packed").1 = vec![64, 16];
        }),
        ("ct-int4-group32", "up_proj.weight_packed of quantized weights has type U32, but must have type I32", |all| {
            tensor(all, "mlp.up_proj.weight_packed").0 = Dtype::U32;
        }),
        ("ct-int4-group32", "up_proj.weight_shape of quantized weights has [63, 64], but must have [128, 64]", |all| {
            tensor(all, "mlp.up_proj.weight_shape").2[0] = 63;
        }),
        (
            "ct-int4-group32",
            "up_proj.weight_g_idx of quantized weights has 2 at index 0, but must have groups from 0 to 1",
            |all| {
                let groups = [2i32; 64].iter().flat_map(|group| group.to_le_bytes()).collect();
                all.insert("model.layers.1.mlp.up_proj.weight_g_idx".into(), (Dtype::I32, vec![64], groups));
            },
        ),
        ("ct-int4-group32", "up_proj.weight_global_scale", |all| {
            all.insert("model.layers.1.mlp.up_proj.weight_global_scale".into(), (Dtype::F32, vec![1], vec![0; 4]));
        }),
        ("ct-int4-zeros", "up_proj.weight_zero_point of shape [128, 1] is missing", |all| {
            remove(all, "mlp.up_proj.weight_zero_point");
        }),
        ("ct-int4-zeros", "up_proj.weight_zero_point has shape [1, 16], but config.json implies [16, 1]", |all| {
            tensor(all, "mlp.up_proj.weight_zero_point").1 = vec![1, 16];
        }),
        ("ct-mixed", "gate_proj.weight of quantized weights has type F8_E4M3, but must have type I8", |_| {}),
        (
            "fp8-block-bf16-scales",
            "gate_proj.weight_scale_inv has shape [1, 2], but config.json implies [2, 1]",
            |all| {
                tensor(all, "mlp.gate_proj.weight_scale_inv").1 = vec![1, 2];
            },
        ),
        ("fp8-block-bf16-scales", "gate_proj.weight_scale_inv of shape [2, 1] is missing", |all| {
            remove(all, "mlp.gate_proj.weight_scale_inv");
        }),
        ("awq-group32", "k_proj.qzeros has shape [8, 2], but config.json implies [2, 8]", |all| {
            tensor(all, "self_attn.k_proj.qzeros").1 = vec![8, 2];
        }),
        ("awq-group32", "k_proj.qweight of quantized weights has type I16, but must have type I32", |all| {
            let (dtype, shape, _) = tensor(all, "self_attn.k_proj.qweight");
            *dtype = Dtype::I16;
            shape[1] *= 2;
        }),
        ("gptq4-sym", "k_proj.scales of shape [2, 64] is missing", |all| remove(all, "self_attn.k_proj.scales")),
        ("gptq4-sym", "k_proj.g_idx of quantized weights has -2 at index 3, but must have groups from 0 to 1", |all| {
            tensor(all, "self_attn.k_proj.g_idx").2[12..16].copy_from_slice(&(-2i32).to_le_bytes());
        }),
        ("ct-nvfp4", "k_proj.weight_global_scale of shape [1] is missing", |all| {
            remove(all, "self_attn.k_proj.weight_global_scale");
        }),
        ("ct-nvfp4", "k_proj.weight_scale of quantized weights has type BF16, but must have type F8_E4M3", |all| {
            let (dtype, shape, bytes) = tensor(all, "self_attn.k_proj.weight_scale");
            (*dtype, *bytes) = (Dtype::BF16, vec![0; shape.iter().product::<usize>() * 2]);
        }),
        ("mxfp4-bf16-gpt_oss", "gate_up_proj_scales of shape [3, 64, 2] is missing", |all| {
            remove(all, "mlp.experts.gate_up_proj_scales");
        }),
        (
            "mxfp4-bf16-gpt_oss",
            "down_proj_blocks has shape [3, 64, 16], but config.json implies [3, 64, 1, 16]",
            |all| {
                tensor(all, "mlp.experts.down_proj_blocks").1 = vec![3, 64, 16];
            },
        ),
        ("mxfp4-bf16-gpt_oss", "gate_up_proj_bias of shape [3, 64] is missing", |all| {
            remove(all, "mlp.experts.gate_up_proj_bias");
        }),
        ("mxfp4-bf16-gpt_oss", "sinks.weight of shape [2] is missing", |all| remove(all, "self_attn.sinks")),
        ("gptq4-sym", "k_proj.bias", |all| {
            all.insert("model.layers.1.self_attn.k_proj.bias".into(), (Dtype::F16, vec![64], vec![1; 128]));
        }),
    ];
    for (name, wanted, spoil) in CASES {
        let folder = Folder::copy(&folder(name), "spoilt");
        folder.edit_tensors(spoil);
        if *name == "ct-mixed" {
            folder.edit_tensors(|all| {
                let (_, shape, _) = tensor(all, "mlp.gate_proj.weight_scale").clone();
                remove(all, "mlp.gate_proj.weight_packed");
                let codes = (Dtype::F8_E4M3, vec![shape[0], 64], vec![0; shape[0] * 64]);
                all.insert("model.layers.1.mlp.gate_proj.weight".into(), codes);
            });
        }
        let refused = open(&folder.path, &config(), Isa::Portable).err();
        let message = refused.unwrap_or_else(|| panic!("{name} opens, without: {wanted}")).to_string();
        assert!(message.contains(wanted), "{name}: {message}");
    }
}

#[test]
fn scales_of_activations_and_biases_of_nothing_are_left_aside() {
    let folder = Folder::copy("quantized/gptq4-sym", "aside");
    folder.edit_tensors(|all| {
        all.insert("model.layers.1.self_attn.k_proj.bias".into(), (Dtype::F16, vec![64], vec![0; 128]));
        all.insert("model.layers.1.self_attn.k_proj.input_scale".into(), (Dtype::F32, vec![1], vec![0; 4]));
        all.insert("model.layers.1.self_attn.k_scale".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    open(&folder.path, &config(), Isa::Portable).unwrap();
}

#[test]
fn settings_may_be_in_a_file_of_their_own() {
    for (name, file) in [("gptq4-sym", "quantize_config.json"), ("awq-group32", "quant_config.json")] {
        let (_, inside) = open(&golden(&folder(name)), &config(), Isa::Portable).unwrap();
        let folder = Folder::copy(&folder(name), "beside");
        let mut settings = Value::Null;
        folder.edit_json("config.json", |config| {
            settings = config.as_object_mut().unwrap().remove("quantization_config").unwrap();
        });
        let settings = settings.as_object_mut().unwrap();
        settings.remove("quant_method");
        if file == "quant_config.json" {
            for (new, old) in [("bits", "w_bit"), ("group_size", "q_group_size")] {
                let value = settings.remove(new).unwrap();
                settings.insert(old.into(), value);
            }
            settings["version"] = json!("GEMM");
        }
        fs::write(folder.file(file), json!(settings).to_string()).unwrap();
        let (_, beside) = open(&folder.path, &config(), Isa::Portable).unwrap();
        assert_eq!(beside.weight_bytes, inside.weight_bytes, "{name}");
        fs::remove_file(folder.file(file)).unwrap();
        let message = refusal(&folder.path).to_string();
        assert!(message.contains("qweight has type I32, codes that no quantization_config describes"), "{message}");
    }
}

/// The demo model, whose widths are multiples of 128.
fn demo() -> std::path::PathBuf {
    driver::root().join("models/demo")
}

#[test]
fn a_folder_can_be_quantized_while_it_opens() {
    let (_, plain) = open(&demo(), &config(), Isa::Portable).unwrap();
    for (on_load, share, coding) in
        [(OnLoad::Int8, 0.52, "INT8 in groups of 128"), (OnLoad::Int4, 0.30, "INT4 in groups of 32")]
    {
        let config = EngineOptions { on_load, ..config() };
        let (_, info) = open(&demo(), &config, Isa::Portable).unwrap();
        assert_eq!(info.num_parameters, plain.num_parameters);
        assert!(
            info.weight_bytes as f64 <= plain.weight_bytes as f64 * share,
            "{} of {}",
            info.weight_bytes,
            plain.weight_bytes
        );
        for part in [WeightPart::Embedding, WeightPart::Attention, WeightPart::FeedForward] {
            assert_eq!(info.coding(part).unwrap().to_string(), coding);
        }
        assert_eq!(info.coding(WeightPart::Head), None, "the embedding table serves");
        assert_ne!(info.fingerprint, plain.fingerprint);
        let of_parts: u64 = WeightPart::ALL.into_iter().map(|part| info.bytes_of(part)).sum();
        assert!(of_parts <= info.weight_bytes && of_parts * 10 >= info.weight_bytes * 9);
    }
}

/// What is coded stays as it is, and what is not is quantized in groups that divide its width.
#[test]
fn quantizing_while_opening_leaves_codes_as_they_are() {
    let path = golden("quantized/ct-mixed");
    let mut weights = weights(&path, None, OnLoad::Int4).unwrap();
    for (module, wanted) in [
        ("layers.0.mlp.gate_proj", "INT4 in groups of 32"),
        ("layers.0.self_attn.q_proj", "INT8 per row"),
        ("layers.0.mlp.up_proj", "INT4 in groups of 32"),
    ] {
        let cols = 64;
        assert_eq!(weights.matrix(module, 128, cols).unwrap().coding().to_string(), wanted, "{module}");
    }
}

#[test]
fn parts_of_ranks_have_the_codes_of_the_whole() {
    let open = |on_load| weights(&demo(), Some(DType::F32), on_load).unwrap();
    let config: Value = serde_json::from_slice(&fs::read(demo().join("config.json")).unwrap()).unwrap();
    let (hidden, width) =
        (config["hidden_size"].as_u64().unwrap() as usize, config["intermediate_size"].as_u64().unwrap() as usize);
    for on_load in [OnLoad::Int8, OnLoad::Int4] {
        let whole = open(on_load).matrix("layers.0.mlp.down_proj", hidden, width).unwrap().to_f32();
        for (from, to) in [(0, 128), (128, width), (64, 320), (8, 48)] {
            let mut weights = open(on_load);
            let own = 5..9;
            let parts = weights
                .matrix_parts("layers.0.mlp.down_proj", (hidden, width), std::slice::from_ref(&own), from..to)
                .unwrap();
            let wanted: Vec<f32> = own.flat_map(|row| whole[row * width + from..row * width + to].to_vec()).collect();
            assert_eq!(bits(&parts[0].to_f32()), bits(&wanted), "{on_load:?}, columns {from} to {to}");
        }
    }
}

/// Bytes that opening expects the weights to take, against what they take.
#[test]
fn the_size_of_coded_weights_is_known_before_they_are_read() {
    let mut cases: Vec<(std::path::PathBuf, OnLoad)> =
        CASES.iter().map(|name| (golden(&folder(name)), OnLoad::None)).collect();
    cases.extend([(demo(), OnLoad::Int8), (demo(), OnLoad::Int4), (demo(), OnLoad::None)]);
    for (path, on_load) in cases {
        let expected = weights(&path, None, on_load).unwrap().total_bytes() as f64;
        let (_, info) = open(&path, &EngineOptions { on_load, ..config() }, Isa::Portable).unwrap();
        let ratio = expected / info.weight_bytes as f64;
        assert!((0.85..1.15).contains(&ratio), "{}, {on_load:?}: {ratio}", path.display());
    }
}

/// A folder that does not exist yet, and does not when the test has ended, unless `NVLLM_TEST_KEEP` is set.
struct NewFolder(std::path::PathBuf);

impl NewFolder {
    fn of(test: &str) -> NewFolder {
        let path = std::env::temp_dir().join(format!("nanovllm-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        NewFolder(path)
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if std::env::var_os("NVLLM_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn quantize(from: &Path, to: &Path, on_load: OnLoad) -> Result<()> {
    quantize_folder(&Source::open(from)?, to, on_load, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn a_folder_that_is_written_has_the_numbers_of_one_that_is_quantized_while_it_opens() {
    for on_load in [OnLoad::Int8, OnLoad::Int4] {
        for from in
            [demo(), golden("llama-f32-gqa1"), golden("qwen2-f32-tied-sharded"), golden("phi3-f16-longrope-short96")]
        {
            let to = NewFolder::of("written");
            quantize(&from, &to.0, on_load).unwrap();
            let config = EngineOptions { max_model_len: Some(90), ..config() };
            let (_, info) = open(&to.0, &config, Isa::Portable).unwrap();
            let (mut open, mut written) =
                (weights(&from, None, on_load).unwrap(), weights(&to.0, None, OnLoad::None).unwrap());
            let model = Description::read(&Source::open(&from).unwrap()).unwrap();
            let (hidden, width) = (info.hidden_size, model.spec.layers[0].feed_forward().unwrap().width());
            for layer in 0..info.num_layers {
                let name = format!("layers.{layer}.mlp.down_proj");
                let [wanted, found] =
                    [&mut open, &mut written].map(|weights| weights.matrix(&name, hidden, width).unwrap());
                assert_eq!(found.coding(), wanted.coding(), "{}, {on_load:?}", from.display());
                assert_eq!(bits(&found.to_f32()), bits(&wanted.to_f32()), "{}, {on_load:?}", from.display());
            }
            for name in ["tokenizer.json", "generation_config.json"] {
                assert_eq!(to.0.join(name).exists(), from.join(name).exists(), "{name}");
            }
        }
    }
}

#[test]
fn a_folder_is_neither_overwritten_nor_quantized_twice() {
    let (to, again) = (NewFolder::of("overwritten"), NewFolder::of("twice"));
    quantize(&demo(), &to.0, OnLoad::Int8).unwrap();
    let message = quantize(&demo(), &to.0, OnLoad::Int8).unwrap_err().to_string();
    assert!(message.contains("is not empty, and nothing is overwritten"), "{message}");
    let message = quantize(&to.0, &again.0, OnLoad::Int8).unwrap_err().to_string();
    assert!(message.contains("is quantized already"), "{message}");
    assert!(!again.0.exists());
    let source = Source::open(&demo()).unwrap();
    let cancelled = quantize_folder(&source, &again.0, OnLoad::Int4, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
}

/// The answers that the demo model was made for, as tokens.
fn texts() -> Vec<Vec<u32>> {
    let tokenizer = tokenizers::Tokenizer::from_file(demo().join("tokenizer.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(demo().join("expected.json")).unwrap()).unwrap();
    let answers = cases.iter().step_by(5).map(|case| case["answer"].as_str().unwrap());
    let tokens = answers.map(|answer| tokenizer.encode(answer, false).unwrap().get_ids().to_vec());
    tokens.map(|mut tokens| (tokens.truncate(60), tokens).1).filter(|tokens| tokens.len() > 8).collect()
}

/// The mean divergence of what one engine expects next from what another does, `sum p ln(p / q)`.
fn divergence(texts: &[Vec<u32>], of: (OnLoad, Isa), from: (OnLoad, Isa)) -> f64 {
    let of_engine = |(on_load, isa)| (EngineOptions { on_load, ..config() }, isa);
    divergence_of(texts, of_engine(of), of_engine(from))
}

fn divergence_of(texts: &[Vec<u32>], of: (EngineOptions, Isa), from: (EngineOptions, Isa)) -> f64 {
    let [mut wanted, mut found] = [from, of].map(|(options, isa)| open(&demo(), &options, isa).unwrap());
    let (mut sum, mut count) = (0.0, 0);
    for text in texts {
        let known = Reference {
            prompt: text[..4].to_vec(),
            tokens: text[4..].to_vec(),
            logits: Vec::new(),
            bf16_apart: Vec::new(),
        };
        let (wanted, _) = follow(&mut wanted.0, &wanted.1.limits, &known);
        let (found, _) = follow(&mut found.0, &found.1.limits, &known);
        for (wanted, found) in wanted.iter().zip(&found) {
            let log_sum = |row: &[f32]| row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
            let (p, q) = (log_sum(wanted), log_sum(found));
            let apart = |(&x, &y): (&f32, &f32)| (f64::from(x) - p).exp() * (f64::from(x) - p - f64::from(y) + q);
            sum += wanted.iter().zip(found).map(apart).sum::<f64>();
            count += 1;
        }
    }
    sum / f64::from(count)
}

/// What the data type AUTO costs beside F32, where both have the same weights: docs/performance.md has the figures.
#[test]
fn activations_that_are_rounded_hardly_change_what_is_expected_next() {
    let texts = texts();
    for on_load in [OnLoad::Int8, OnLoad::Int4] {
        for &isa in Isa::available() {
            let options = |dtype| EngineOptions { on_load, dtype, ..config() };
            let apart = divergence_of(&texts, (options(None), isa), (options(Some(DType::F32)), isa));
            println!("divergence: {apart:.6} with {on_load:?} by rounded activations ({isa:?})");
            assert!(apart <= 0.002, "{on_load:?}, {isa:?}: {apart}");
        }
    }
}

#[test]
fn weights_of_8_bits_hardly_change_what_is_expected_next() {
    let texts = texts();
    let int4_in_f32 = divergence(&texts, (OnLoad::Int4, Isa::Portable), (OnLoad::None, Isa::Portable));
    println!("divergence: {int4_in_f32:.6} with int4 (Portable)");
    for &isa in &Isa::available()[1..] {
        let int8 = divergence(&texts, (OnLoad::Int8, isa), (OnLoad::None, Isa::Portable));
        let int4 = divergence(&texts, (OnLoad::Int4, isa), (OnLoad::None, Isa::Portable));
        println!("divergence: {int8:.6} with int8, {int4:.6} with int4 ({isa:?})");
        assert!(int8 <= 0.002, "{isa:?}: {int8}");
        assert!((int4 / int4_in_f32 - 1.0).abs() <= 0.1, "{isa:?}: {int4} and {int4_in_f32}");
    }
}
