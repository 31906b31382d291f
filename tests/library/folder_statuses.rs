//! What a C program is told of a model folder that is refused: the status of each refusal stays what it was.
//!
//! A program may act on a status, so a message may become better and a status may not become another. `tests/library/bad_folders.rs` has the
//! messages.

use crate::driver;
use crate::scratch_folder;

use capi::engine::*;
use capi::status::nvllm_status_code::{self, *};
use driver::golden;
use safetensors::tensor::Dtype;
use scratch_folder::{Folder, Tensors};
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::null_mut;

const WHOLE: &str = "llama-f32-gqa1";
const SHARDED: &str = "qwen2-f32-tied-sharded";
const INDEX: &str = "model.safetensors.index.json";

/// Opens an engine as a C program does, and says what the call returned.
fn status(folder: &Path, kv_cache_bytes: u64) -> i32 {
    let path = CString::new(folder.to_str().unwrap()).unwrap();
    let mut config = MaybeUninit::<nvllm_engine_config>::uninit();
    // SAFETY: the place has this size, and is written whole.
    let mut config = unsafe {
        nvllm_engine_config_init(config.as_mut_ptr(), size_of::<nvllm_engine_config>());
        config.assume_init()
    };
    config.model_path = path.as_ptr();
    config.device = nvllm_device::NVLLM_DEVICE_CPU as i32;
    config.num_threads = 1;
    config.kv_cache_bytes = kv_cache_bytes;
    let mut engine = null_mut();
    // SAFETY: all pointers are of live values; an engine that was made is freed and not used again.
    unsafe {
        let status = nvllm_engine_new(&config, &mut engine, None);
        nvllm_engine_free(engine);
        status
    }
}

/// How a folder is spoiled.
enum Spoil {
    /// Another value of a field of config.json.
    Config(&'static str, Value),
    /// Another text of a file.
    Text(&'static str, &'static str),
    /// A file less.
    Without(&'static str),
    /// Other tensors.
    Tensors(fn(&mut Tensors)),
}

struct Case {
    name: &'static str,
    folder: &'static str,
    spoil: Vec<Spoil>,
    status: nvllm_status_code,
}

fn case(name: &'static str, spoil: Vec<Spoil>, status: nvllm_status_code) -> Case {
    Case { name, folder: WHOLE, spoil, status }
}

fn config(name: &'static str, field: &'static str, value: Value) -> Case {
    case(name, vec![Spoil::Config(field, value)], NVLLM_ERR_MODEL)
}

fn tensors(name: &'static str, edit: fn(&mut Tensors)) -> Case {
    case(name, vec![Spoil::Tensors(edit)], NVLLM_ERR_MODEL)
}

/// Folders that version 0.1.0 refused, with the status that it gave.
fn refused() -> Vec<Case> {
    use Spoil::{Text, Without};
    vec![
        case("no config", vec![Without("config.json")], NVLLM_ERR_MODEL),
        case("a config that is not JSON", vec![Text("config.json", "{")], NVLLM_ERR_MODEL),
        case("a config that is a list", vec![Text("config.json", "[]")], NVLLM_ERR_MODEL),
        config("an unknown class", "architectures", json!(["MambaForCausalLM"])),
        config("no class", "architectures", json!(null)),
        config("a class that is no list", "architectures", json!("LlamaForCausalLM")),
        config("no layers", "num_hidden_layers", json!(0)),
        config("a width that is no number", "hidden_size", json!("64")),
        config("a width of another model", "hidden_size", json!(128)),
        config("heads that do not divide", "num_key_value_heads", json!(3)),
        config("too many heads", "num_attention_heads", json!(1 << 20)),
        config("an odd head", "head_dim", json!(15)),
        config("a head that is too wide", "head_dim", json!(1024)),
        config("a negative epsilon", "rms_norm_eps", json!(-1e-6)),
        config("end tokens that are none", "eos_token_id", json!("</s>")),
        config("another activation", "hidden_act", json!("gelu")),
        config("a window that is switched on", "use_sliding_window", json!(true)),
        config("layers with a window", "layer_types", json!(["sliding_attention", "full_attention"])),
        config("quantized weights", "quantization_config", json!({"quant_method": "awq"})),
        config("a quantization that is no object", "quantization_config", json!([])),
        config("half a rotation", "partial_rotary_factor", json!(0.5)),
        config("an unknown rope", "rope_scaling", json!({"rope_type": "longrope"})),
        config("a rope without its factor", "rope_scaling", json!({"rope_type": "linear"})),
        case(
            "more layers than there are",
            vec![Spoil::Config("num_hidden_layers", json!(3)), Spoil::Config("layer_types", json!(null))],
            NVLLM_ERR_MODEL,
        ),
        case("no weights", vec![Without("model.safetensors")], NVLLM_ERR_MODEL),
        case("weights that are none", vec![Text("model.safetensors", "weights")], NVLLM_ERR_MODEL),
        Case { folder: SHARDED, ..case("an index that is none", vec![Text(INDEX, "{}")], NVLLM_ERR_MODEL) },
        Case {
            folder: SHARDED,
            ..case("a missing shard", vec![Without("model-00002-of-00003.safetensors")], NVLLM_ERR_MODEL)
        },
        tensors("a missing tensor", |all| drop(all.remove("model.layers.1.mlp.up_proj.weight"))),
        tensors("a misshapen tensor", |all| {
            all.get_mut("model.layers.0.self_attn.k_proj.weight").unwrap().1 = vec![32, 128];
        }),
        tensors("a tensor of another type", |all| {
            let (dtype, shape, data) = all.get_mut("model.layers.0.mlp.down_proj.weight").unwrap();
            *dtype = Dtype::F8_E4M3;
            data.truncate(shape.iter().product());
        }),
        tensors("codes instead of weights", |all| {
            all.remove("model.layers.0.self_attn.q_proj.weight");
            all.insert("model.layers.0.self_attn.q_proj.qweight".into(), (Dtype::I32, vec![8], vec![0; 32]));
        }),
        case("a broken tokenizer", vec![Text("tokenizer.json", "{")], NVLLM_ERR_MODEL),
        case("a broken tokenizer_config", vec![Text("tokenizer_config.json", "{")], NVLLM_ERR_MODEL),
        case("a broken chat template", vec![Text("chat_template.jinja", "{% endfor %}")], NVLLM_ERR_MODEL),
        case("a broken generation_config", vec![Text("generation_config.json", "{")], NVLLM_ERR_MODEL),
    ]
}

/// Folders that version 0.1.0 opened, and that gave wrong tokens.
fn refused_since() -> Vec<Case> {
    vec![
        config("a model_type of another class", "model_type", json!("granite")),
        config("a residual_multiplier", "residual_multiplier", json!(0.22)),
        config("a window", "sliding_window", json!(16)),
        config("layers without a rope", "no_rope_layers", json!([1, 0])),
        config("layers of a kind that is no list", "layer_types", json!("sliding_attention")),
        tensors("a tensor that nothing reads", |all| {
            let norm = all["model.layers.0.input_layernorm.weight"].clone();
            all.insert("model.layers.0.pre_feedforward_layernorm.weight".into(), norm);
        }),
    ]
}

/// Folders of families that version 0.1.0 did not know, whose configs contradict themselves or ask for something else.
fn refused_of_families() -> Vec<Case> {
    use Spoil::{Config, Tensors as Edit};
    let config = |name, folder, field, value| Case { folder, ..config(name, field, value) };
    let all = |name, folder, spoil| Case { folder, ..case(name, spoil, NVLLM_ERR_MODEL) };
    vec![
        config("windows without their size", "gemma3-f32", "sliding_window", json!(null)),
        config("an activation that is not computed", "gemma3-f32", "hidden_activation", json!("gelu")),
        config("fewer types than layers", "gemma3-f32", "layer_types", json!(["full_attention"])),
        config("an unknown type of layer", "gemma3-f32", "layer_types", json!(vec!["linear_attention"; 6])),
        config("a decoder of an encoder's class", "encoders/bert-f32", "is_decoder", json!(true)),
        config("positions by distance", "encoders/bert-f32", "position_embedding_type", json!("relative_key")),
        config(
            "fewer types of layers than layers",
            "encoders/modernbert-f32",
            "layer_types",
            json!(["full_attention"]),
        ),
        config("a cap of scores that the class has not", "gemma3-f32", "attn_logit_softcapping", json!(50.0)),
        config("an interval that layer_types contradicts", "qwen3_5-f32", "full_attention_interval", json!(3)),
        config("no description of the decoder", "gemma3-f32-wrapped", "text_config", json!(null)),
        config("a decoder of an unknown family", "gemma3-f32-wrapped", "text_config", json!({"model_type": "gemma9"})),
        config("a rope that the class does not compute", "phi3-f32-window16", "rope_scaling", json!({"type": "yarn"})),
        config("rope parameters for no type of layer", "olmo3-f32", "rope_parameters", json!({"rope_theta": 1e4})),
        config("parts one after the other", "cohere2-f32", "use_parallel_block", json!(false)),
        config("an epsilon of nothing", "cohere2-f32", "layer_norm_eps", json!(0)),
        config("a factor of nothing", "granite-f32", "residual_multiplier", json!(0)),
        config("too few flags of rotation", "smollm3-f32-no-rope", "no_rope_layers", json!([1, 0])),
        config(
            "a temperature that is missing",
            "ministral3-f32-yarn",
            "rope_parameters",
            json!({"rope_type": "default"}),
        ),
        all(
            "a Gemma under the name of Qwen",
            "gemma3-f32",
            vec![Config("architectures", json!(["Qwen3ForCausalLM"])), Config("model_type", json!(null))],
        ),
        all(
            "a norm that is missing",
            "gemma2-f32",
            vec![Edit(|all| drop(all.remove("model.layers.1.pre_feedforward_layernorm.weight")))],
        ),
        all(
            "a factor of the stream that is missing",
            "gemma4_text-f32-biased",
            vec![Edit(|all| drop(all.remove("model.layers.1.layer_scalar")))],
        ),
        all(
            "a projection to values where keys serve",
            "gemma4-f32-keys-are-values",
            vec![Edit(|all| {
                let key = all["model.language_model.layers.2.self_attn.k_proj.weight"].clone();
                all.insert("model.language_model.layers.2.self_attn.v_proj.weight".into(), key);
            })],
        ),
        all(
            "a gate of attention that is missing",
            "muse_glimmer-f32",
            vec![Edit(|all| drop(all.remove("model.language_model.layers.1.self_attn.gate_proj.weight")))],
        ),
        all(
            "a gate of attention that the class has not",
            "llama-f32-gqa1",
            vec![Edit(|all| {
                let query = all["model.layers.0.self_attn.q_proj.weight"].clone();
                all.insert("model.layers.0.self_attn.gate_proj.weight".into(), query);
            })],
        ),
        all(
            "a fused projection of too few rows",
            "phi3-f32-window16",
            vec![Edit(|all| all.get_mut("model.layers.0.self_attn.qkv_proj.weight").unwrap().1 = vec![64, 128])],
        ),
        all(
            "a projection that is fused twice",
            "phi3-f32-window16",
            vec![Edit(|all| {
                let fused = all["model.layers.0.self_attn.qkv_proj.weight"].clone();
                all.insert("model.layers.0.self_attn.q_proj.weight".into(), fused);
            })],
        ),
    ]
}

impl Spoil {
    fn apply(&self, folder: &Folder) {
        match self {
            Spoil::Config(field, value) => folder.edit_json("config.json", |config| config[*field] = value.clone()),
            Spoil::Text(file, text) => fs::write(folder.file(file), text).unwrap(),
            Spoil::Without(file) => fs::remove_file(folder.file(file)).unwrap(),
            Spoil::Tensors(edit) => folder.edit_tensors(edit),
        }
    }
}

fn check(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for (index, Case { name, folder, spoil, status: wanted }) in cases.iter().enumerate() {
        let folder = Folder::copy(folder, &format!("status-{}-{index}", cases.len()));
        spoil.iter().for_each(|spoil| spoil.apply(&folder));
        let found = status(&folder.path, 4 << 20);
        if found != *wanted as i32 {
            wrong.push(format!("{name}: {found} instead of {}", *wanted as i32));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_refusal_keeps_its_status() {
    check(refused());
}

#[test]
fn what_gave_wrong_tokens_is_refused_as_a_model() {
    check(refused_since());
}

#[test]
fn a_family_refuses_what_it_does_not_compute_as_a_model() {
    check(refused_of_families());
}

#[test]
fn paths_and_sizes_keep_their_status() {
    let whole = golden(WHOLE);
    assert_eq!(status(&whole, 4 << 20), NVLLM_OK as i32);
    assert_eq!(status(Path::new("/nowhere/at/all"), 4 << 20), NVLLM_ERR_IO as i32);
    assert_eq!(status(&whole.join("config.json"), 4 << 20), NVLLM_ERR_MODEL as i32, "a file instead of a folder");
    assert_eq!(status(&whole.join("model.safetensors"), 4 << 20), NVLLM_ERR_MODEL as i32, "a file of weights");
    assert_eq!(status(&whole, 100), NVLLM_ERR_OUT_OF_MEMORY as i32, "no room for one block");
}
