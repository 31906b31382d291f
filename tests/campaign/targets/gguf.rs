//! GGUF files whose header is changed: counts, lengths, types, keys, tensors, and the tokenizer that they describe.

use super::folders;
use crate::capi::{Engine, Good};
use crate::case::{Bounds, Input, Session, Target, root};
use crate::random::{self, Rng};
use crate::small;
use crate::writer::{Value, Writer};
use std::fs;

const FILE: &str = "model.gguf";

/// Opens files, and uses what opens.
pub struct GgufFiles;

impl Target for GgufFiles {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn bounds(&self) -> Bounds {
        Bounds { cpu_ms: 1000, heap_bytes: 64 << 20, kept_bytes: 16 << 20 }
    }

    fn batch(&self) -> u64 {
        500
    }

    fn long_cases(&self) -> u64 {
        20_000
    }

    fn corpus(&self) -> Vec<Input> {
        let mut all = vec![
            Input::of("a good file", FILE, model().bytes()),
            Input::of("nothing", FILE, Vec::new()),
            Input::of("four letters", FILE, *b"GGUF"),
        ];
        // Headers that llama.cpp writes, without the data of their tensors.
        let headers = fs::read_dir(root().join("tests/gguf")).unwrap().flatten().map(|entry| entry.path());
        let mut headers: Vec<_> = headers.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
        headers.sort();
        all.extend(headers.iter().map(|path| Input::of(path.to_string_lossy(), FILE, fs::read(path).unwrap())));
        for number in ODD {
            all.push(Input::of(
                format!("{number} tensors"),
                FILE,
                Writer { tensor_count: Some(*number), ..model() }.bytes(),
            ));
            all.push(Input::of(format!("{number} keys"), FILE, Writer { key_count: Some(*number), ..model() }.bytes()));
        }
        all
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        let mut file = model();
        for _ in 0..rng.between(0, 3) {
            change(rng, &mut file);
        }
        let mut bytes = file.bytes();
        match rng.below(4) {
            0 => bytes = random::mutate(rng, bytes, NAMES, &[]),
            1 => bytes.truncate(rng.below(bytes.len() + 1)),
            2 => {
                // A length or a count somewhere in the header.
                let at = rng.below(bytes.len().min(4000) - 8);
                bytes[at..at + 8].copy_from_slice(&rng.pick(ODD).to_le_bytes());
            }
            _ => {}
        }
        Input::of("a header changed", FILE, bytes)
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
        let path = folder.0.join(FILE);
        fs::write(&path, input.bytes(FILE)).unwrap();
        if let Ok(engine) = Engine::open(&path, |_| {}) {
            folders::use_all(&engine, input.seed);
        }
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
    }
}

const ODD: &[u64] =
    &[0, 1, 31, 255, 1 << 16, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 61, 1 << 63, u64::MAX - 7, u64::MAX];

const NAMES: &[&str] = &[
    "llama.block_count",
    "llama.attention.head_count",
    "llama.rope.scaling.type",
    "llama.expert_count",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.scores",
    "general.alignment",
    "general.architecture",
    "split.count",
    "blk.0.attn_q.weight",
    "qwen3",
    "gemma3",
    "phi3",
    "llama",
    "gpt2",
    "llama-bpe",
];

/// A small model with a tokenizer of merges and one of scores in the same keys.
fn model() -> Writer {
    let mut file = small::model();
    let tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "Ġ", "Ġa", "<0x0A>", "▁", "▁a", "  "];
    let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|text| text.as_bytes().to_vec()).collect());
    file.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "llama-bpe")
        .set("tokenizer.ggml.tokens", texts(&tokens))
        .set("tokenizer.ggml.token_type", Value::I32s(vec![2, 3, 3, 1, 1, 1, 1, 1, 6, 1, 1, 4]))
        .set("tokenizer.ggml.scores", Value::F32s((0..12).map(|id| -(id as f32)).collect()))
        .set("tokenizer.ggml.merges", texts(&["a b", "Ġ a"]))
        .set("tokenizer.ggml.bos_token_id", Value::U32(1))
        .set("tokenizer.ggml.eos_token_id", Value::U32(2))
        .set("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}")
        .set("general.sampling.temp", Value::F32(0.5));
    file
}

/// Changes a key or a tensor.
fn change(rng: &mut Rng, file: &mut Writer) {
    if rng.one_in(2) {
        let at = rng.below(file.entries.len());
        let value = odd_value(rng, &file.entries[at].1.clone());
        match rng.below(6) {
            0 => drop(file.entries.remove(at)),
            1 => {
                let key = rng.pick(NAMES).as_bytes().to_vec();
                file.entries.push((key, value));
            }
            2 => file.entries.push(file.entries[at].clone()),
            _ => file.entries[at].1 = value,
        }
        return;
    }
    let at = rng.below(file.tensors.len());
    let axis = rng.below(file.tensors[at].lens.len().max(1));
    match rng.below(7) {
        0 => drop(file.tensors.remove(at)),
        1 => file.tensors.push(file.tensors[at].clone()),
        2 => file.tensors[at].kind = rng.below(48) as u32,
        3 => file.tensors[at].offset = *rng.pick(ODD),
        4 => file.tensors[at].name = rng.pick(NAMES).as_bytes().to_vec(),
        5 => file.tensors[at].lens.push(*rng.pick(ODD)),
        _ => match file.tensors[at].lens.get_mut(axis) {
            Some(len) => *len = *rng.pick(ODD),
            None => file.tensors[at].lens = vec![1],
        },
    }
}

/// Another value of the same kind, or of another.
fn odd_value(rng: &mut Rng, value: &Value) -> Value {
    let number = *rng.pick(ODD);
    match (rng.below(8), value) {
        (0, _) => Value::U64(number),
        (1, _) => Value::F32([f32::NAN, f32::INFINITY, -1.0, 0.0, 1e-30, f32::MAX][rng.below(6)]),
        (2, _) => rng.one_of(NAMES).into(),
        (3, _) => Value::Raw(rng.below(14) as u32, number.to_le_bytes().to_vec()),
        (_, Value::Texts(texts)) => {
            let mut texts = texts.clone();
            let at = rng.below(texts.len().max(1));
            match texts.get(at).cloned() {
                Some(text) if rng.one_in(2) => texts.insert(at, random::mutate(rng, text, NAMES, &[])),
                Some(_) => drop(texts.remove(at)),
                None => texts.push(Vec::new()),
            }
            Value::Texts(texts)
        }
        (_, Value::I32s(numbers)) => {
            let mut numbers = numbers.clone();
            numbers.truncate(rng.below(numbers.len() + 1));
            numbers.push(number as i32);
            Value::I32s(numbers)
        }
        (_, Value::Text(text)) => Value::Text(random::mutate(rng, text.clone(), NAMES, &[])),
        (_, Value::F32(_)) => Value::F32(number as f32),
        _ => Value::U32(number as u32),
    }
}
