//! GGUF files whose tokenizers are hostile: vocabularies that make many merges or a long text, and headers of zeros that take no space.

use super::folders;
use crate::capi::{Engine, Good};
use crate::case::{Bounds, Input, Session, Target};
use crate::random::Rng;
use crate::small;
use crate::writer::{Value, Writer};
use std::fs::{self, File};
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "model.gguf";
/// The part that names one of [`LARGE`], whose files are written piece by piece, so that they are not in memory twice.
const RECIPE: &str = "recipe";

pub struct GgufTokenizers;

impl Target for GgufTokenizers {
    fn name(&self) -> &'static str {
        "vocabularies"
    }

    fn bounds(&self) -> Bounds {
        // 64 MB beyond the longest header that is read, which has 32 MB of tokens.
        Bounds { cpu_ms: 1000, heap_bytes: 96 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        300
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        let large = LARGE.iter().map(|(name, _)| Input::of(*name, RECIPE, *name));
        let small = [("gpt2", "llama-bpe"), ("llama", "")].map(|(model, pre)| {
            let tokens: Vec<Vec<u8>> = TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect();
            let mut file = of_tokens(model, tokens, 1);
            file.set("tokenizer.ggml.pre", pre);
            if model == "gpt2" {
                file.set("tokenizer.ggml.merges", Value::Texts(vec![b"a b".to_vec()]));
            }
            Input::of(format!("a small tokenizer of {model}"), FILE, file.bytes())
        });
        large.chain(small).collect()
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        Input::of("a random tokenizer", FILE, random_file(rng).bytes())
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
        let folder = folders::Built::empty();
        let recipe = LARGE.iter().find(|(name, _)| name.as_bytes() == input.bytes(RECIPE));
        let path = match recipe {
            Some((_, write)) => write(&folder.0),
            None => {
                let path = folder.0.join(FILE);
                fs::write(&path, input.bytes(FILE)).unwrap();
                path
            }
        };
        if let Ok(engine) = Engine::open(&path, |_| {}) {
            folders::use_all(&engine, input.seed);
        }
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}

/// Writes a file, or several, and says which is to be opened.
type Recipe = fn(&Path) -> PathBuf;

const LARGE: &[(&str, Recipe)] = &[
    ("a million texts of a and b with scores", |folder| words(folder, 19)),
    ("as many as can nearly be divided", |folder| words(folder, 17)),
    ("more pairs than are read", |folder| words(folder, 16)),
    ("30 MB of user-defined control characters", |folder| {
        stream(folder, 8000, 4, &mut |i| format!("{i}{}", "\u{1}".repeat(3800)))
    }),
    ("many user-defined tokens", |folder| stream(folder, 500_000, 4, &mut |i| format!("{i}"))),
    ("runs of spaces", |folder| stream(folder, 20_000, 4, &mut |i| " ".repeat(i % 1300 + 2))),
    ("tokens of 128 bytes", |folder| stream(folder, 200_000, 1, &mut |i| format!("{i:0128}"))),
    ("a token of 20 MB that begins each text", |folder| stream(folder, 3, 3, &mut |i| "x".repeat(20_000_000 + i))),
    ("64 MB of texts that are empty", |folder| sparse(folder, 8, 8 << 20, 8, 1)),
    ("128 MB of texts that are empty", |folder| sparse(folder, 8, 16 << 20, 8, 1)),
    ("parts of 128 MB of texts that are empty", |folder| sparse(folder, 8, 16 << 20, 8, 1000)),
    ("parts of 8 MB of texts that are empty", |folder| sparse(folder, 8, 1 << 20, 8, 1000)),
    ("parts of 60 KB of texts that are empty", |folder| sparse(folder, 8, 7_500, 8, 1000)),
    ("parts of flags", |folder| sparse(folder, 7, 60_000, 1, 1000)),
    ("parts of numbers", |folder| sparse(folder, 0, 120_000_000, 1, 1000)),
];

/// A file of all texts of up to `longest` letters a and b, with scores.
fn words(folder: &Path, longest: u32) -> PathBuf {
    // The texts in the order of the numbers from 2 on, whose bits after the first are their letters.
    let text = |i: usize| {
        let number = i + 2;
        let len = number.ilog2();
        (0..len).map(|at| if number >> at & 1 == 0 { 'a' } else { 'b' }).collect::<String>()
    };
    stream(folder, (2 << longest) - 2, 1, &mut { text })
}

/// A file of these tokens, all of one kind and with one score.
fn stream(folder: &Path, count: usize, kind: i32, token: &mut dyn FnMut(usize) -> String) -> PathBuf {
    let mut file = small::model();
    file.set("tokenizer.ggml.model", "llama");
    let tensors = std::mem::take(&mut file.tensors);
    let array = |kind: u32| [kind.to_le_bytes().as_slice(), &(count as u64).to_le_bytes()].concat();
    let path = folder.join(FILE);
    let mut to = BufWriter::new(File::create(&path).unwrap());
    // The counts cover the keys that are written by hand, and the tensors behind them.
    file.key_count = Some(file.entries.len() as u64 + 3);
    file.tensor_count = Some(tensors.len() as u64);
    to.write_all(&unpadded(&file)).unwrap();
    let key = |to: &mut BufWriter<File>, key: &str, of: u32| {
        to.write_all(&(key.len() as u64).to_le_bytes()).unwrap();
        to.write_all(key.as_bytes()).unwrap();
        to.write_all(&9u32.to_le_bytes()).unwrap();
        to.write_all(&array(of)).unwrap();
    };
    key(&mut to, "tokenizer.ggml.tokens", 8);
    for i in 0..count {
        let text = token(i);
        to.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
        to.write_all(text.as_bytes()).unwrap();
    }
    key(&mut to, "tokenizer.ggml.scores", 6);
    (0..count).for_each(|_| to.write_all(&1f32.to_le_bytes()).unwrap());
    key(&mut to, "tokenizer.ggml.token_type", 5);
    (0..count).for_each(|_| to.write_all(&kind.to_le_bytes()).unwrap());
    // What stands behind the keys of a file without any.
    let mut rest = Writer::new();
    rest.tensors = tensors;
    let infos = &unpadded_of(&rest)[24..];
    to.write_all(infos).unwrap();
    let at = to.stream_position().unwrap();
    to.write_all(&vec![0; (at.next_multiple_of(32) - at) as usize]).unwrap();
    let start = at.next_multiple_of(32);
    for tensor in &rest.tensors {
        let at = to.stream_position().unwrap();
        to.write_all(&vec![0; (start + tensor.offset - at) as usize]).unwrap();
        to.write_all(&tensor.data).unwrap();
    }
    to.flush().unwrap();
    path
}

/// The beginning of a file without tensors, up to the end of its keys.
fn unpadded(file: &Writer) -> Vec<u8> {
    unpadded_of(&Writer { tensors: Vec::new(), alignment: 1, ..file.clone() })
}

/// The header of a file, without what stands behind it.
fn unpadded_of(file: &Writer) -> Vec<u8> {
    let mut file = Writer { alignment: 1, ..file.clone() };
    file.tensors.iter_mut().for_each(|tensor| tensor.data.clear());
    let offsets: Vec<u64> = file.tensors.iter().map(|tensor| tensor.offset).collect();
    // Without offsets nothing stands behind the header; they are put back into it.
    file.tensors.iter_mut().for_each(|tensor| tensor.offset = 0);
    let mut bytes = file.bytes();
    let mut end = bytes.len();
    for (tensor, offset) in file.tensors.iter().zip(offsets).rev() {
        bytes[end - 8..end].copy_from_slice(&offset.to_le_bytes());
        end -= 8 + tensor.name.len() + 4 + 8 * tensor.lens.len() + 4 + 8;
    }
    bytes
}

/// Parts of a file whose headers are arrays of zeros, which take no space on the disk.
fn sparse(folder: &Path, kind: u32, elements: u64, element_bytes: u64, parts: usize) -> PathBuf {
    let path = |part: usize| folder.join(format!("model-{part:05}-of-{parts:05}.gguf"));
    for part in 1..=parts {
        let mut file = if part == 1 { small::keys() } else { Writer::new() };
        file.set("split.no", Value::U32(part as u32 - 1)).set("split.count", Value::U32(parts as u32));
        file.set("zeros", Value::Raw(9, [kind.to_le_bytes().as_slice(), &elements.to_le_bytes()].concat()));
        let bytes = unpadded(&file);
        fs::write(path(part), &bytes).unwrap();
        let len = bytes.len() as u64 + elements * element_bytes;
        fs::OpenOptions::new().write(true).open(path(part)).unwrap().set_len(len).unwrap();
    }
    path(1)
}

/// A small model with these tokens, all of one kind.
fn of_tokens(model: &str, tokens: Vec<Vec<u8>>, kind: i32) -> Writer {
    let mut file = small::model();
    file.set("tokenizer.ggml.model", model)
        .set("tokenizer.ggml.token_type", Value::I32s(vec![kind; tokens.len()]))
        .set("tokenizer.ggml.scores", Value::F32s((0..tokens.len()).map(|id| -(id as f32)).collect()))
        .set("tokenizer.ggml.tokens", Value::Texts(tokens));
    file
}

const TEXTS: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "a",
    "b",
    "ab",
    "aab",
    "ba",
    "Ġ",
    "Ġa",
    "<0x0A>",
    "<0x00>",
    "▁",
    "▁a",
    "  ",
    "    ",
    "\u{1}",
    "é",
    "中",
    "😀",
    "\"",
    "\\",
    "<|im_end|>",
    "",
];

const PRES: &[&str] =
    &["llama-bpe", "qwen2", "gpt-2", "deepseek-v3", "smollm", "command-r", "tekken", "gpt-4o", "default", ""];

fn token(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0 => rng.text(40).into_bytes(),
        1 => rng.one_of(TEXTS).repeat(rng.length(200)).into_bytes(),
        2 => " ".repeat(rng.length(5000)).into_bytes(),
        3 => (0..rng.length(20)).map(|_| rng.next() as u8).collect(),
        4 => format!("<0x{:02X}>", rng.below(256)).into_bytes(),
        _ => (0..rng.between(1, 12)).map(|_| b"ab"[rng.below(2)]).collect(),
    }
}

fn random_file(rng: &mut Rng) -> Writer {
    let model = rng.one_of(&["gpt2", "llama", "llama", "bert", "none"]);
    let count = rng.length(3000);
    let mut tokens: Vec<Vec<u8>> = (0..count).map(|_| token(rng)).collect();
    if !rng.one_in(8) {
        tokens.sort();
        tokens.dedup();
    }
    let count = tokens.len();
    let mut file = of_tokens(model, tokens.clone(), 1);
    file.set("tokenizer.ggml.pre", rng.one_of(PRES));
    let len = if rng.one_in(10) { rng.length(count + 10) } else { count };
    let kinds = (0..len).map(|_| if rng.one_in(6) { rng.below(9) as i32 - 1 } else { 1 }).collect();
    file.set("tokenizer.ggml.token_type", Value::I32s(kinds));
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, 1e-40];
    let is_odd = rng.one_in(4);
    let score = |rng: &mut Rng| if is_odd && rng.one_in(9) { *rng.pick(&odd) } else { -(rng.below(500) as f32) };
    let scores = (0..count).map(|_| score(rng)).collect();
    match rng.below(6) {
        0 => drop(file.without("tokenizer.ggml.scores")),
        1 => drop(file.set("tokenizer.ggml.scores", Value::F32s(vec![0.0; count]))),
        _ => drop(file.set("tokenizer.ggml.scores", Value::F32s(scores))),
    }
    if model == "gpt2" || rng.one_in(4) {
        let part =
            |rng: &mut Rng| if tokens.is_empty() || rng.one_in(9) { token(rng) } else { rng.pick(&tokens).clone() };
        let count = rng.length(3000);
        let merge = |rng: &mut Rng| [part(rng), part(rng)].join(&b' ');
        file.set("tokenizer.ggml.merges", Value::Texts((0..count).map(|_| merge(rng)).collect()));
    }
    for name in ["bos", "eos", "eot", "eom", "unknown", "padding", "seperator"] {
        if rng.one_in(2) {
            let id = if rng.one_in(6) { rng.next() as u32 } else { rng.below(count + 2) as u32 };
            file.set(&format!("tokenizer.ggml.{name}_token_id"), Value::U32(id));
        }
    }
    for name in ["add_bos_token", "add_eos_token", "add_space_prefix"] {
        if rng.one_in(3) {
            file.set(&format!("tokenizer.ggml.{name}"), Value::Flag(rng.one_in(2)));
        }
    }
    if rng.one_in(20) {
        file.set("tokenizer.huggingface.json", rng.one_of(&["{}", "[", "{\"model\":{}}"]));
    }
    if rng.one_in(20) {
        file.set("general.architecture", rng.one_of(&["phi3", "gemma2", "llama"]));
    }
    file
}
