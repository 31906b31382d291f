//! The command `info`: what is a model, and how much memory does it need?

use crate::conversation::{Conversation, Role};
use crate::engine::{CODING_NONE, Engine, ProcessOfJob};
use crate::failure::Failure;
use crate::model::{self, Model};
use crate::terminal::Answers;
use nanovllm_cli::engine_options::Device;
use nanovllm_cli::{EngineOptions, Info, When};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

#[derive(Serialize)]
struct Report {
    model: String,
    /// What the files call it; none if they do not say.
    class: Option<String>,
    layers: u32,
    hidden_size: u32,
    vocab_size: u32,
    parameters: u64,
    weights: Weights,
    max_model_len: u32,
    kv_token_bytes: u32,
    context: u32,
    memory_bytes: MemoryBytes,
    chat_template: bool,
}

/// How the weights of each part are held, and in how many bytes.
#[derive(Serialize)]
struct Weights {
    embedding: Part,
    attention: Part,
    feed_forward: Part,
    /// None if the embedding table serves as the head.
    head: Option<Part>,
}

#[derive(Serialize)]
struct Part {
    coding: &'static str,
    bytes: u64,
}

#[derive(Serialize)]
struct MemoryBytes {
    weights: u64,
    /// For the keys and values of `context` tokens.
    kv_cache: u64,
}

pub fn run(wanted: &Info, path: &Path, options: &EngineOptions) -> Result<(), Failure> {
    model::check(path)?;
    let engine = open(path, options)?;
    let info = engine.model_info()?;
    let context = wanted.context.unwrap_or(info.max_model_len);
    if context > info.max_model_len {
        let most = info.max_model_len;
        return Err(Failure::Other(format!("--context {context}: the model has a context of at most {most} tokens")));
    }
    let head = Part { coding: coding_name(info.head_coding), bytes: info.head_bytes };
    let report = Report {
        model: path.display().to_string(),
        class: class(path),
        layers: info.num_layers,
        hidden_size: info.hidden_size,
        vocab_size: info.vocab_size,
        parameters: info.num_parameters,
        weights: Weights {
            embedding: Part { coding: coding_name(info.embedding_coding), bytes: info.embedding_bytes },
            attention: Part { coding: coding_name(info.attention_coding), bytes: info.attention_bytes },
            feed_forward: Part { coding: coding_name(info.feed_forward_coding), bytes: info.feed_forward_bytes },
            head: (info.head_coding != CODING_NONE).then_some(head),
        },
        max_model_len: info.max_model_len,
        kv_token_bytes: info.kv_token_bytes,
        context,
        memory_bytes: MemoryBytes {
            weights: info.weight_bytes,
            kv_cache: u64::from(info.kv_token_bytes) * u64::from(context),
        },
        chat_template: has_chat_template(&engine),
    };
    let mut to = Answers::new();
    match wanted.json {
        true => to.write_line(&serde_json::to_string(&report).expect("a report is JSON"))?,
        false => to.write(&page(&report))?,
    }
    to.flush()
}

/// A KV cache of some blocks, of every model that is known. It takes no memory on the CPU, and little on a GPU.
const KV_CACHE_BYTES: u64 = 256 << 20;

/// Opens the model to look at it: on the CPU unless another device is asked for, with a KV cache that is never used.
fn open(path: &Path, options: &EngineOptions) -> Result<Engine, Failure> {
    let options = EngineOptions {
        device: options.device.or(Some(Device::Cpu)),
        devices: options.devices.clone(),
        dtype: options.dtype,
        quantization: options.quantization,
        kv_cache_dtype: options.kv_cache_dtype,
        threads: options.threads.or(Some(1)),
        memory_utilization: options.memory_utilization,
        kv_cache_bytes: options.kv_cache_bytes.or(Some(KV_CACHE_BYTES)),
        max_model_len: options.max_model_len,
        max_num_seqs: Some(1),
        ..EngineOptions::default()
    };
    Model { path, options: &options, place: &ProcessOfJob::default() }.open(When::Auto)
}

/// The name of the model's class: of config.json, or of the architecture of a GGUF file. None where the files do not say.
fn class(path: &Path) -> Option<String> {
    if path.is_file() {
        return gguf_architecture(BufReader::new(File::open(path).ok()?)).ok().flatten();
    }
    let config: serde_json::Value = serde_json::from_slice(&fs::read(path.join("config.json")).ok()?).ok()?;
    let of_config = config.get("architectures")?.get(0)?;
    of_config.as_str().map(str::to_owned)
}

/// general.architecture of a GGUF file. Writers put it first; it is not looked for behind an array.
fn gguf_architecture(mut file: impl Read) -> io::Result<Option<String>> {
    fn number<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    fn text(file: &mut impl Read) -> io::Result<String> {
        let len = u64::from_le_bytes(number(file)?);
        let mut bytes = Vec::new();
        // A name or a line, not a file.
        file.take(len.min(1 << 16)).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }
    const STRING: u32 = 8;
    let (magic, _version, _tensors) = (number::<4>(&mut file)?, number::<4>(&mut file)?, number::<8>(&mut file)?);
    if &magic != b"GGUF" {
        return Ok(None);
    }
    for _ in 0..u64::from_le_bytes(number(&mut file)?) {
        let key = text(&mut file)?;
        match u32::from_le_bytes(number(&mut file)?) {
            STRING => {
                let value = text(&mut file)?;
                if key == "general.architecture" {
                    return Ok(Some(value));
                }
            }
            0 | 1 | 7 => drop(number::<1>(&mut file)?),
            2 | 3 => drop(number::<2>(&mut file)?),
            4..=6 => drop(number::<4>(&mut file)?),
            10..=12 => drop(number::<8>(&mut file)?),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn has_chat_template(engine: &Engine) -> bool {
    let mut conversation = Conversation::default();
    conversation.say(Role::User, "hello");
    conversation.prompt(engine).is_ok()
}

fn page(report: &Report) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| text += &format!("{name:<14} {value}\n");
    let Weights { embedding, attention, feed_forward, head } = &report.weights;
    let part = |part: &Part| format!("{}, {}", part.coding, size(part.bytes));
    row("model", report.model.clone());
    row("class", report.class.clone().unwrap_or_else(|| "its files do not say".to_owned()));
    row("layers", format!("{}, {} wide", report.layers, report.hidden_size));
    row("parameters", millions(report.parameters));
    row("embedding", format!("{}, for {} tokens", part(embedding), report.vocab_size));
    row("attention", part(attention));
    row("feed-forward", part(feed_forward));
    row("head", head.as_ref().map_or_else(|| "the embedding".to_owned(), part));
    row("context", format!("at most {} tokens", report.max_model_len));
    row("chat template", if report.chat_template { "yes" } else { "no: use generate --raw" }.to_owned());
    let MemoryBytes { weights, kv_cache } = report.memory_bytes;
    row(
        "memory",
        format!(
            "{} = {} of weights + {} for the keys and values of {} tokens ({} each)",
            size(weights + kv_cache),
            size(weights),
            size(kv_cache),
            report.context,
            size(report.kv_token_bytes.into()),
        ),
    );
    text
}

fn millions(count: u64) -> String {
    match count {
        0..1_000_000_000 => format!("{:.1} million", count as f64 / 1e6),
        _ => format!("{:.2} billion", count as f64 / 1e9),
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The name of an nvllm_device.
pub fn device_name(device: i32) -> &'static str {
    if device == Device::Cuda as i32 { "cuda" } else { "cpu" }
}

/// The name of an nvllm_coding.
fn coding_name(coding: i32) -> &'static str {
    const NAMES: [&str; 21] = [
        "none", "f32", "f16", "bf16", "int8", "int4", "fp8", "fp4", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K", "MXFP4",
    ];
    usize::try_from(coding).ok().and_then(|coding| NAMES.get(coding)).unwrap_or(&"a newer coding")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
        assert_eq!(millions(5_200_000), "5.2 million");
        assert_eq!(millions(8_190_000_000), "8.19 billion");
    }

    #[cfg(feature = "static")]
    #[test]
    fn codings_have_the_names_of_the_header() {
        use capi::engine::nvllm_coding as coding;
        let some = [
            (coding::NVLLM_CODING_NONE, "none"),
            (coding::NVLLM_CODING_BF16, "bf16"),
            (coding::NVLLM_CODING_FP4, "fp4"),
            (coding::NVLLM_CODING_Q8_0, "Q8_0"),
            (coding::NVLLM_CODING_IQ4_XS, "IQ4_XS"),
            (coding::NVLLM_CODING_MXFP4, "MXFP4"),
        ];
        for (coding, name) in some {
            assert_eq!(coding_name(coding as i32), name);
        }
        assert_eq!(coding_name(99), "a newer coding");
        assert_eq!(coding_name(-1), "a newer coding");
    }

    #[test]
    fn the_architecture_of_a_gguf_file_is_found_behind_other_values() {
        fn text(text: &str) -> Vec<u8> {
            [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
        }
        let begin = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &0u64.to_le_bytes(), &2u64.to_le_bytes()].concat();
        let version = [text("general.file_type"), 4u32.to_le_bytes().into(), 7u32.to_le_bytes().into()].concat();
        let name = [text("general.architecture"), 8u32.to_le_bytes().into(), text("qwen3")].concat();
        let file = [begin, version, name].concat();
        assert_eq!(gguf_architecture(file.as_slice()).unwrap().as_deref(), Some("qwen3"));
        assert!(gguf_architecture(&file[..40]).is_err());
        assert_eq!(gguf_architecture(b"another file of some bytes".as_slice()).unwrap(), None);
    }
}
