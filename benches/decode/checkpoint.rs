//! Random checkpoints in the shapes of real models.

use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Random numbers that are made once and written again and again: a checkpoint must not be compressible, only random enough.
const NOISE_BYTES: usize = 16 << 20;

/// Threads that write a checkpoint at most.
const WRITERS_MAX: usize = 32;

/// The sizes of a model.
pub struct Shape {
    pub name: &'static str,
    kind: Kind,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    intermediate: usize,
    vocab: usize,
    is_tied: bool,
}

/// Families whose tensors or settings differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Qwen3,
    Llama,
    Gemma3,
    Phi3,
    /// With as many experts, of which some compute a token; `intermediate` is the width of one.
    Qwen3Moe {
        experts: usize,
        chosen: usize,
    },
    /// Every sixth layer has no window, heads of 512 numbers, and one KV head, whose keys are its values.
    Gemma4,
    /// An encoder: XLM-RoBERTa.
    Encoder,
    /// With as many key heads of the delta rule as that, of 128 numbers, and value heads.
    Qwen3_5 {
        keys: usize,
        values: usize,
    },
}

const SHAPES: [Shape; 13] = [
    Shape {
        name: "qwen3-0.6b",
        kind: Kind::Qwen3,
        layers: 28,
        hidden: 1024,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 3072,
        vocab: 151936,
        is_tied: true,
    },
    Shape {
        name: "qwen3-8b",
        kind: Kind::Qwen3,
        layers: 36,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 12288,
        vocab: 151936,
        is_tied: false,
    },
    Shape {
        name: "qwen3-32b",
        kind: Kind::Qwen3,
        layers: 64,
        hidden: 5120,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 25600,
        vocab: 151936,
        is_tied: false,
    },
    Shape {
        name: "qwen3-30b-a3b",
        kind: Kind::Qwen3Moe { experts: 128, chosen: 8 },
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head_dim: 128,
        intermediate: 768,
        vocab: 151936,
        is_tied: false,
    },
    Shape {
        name: "small",
        kind: Kind::Qwen3,
        layers: 4,
        hidden: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        intermediate: 768,
        vocab: 8192,
        is_tied: true,
    },
    Shape {
        name: "llama3-8b",
        kind: Kind::Llama,
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 14336,
        vocab: 128256,
        is_tied: false,
    },
    Shape {
        name: "llama3-70b",
        kind: Kind::Llama,
        layers: 80,
        hidden: 8192,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 28672,
        vocab: 128256,
        is_tied: false,
    },
    Shape {
        name: "gemma3-4b",
        kind: Kind::Gemma3,
        layers: 34,
        hidden: 2560,
        heads: 8,
        kv_heads: 4,
        head_dim: 256,
        intermediate: 10240,
        vocab: 262208,
        is_tied: true,
    },
    // Gemma 3 12B with the attention of Gemma 4.
    Shape {
        name: "gemma4-12b",
        kind: Kind::Gemma4,
        layers: 48,
        hidden: 3840,
        heads: 16,
        kv_heads: 8,
        head_dim: 256,
        intermediate: 15360,
        vocab: 262144,
        is_tied: true,
    },
    Shape {
        name: "bge-m3",
        kind: Kind::Encoder,
        layers: 24,
        hidden: 1024,
        heads: 16,
        kv_heads: 16,
        head_dim: 64,
        intermediate: 4096,
        vocab: 250_002,
        is_tied: true,
    },
    Shape {
        name: "qwen3.5-0.8b",
        kind: Kind::Qwen3_5 { keys: 16, values: 16 },
        layers: 24,
        hidden: 1024,
        heads: 8,
        kv_heads: 2,
        head_dim: 256,
        intermediate: 3584,
        vocab: 248320,
        is_tied: true,
    },
    Shape {
        name: "qwen3.5-9b",
        kind: Kind::Qwen3_5 { keys: 16, values: 32 },
        layers: 32,
        hidden: 4096,
        heads: 16,
        kv_heads: 4,
        head_dim: 256,
        intermediate: 12288,
        vocab: 248320,
        is_tied: false,
    },
    Shape {
        name: "phi4-mini",
        kind: Kind::Phi3,
        layers: 32,
        hidden: 3072,
        heads: 24,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 8192,
        vocab: 200064,
        is_tied: true,
    },
];

impl Shape {
    pub fn named(name: &str) -> Shape {
        let known: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        let shape = SHAPES
            .into_iter()
            .find(|shape| shape.name == name)
            .unwrap_or_else(|| panic!("{name} is none of {known:?}"));
        let asked = std::env::var("BENCH_LAYERS").ok().map(|layers| layers.parse().expect("a number of layers"));
        Shape { layers: asked.unwrap_or(shape.layers), ..shape }
    }

    /// Bytes that keys and values of a token take.
    pub fn kv_token_bytes(&self) -> usize {
        let layers = (0..self.layers).filter(|&layer| self.has_attention(layer));
        layers.map(|layer| self.attention_of(layer)).map(|[head_dim, kv_heads]| 2 * 2 * kv_heads * head_dim).sum()
    }

    /// Bytes that the recurrent states of a sequence take.
    pub fn state_bytes(&self) -> usize {
        let Kind::Qwen3_5 { keys, values } = self.kind else { return 0 };
        let layers = (0..self.layers).filter(|&layer| !self.has_attention(layer)).count();
        4 * layers * (128 * 128 * values + 3 * 128 * (2 * keys + values))
    }

    /// Weights that every token passes: all layers, without the head; of experts those that are chosen.
    pub fn body_parameters(&self) -> usize {
        let tensors = self.tensors().into_iter().filter(|(name, shape)| name.contains("layer") && shape.len() == 2);
        let (experts, others): (Vec<_>, Vec<_>) = tensors.partition(|(name, _)| name.contains(".experts."));
        let numbers = |tensors: Vec<(String, Vec<usize>)>| -> usize {
            tensors.into_iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
        };
        let chosen = match self.kind {
            Kind::Qwen3Moe { experts: all, chosen } => numbers(experts) / all * chosen,
            _ => 0,
        };
        numbers(others) + chosen
    }

    /// Whether it gives vectors instead of tokens.
    pub fn is_encoder(&self) -> bool {
        self.kind == Kind::Encoder
    }

    /// Numbers of a head, and KV heads.
    fn attention_of(&self, layer: usize) -> [usize; 2] {
        match self.kind == Kind::Gemma4 && (layer + 1).is_multiple_of(6) {
            true => [512, 1],
            false => [self.head_dim, self.kv_heads],
        }
    }

    /// Whether a layer keeps keys and values.
    fn has_attention(&self, layer: usize) -> bool {
        !matches!(self.kind, Kind::Qwen3_5 { .. }) || (layer + 1).is_multiple_of(4)
    }

    /// Bytes of all weights, which a decode pass reads once.
    pub fn weight_bytes(&self) -> usize {
        let numbers = |(_, shape): (String, Vec<usize>)| shape.iter().product::<usize>();
        2 * self.tensors().into_iter().map(numbers).sum::<usize>()
    }

    fn config(&self) -> Value {
        let mut config = json!({
            "hidden_size": self.hidden, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "intermediate_size": self.intermediate,
            "vocab_size": self.vocab, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": self.is_tied, "bos_token_id": 1, "eos_token_id": 2
        });
        let own = match self.kind {
            Kind::Qwen3 => json!({"architectures": ["Qwen3ForCausalLM"], "rope_theta": 1e6, "hidden_act": "silu"}),
            Kind::Llama => json!({"architectures": ["LlamaForCausalLM"], "rope_theta": 5e5, "hidden_act": "silu"}),
            Kind::Gemma3 => json!({
                "architectures": ["Gemma3ForCausalLM"], "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6
            }),
            Kind::Gemma4 => json!({
                "architectures": ["Gemma4UnifiedForCausalLM"], "attention_k_eq_v": true, "global_head_dim": 512,
                "num_global_key_value_heads": 1, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 1024,
                "final_logit_softcapping": 30.0
            }),
            Kind::Encoder => json!({
                "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "max_position_embeddings": 8194,
                "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu"
            }),
            Kind::Qwen3_5 { keys, values } => json!({
                "architectures": ["Qwen3_5ForCausalLM"], "hidden_act": "silu", "linear_num_key_heads": keys,
                "linear_num_value_heads": values, "full_attention_interval": 4,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
            }),
            Kind::Qwen3Moe { experts, chosen } => json!({
                "architectures": ["Qwen3MoeForCausalLM"], "rope_theta": 1e6, "hidden_act": "silu", "num_experts": experts,
                "num_experts_per_tok": chosen, "moe_intermediate_size": self.intermediate, "norm_topk_prob": true
            }),
            Kind::Phi3 => json!({
                "architectures": ["Phi3ForCausalLM"], "rope_theta": 1e4, "hidden_act": "silu",
                "partial_rotary_factor": 0.75
            }),
        };
        let (Value::Object(config_fields), Value::Object(own)) = (&mut config, own) else { unreachable!() };
        config_fields.extend(own);
        config
    }

    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        if self.is_encoder() {
            return self.tensors_of_encoder();
        }
        let (wide, narrow) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (hidden, width, head) = (self.hidden, self.intermediate, self.head_dim);
        let mut parts = vec![("input_layernorm", vec![hidden]), ("post_attention_layernorm", vec![hidden])];
        let mut attention = vec![("self_attn.o_proj", vec![hidden, wide])];
        let queries = if matches!(self.kind, Kind::Qwen3_5 { .. }) { 2 * wide } else { wide };
        attention.extend(match self.kind {
            Kind::Phi3 => vec![("self_attn.qkv_proj", vec![wide + 2 * narrow, hidden])],
            _ => vec![
                ("self_attn.q_proj", vec![queries, hidden]),
                ("self_attn.k_proj", vec![narrow, hidden]),
                ("self_attn.v_proj", vec![narrow, hidden]),
            ],
        });
        let (into, back) = (vec![width, hidden], vec![hidden, width]);
        parts.extend(match self.kind {
            Kind::Phi3 => vec![("mlp.down_proj", back), ("mlp.gate_up_proj", vec![2 * width, hidden])],
            Kind::Qwen3Moe { experts, .. } => vec![("mlp.gate", vec![experts, hidden])],
            _ => vec![("mlp.down_proj", back), ("mlp.gate_proj", into.clone()), ("mlp.up_proj", into)],
        });
        if !matches!(self.kind, Kind::Llama | Kind::Phi3) {
            attention.extend([("self_attn.q_norm", vec![head]), ("self_attn.k_norm", vec![head])]);
        }
        let mut delta = Vec::new();
        if let Kind::Qwen3_5 { keys, values } = self.kind {
            let (all_keys, all_values) = (128 * keys, 128 * values);
            delta.extend([
                ("linear_attn.in_proj_qkv", vec![2 * all_keys + all_values, hidden]),
                ("linear_attn.in_proj_z", vec![all_values, hidden]),
                ("linear_attn.in_proj_b", vec![values, hidden]),
                ("linear_attn.in_proj_a", vec![values, hidden]),
                ("linear_attn.conv1d", vec![2 * all_keys + all_values, 1, 4]),
                ("linear_attn.norm", vec![128]),
                ("linear_attn.out_proj", vec![hidden, all_values]),
                ("linear_attn.A_log", vec![values]),
                ("linear_attn.dt_bias", vec![values]),
            ]);
        }
        if self.kind == Kind::Gemma4 {
            parts.push(("layer_scalar", vec![1]));
        }
        if matches!(self.kind, Kind::Gemma3 | Kind::Gemma4) {
            parts.extend([("pre_feedforward_layernorm", vec![hidden]), ("post_feedforward_layernorm", vec![hidden])]);
        }
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let of_full = [("self_attn.q_proj", vec![512 * self.heads, hidden])]
                .into_iter()
                .chain([("self_attn.k_proj", vec![512, hidden]), ("self_attn.o_proj", vec![hidden, 512 * self.heads])])
                .chain([("self_attn.q_norm", vec![512]), ("self_attn.k_norm", vec![512])])
                .collect();
            let mixer = match (self.has_attention(layer), self.attention_of(layer)) {
                (false, _) => &delta,
                (true, of) if of == [head, self.kv_heads] => &attention,
                (true, _) => &of_full,
            };
            for (part, shape) in parts.iter().chain(mixer) {
                // What is no layer of its own has no such ending.
                let is_alone = ["A_log", "dt_bias", "layer_scalar"].iter().any(|name| part.ends_with(name));
                let ending = if is_alone { "" } else { ".weight" };
                tensors.push((format!("model.layers.{layer}.{part}{ending}"), shape.clone()));
            }
            let experts = if let Kind::Qwen3Moe { experts, .. } = self.kind { experts } else { 0 };
            for expert in 0..experts {
                for (part, shape) in [("gate", [width, hidden]), ("up", [width, hidden]), ("down", [hidden, width])] {
                    let name = format!("model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight");
                    tensors.push((name, shape.to_vec()));
                }
            }
        }
        tensors.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.is_tied {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocab, hidden]));
        }
        tensors
    }
}

impl Shape {
    fn tensors_of_encoder(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, width) = (self.hidden, self.intermediate);
        let mut tensors = Vec::new();
        for (table, rows) in [("word", self.vocab), ("position", 8194), ("token_type", 1)] {
            tensors.push((format!("embeddings.{table}_embeddings.weight"), vec![rows, hidden]));
        }
        let mut layer_norm = |name: String| {
            tensors.extend(["weight", "bias"].map(|part| (format!("{name}.LayerNorm.{part}"), vec![hidden])));
        };
        layer_norm("embeddings".to_owned());
        for layer in 0..self.layers {
            layer_norm(format!("encoder.layer.{layer}.attention.output"));
            layer_norm(format!("encoder.layer.{layer}.output"));
        }
        for layer in 0..self.layers {
            for (name, [outputs, inputs]) in [
                ("attention.self.query", [hidden; 2]),
                ("attention.self.key", [hidden; 2]),
                ("attention.self.value", [hidden; 2]),
                ("attention.output.dense", [hidden; 2]),
                ("intermediate.dense", [width, hidden]),
                ("output.dense", [hidden, width]),
            ] {
                tensors.push((format!("encoder.layer.{layer}.{name}.weight"), vec![outputs, inputs]));
                tensors.push((format!("encoder.layer.{layer}.{name}.bias"), vec![outputs]));
            }
        }
        tensors
    }
}

/// Writes config.json and model.safetensors; the folder counts as written when the config is there.
pub fn write_if_absent(shape: &Shape, folder: &Path) {
    let config = folder.join("config.json");
    if config.exists() {
        return;
    }
    fs::create_dir_all(folder).unwrap();
    let tensors = shape.tensors();
    let bytes = |shape: &[usize]| 2 * shape.iter().product::<usize>();
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in &tensors {
        let start = end;
        end += bytes(shape);
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}));
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));

    let file = File::create(folder.join("model.safetensors")).unwrap();
    file.write_all_at(&(header.len() as u64).to_le_bytes(), 0).unwrap();
    file.write_all_at(header.as_bytes(), size_of::<u64>() as u64).unwrap();
    let begin = size_of::<u64>() + header.len();
    file.set_len((begin + end) as u64).unwrap();
    let noise = noise();
    let one = half::bf16::ONE.to_le_bytes();
    // What is written where: the tensors in pieces of the noise.
    let mut pieces: Vec<(usize, Vec<u8>, usize)> = Vec::new();
    let mut at = begin;
    for (_, shape) in &tensors {
        let bytes = bytes(shape);
        match shape.as_slice() {
            [len] => pieces.push((at, one.repeat(*len), 0)),
            _ => {
                let starts = (0..bytes).step_by(noise.len());
                pieces.extend(starts.map(|start| (at + start, Vec::new(), noise.len().min(bytes - start))));
            }
        }
        at += bytes;
    }
    // One thread writes about 1 GB/s, to a file in memory, too.
    let threads = thread::available_parallelism().map_or(1, usize::from).min(WRITERS_MAX);
    thread::scope(|scope| {
        for first in 0..threads {
            let (file, pieces, noise) = (&file, &pieces, &noise);
            scope.spawn(move || {
                for (at, norm, len) in pieces.iter().skip(first).step_by(threads) {
                    file.write_all_at(norm, *at as u64).unwrap();
                    file.write_all_at(&noise[..*len], (*at + norm.len()) as u64).unwrap();
                }
            });
        }
    });
    fs::write(config, shape.config().to_string()).unwrap();
}

/// bf16 numbers from -0.06 to 0.06, about as spread as trained weights.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(NOISE_BYTES);
    while bytes.len() < NOISE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1 << 24) as f32;
        bytes.extend(half::bf16::from_f32(0.12 * unit - 0.06).to_le_bytes());
    }
    bytes
}
