//! Model folders whose files are changed, odd, or missing: the config, the tokenizer, and everything else.

use super::{json, patterns, quantized, tokenizers};
use crate::capi::{self, Engine, Good, judge};
use crate::case::{self, Bounds, Content, Input, Session, Target, root, violation};
use crate::random::{self, Rng};
use ::capi::text::{nvllm_detokenize, nvllm_tokenize};
use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// The name of the part that says which folder the other parts are put into.
const BASE: &str = "base";
pub const GOLDEN: &str = "tests/golden/qwen3-f32-untied-gqa8";
const GOLDENS: &[&str] = &[
    GOLDEN,
    "tests/golden/qwen3-f32-yarn",
    "tests/golden/llama-f32-llama3",
    "tests/golden/llama-f32-linear-biased",
    "tests/golden/qwen2-f32-tied-sharded",
    "tests/golden/qwen2-f16-old-keys",
];
const SHARDED: &str = "tests/golden/qwen2-f32-tied-sharded";
const DEMO: &str = "models/demo";

/// A folder that is gone when the value is.
pub struct Built(pub PathBuf);

impl Built {
    /// The base's files as links, and the parts of the input in their places.
    pub fn new(input: &Input) -> Built {
        let built = Built::empty();
        let folder = &built.0;
        let is_part = |name: &str| input.parts.iter().any(|(part, _)| part == name);
        let base = match input.bytes(BASE) {
            [] => GOLDEN.to_owned(),
            base => String::from_utf8_lossy(base).into_owned(),
        };
        for entry in fs::read_dir(root().join(base)).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let is_model = ["json", "safetensors", "jinja"].iter().any(|end| name.ends_with(end));
            if is_model && !name.starts_with("reference") && !is_part(&name) {
                symlink(entry.path(), folder.join(name)).unwrap();
            }
        }
        for (name, content) in input.parts.iter().filter(|(name, _)| name != BASE) {
            let path = folder.join(name);
            match content {
                Content::Bytes(bytes) => fs::write(&path, bytes).unwrap(),
                Content::Missing => {}
                Content::Folder => fs::create_dir(&path).unwrap(),
                Content::Link(to) => symlink(to, &path).unwrap(),
                Content::Zeros(len) => fs::File::create(&path).unwrap().set_len(*len).unwrap(),
                Content::Pipe => {
                    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
                    // SAFETY: the path ends with a NUL.
                    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
                }
            }
        }
        built
    }

    /// A folder without files.
    pub fn empty() -> Built {
        let folder = std::env::temp_dir().join(format!("nanovllm-campaign-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Built(folder)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens the folders of its inputs, and uses what opens.
struct Folders {
    name: &'static str,
    corpus: fn() -> Vec<Input>,
    generate: fn(&mut Rng, &[Input]) -> Input,
}

pub fn targets() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(Folders { name: "folders", corpus: odd_folders, generate: change_folder }),
        Box::new(Folders { name: "config", corpus: configs, generate: change_config }),
        Box::new(Folders { name: "quantization", corpus: quantized::corpus, generate: quantized::change }),
        Box::new(Folders { name: "patterns", corpus: patterns::corpus, generate: patterns::change }),
        Box::new(Folders { name: "tokenizer", corpus: tokenizers::corpus, generate: tokenizers::change }),
    ]
}

impl Target for Folders {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bounds(&self) -> Bounds {
        // A tokenizer is several times its file, and is read at most once more to be checked.
        Bounds { cpu_ms: 1000, heap_bytes: 64 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        500
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        (self.corpus)()
    }

    fn generate(&self, rng: &mut Rng, corpus: &[Input]) -> Input {
        (self.generate)(rng, corpus)
    }

    fn open(&self) -> Box<dyn Session> {
        let engine = Engine::demo();
        let good = Good::of(&engine);
        Box::new(Visitor { engine, good })
    }
}

/// An engine that must not notice what happens to others.
struct Visitor {
    engine: Engine,
    good: Good,
}

impl Session for Visitor {
    fn run(&mut self, input: &Input) {
        let built = Built::new(input);
        if let Ok(engine) = Engine::open(&built.0, |_| {}) {
            use_all(&engine, input.seed);
        }
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}

const TEXTS: &[&str] = &[
    "",
    "a",
    "Hello, world! 123",
    " \u{e9}\u{301}中文😀\n\t<|im_end|><s>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\u{0}\u{1}\u{feff}",
];

/// Calls whatever an engine can do with the files of its folder.
pub fn use_all(engine: &Engine, seed: u64) {
    let mut rng = Rng::of_case(seed, "use", 0);
    for text in TEXTS {
        let tokens = tokenize(engine, text, rng.below(4) as u32);
        detokenize(engine, &tokens, rng.below(4) as u32);
    }
    detokenize(engine, &(0..100).collect::<Vec<_>>(), 2);
    detokenize(engine, &[u32::MAX, 1 << 31, 2047, 2048], 0);
    let _ = engine.chat(br#"[{"role":"user","content":"Hi"}]"#, b"");
    let mut options = capi::options();
    options.max_tokens = 3;
    if let Ok(id) = engine.add_tokens(&[1, 2, 3, 4, 5], &options) {
        engine.finish(id);
    }
    let stop = [c"zzz".as_ptr()];
    (options.stop, options.num_stop) = (stop.as_ptr(), 1);
    options.num_logprobs = 2;
    if let Ok(id) = engine.add("a b", &options) {
        engine.finish(id);
    }
    if rng.one_in(8) {
        options.structure = c"[a-z]+".as_ptr();
        options.structure_kind = 2;
        if let Ok(id) = engine.add_tokens(&[1, 2, 3], &options) {
            engine.finish(id);
        }
    }
}

/// nvllm_tokenize, with a second call where the room does not suffice.
pub fn tokenize(engine: &Engine, text: &str, flags: u32) -> Vec<u32> {
    let mut room = 64;
    for _ in 0..2 {
        let (mut tokens, mut needed, mut error) = (vec![0u32; room], 0, capi::no_error());
        // SAFETY: all pointers are of live values of these lengths.
        let status = unsafe {
            let (at, len, to) = (text.as_ptr().cast(), text.len(), tokens.as_mut_ptr());
            nvllm_tokenize(engine.pointer(), at, len, flags, to, room, &mut needed, Some(&mut error))
        };
        judge("nvllm_tokenize", status, &error);
        match status {
            capi::OK => {
                tokens.truncate(needed);
                return tokens;
            }
            -2 => room = needed,
            _ => return Vec::new(),
        }
    }
    violation("nvllm_tokenize asks for more room each time");
    Vec::new()
}

/// nvllm_detokenize into a small buffer.
pub fn detokenize(engine: &Engine, tokens: &[u32], flags: u32) {
    let (mut text, mut needed, mut error) = (vec![0u8; 256], 0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status = unsafe {
        let (at, len, to) = (tokens.as_ptr(), tokens.len(), text.as_mut_ptr().cast());
        nvllm_detokenize(engine.pointer(), at, len, flags, to, text.len(), &mut needed, Some(&mut error))
    };
    judge("nvllm_detokenize", status, &error);
    if status == capi::OK && std::str::from_utf8(&text[..needed]).is_err() {
        violation("nvllm_detokenize wrote what is no UTF-8");
    }
}

pub fn base(folder: &str) -> (String, Content) {
    (BASE.to_owned(), Content::Bytes(folder.as_bytes().to_vec()))
}

pub fn file(folder: &str, name: &str) -> Vec<u8> {
    fs::read(root().join(folder).join(name)).unwrap_or_default()
}

/// A folder with one file replaced.
pub fn replaced(origin: String, folder: &str, name: &str, content: Content) -> Input {
    Input { origin, parts: vec![base(folder), (name.to_owned(), content)], seed: 1 }
}

const FILES: &[&str] = &[
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates",
    "model.safetensors.index.json",
    "model-00001-of-00003.safetensors",
];

/// Each file as something that it should not be.
fn odd_folders() -> Vec<Input> {
    let mut all = case::hostile("folders", "config.json");
    for name in FILES {
        let contents = [
            ("missing", Content::Missing),
            ("empty", Content::Bytes(Vec::new())),
            ("a folder", Content::Folder),
            ("a link to itself", Content::Link(PathBuf::from(name))),
            ("a link to nothing", Content::Link(PathBuf::from("/nonexistent/file"))),
            ("a link to /dev/zero", Content::Link(PathBuf::from("/dev/zero"))),
            ("a link to /dev/tty", Content::Link(PathBuf::from("/dev/tty"))),
            ("a link to /proc/self/mem", Content::Link(PathBuf::from("/proc/self/mem"))),
            ("17 GB of zeros", Content::Zeros(17 << 30)),
            ("200 MB of zeros", Content::Zeros(200 << 20)),
            ("deep arrays", Content::Bytes("[".repeat(1 << 20).into_bytes())),
            ("deep objects", Content::Bytes("{\"a\":".repeat(1 << 18).into_bytes())),
            ("a pipe", Content::Pipe),
        ];
        let folder = if name.starts_with("model") && *name != "model.safetensors" { SHARDED } else { GOLDEN };
        all.extend(contents.map(|(what, content)| replaced(format!("{name} is {what}"), folder, name, content)));
    }
    for len in [0u64, 1, 7, 8, 1 << 20, 1 << 32, u64::MAX / 2, u64::MAX] {
        let mut bytes = file(GOLDEN, "model.safetensors");
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        all.push(replaced(format!("a header of {len} bytes"), GOLDEN, "model.safetensors", Content::Bytes(bytes)));
    }
    let entries: String = (0..300_000).map(|i| format!(r#""{i}":"","#)).collect();
    all.push(many_names("a thousand names of one file with many values", &format!(r#"{entries}"x":"""#)));
    all.push(many_names("a thousand names of one file with a long text", &format!(r#""x":"{}""#, "y".repeat(6 << 20))));
    all
}

/// A thousand links to one file, whose header has these metadata and no tensor.
fn many_names(origin: &str, metadata: &str) -> Input {
    let header = format!(r#"{{"__metadata__":{{{metadata}}}}}"#);
    let shared = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let mut index: Value = serde_json::from_slice(&file(SHARDED, "model.safetensors.index.json")).unwrap();
    let mut parts = vec![base(SHARDED), ("shared".to_owned(), Content::Bytes(shared))];
    for i in 0..1020 {
        let name = format!("a-{i:04}.safetensors");
        index["weight_map"][&name] = name.as_str().into();
        parts.push((name, Content::Link(PathBuf::from("shared"))));
    }
    parts.push(("model.safetensors.index.json".to_owned(), Content::Bytes(index.to_string().into_bytes())));
    Input { origin: origin.to_owned(), parts, seed: 1 }
}

const NAMES: &[&str] = &[
    "weight_map",
    "metadata",
    "__metadata__",
    "dtype",
    "shape",
    "data_offsets",
    "F32",
    "BF16",
    "F8_E4M3",
    "BOOL",
    "I64",
    "model.safetensors",
    "../model.safetensors",
    "/dev/zero",
    "model-00001-of-00003.safetensors",
    "lm_head.weight",
    "model.norm.weight",
    "model.layers.0.mlp.up_proj.weight",
    "eos_token_id",
    "bos_token_id",
    "temperature",
    "top_k",
    "top_p",
    "do_sample",
    "repetition_penalty",
    "min_p",
    "chat_template",
    "eos_token",
    "bos_token",
    "content",
    "name",
    "template",
    "tokenizer_class",
    "added_tokens_decoder",
    "special",
];

/// One file but the config and the tokenizer, changed.
fn change_folder(rng: &mut Rng, _: &[Input]) -> Input {
    let mut parts = Vec::new();
    let folder = *rng.pick(&[GOLDEN, GOLDEN, SHARDED, DEMO]);
    parts.push(base(folder));
    let names: &[&str] = match folder {
        GOLDEN => &[
            "model.safetensors",
            "model.safetensors",
            "generation_config.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
        ],
        SHARDED => {
            &["model.safetensors.index.json", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
        }
        _ => &["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"],
    };
    let name = *rng.pick(names);
    let mut bytes = match (file(folder, name), name) {
        (bytes, _) if !bytes.is_empty() => bytes,
        (_, "special_tokens_map.json") => br#"{"eos_token":{"content":"a"},"bos_token":"b"}"#.to_vec(),
        _ => file(DEMO, name),
    };
    if name.ends_with("safetensors") {
        bytes = change_tensors(rng, bytes);
    } else {
        bytes = change_json(rng, bytes, NAMES);
    }
    parts.push((name.to_owned(), Content::Bytes(bytes)));
    Input { origin: format!("{name} changed"), parts, seed: 0 }
}

pub fn change_json(rng: &mut Rng, bytes: Vec<u8>, names: &[&str]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut value) if !rng.one_in(5) => {
            json::mutate(rng, &mut value, names);
            value.to_string().into_bytes()
        }
        _ => random::mutate(rng, bytes, names, &[]),
    }
}

/// A safetensors file with another header, or another length.
pub fn change_tensors(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    match rng.below(8) {
        0 => bytes.truncate(rng.below(bytes.len() + 1)),
        1 => bytes.extend(std::iter::repeat_n(7, rng.length(5000))),
        2 => {
            let at = rng.below(8 + len);
            bytes[at] = rng.next() as u8;
        }
        3 => bytes[..8].copy_from_slice(&(rng.next() >> rng.below(64)).to_le_bytes()),
        _ => {
            let header = change_json(rng, bytes[8..8 + len].to_vec(), NAMES);
            let mut new = (header.len() as u64).to_le_bytes().to_vec();
            new.extend(&header);
            new.extend(&bytes[8 + len..]);
            bytes = new;
        }
    }
    bytes
}

fn configs() -> Vec<Input> {
    let good = GOLDENS.iter().map(|folder| {
        replaced(format!("{folder} as it is"), folder, "config.json", Content::Bytes(file(folder, "config.json")))
    });
    let set = |name: &str, value: Value| {
        let mut config: Value = serde_json::from_slice(&file(GOLDEN, "config.json")).unwrap();
        config[name] = value;
        replaced(format!("{name} set"), GOLDEN, "config.json", Content::Bytes(config.to_string().into_bytes()))
    };
    let numbers = [
        "num_hidden_layers",
        "max_position_embeddings",
        "vocab_size",
        "hidden_size",
        "head_dim",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "eos_token_id",
        "sliding_window",
    ];
    let mut all: Vec<Input> = good.collect();
    for name in numbers {
        for number in [0u64, 1, 3, 1 << 20, 1_000_000_000, u64::from(u32::MAX), 1 << 40, u64::MAX] {
            all.push(set(name, number.into()));
        }
    }
    all.push(set("eos_token_id", (0..1_000_000).collect()));
    all.push(set("architectures", vec!["Qwen3ForCausalLM"; 100_000].into()));
    all
}

pub const CONFIG_NAMES: &[&str] = &[
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_type",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "bos_token_id",
    "eos_token_id",
    "hidden_act",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "dtype",
    "torch_dtype",
    "quantization_config",
    "llama3",
    "yarn",
    "linear",
    "dynamic",
    "longrope",
    "default",
    "silu",
    "gelu",
    "Qwen3ForCausalLM",
    "Qwen2ForCausalLM",
    "LlamaForCausalLM",
    "partial_rotary_factor",
    "text_config",
];

fn change_config(rng: &mut Rng, _: &[Input]) -> Input {
    let folder = *rng.pick(GOLDENS);
    let bytes = change_json(rng, file(folder, "config.json"), CONFIG_NAMES);
    replaced("config.json changed".to_owned(), folder, "config.json", Content::Bytes(bytes))
}

/// The folder of a chat template.
pub fn with_template(template: &[u8]) -> Input {
    replaced(String::new(), GOLDEN, "chat_template.jinja", Content::Bytes(template.to_vec()))
}
