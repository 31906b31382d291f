//! What a caller is told of a GGUF file that is truncated, hostile or not supported: the file, the key or tensor, and what is read.

use crate::driver;
use crate::small;
use crate::writer;

use base::error::Error;
use compute::cpu::{Cpu, Isa};
use driver::{config, greedy};
use formats::source::Source;
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{Loading, ModelInfo};
use small::{HIDDEN, VOCAB, model, numbers};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use writer::{Tensor, Value, Writer};

/// A folder of its own for a test; gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("nanovllm-bad-gguf-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open_with(path: &Path, config: &EngineOptions) -> Result<(PassRunner<Cpu>, ModelInfo), Error> {
    runner::cpu::open(&Source::open(path)?, config, Cpu::new(1, Isa::Portable), &mut |_| ControlFlow::Continue(()))
}

fn refusal(path: &Path) -> String {
    match open_with(path, &config()) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error.to_string(),
    }
}

type Spoil = fn(&mut Writer);

/// How a file is spoiled, and what is said of it after its path.
const HEADERS: &[(&str, Spoil, &str)] = &[
    ("another magic", |file| file.magic = *b"GGML", "is neither a model folder nor a GGUF file"),
    ("version 1", |file| file.version = 1, "is a GGUF file of version 1, but versions 2 and 3 are read"),
    ("a version to come", |file| file.version = 4, "is a GGUF file of version 4, but versions 2 and 3 are read"),
    ("big-endian numbers", |file| file.version = 3u32.swap_bytes(), "is a GGUF file of big-endian numbers"),
    (
        "tensors without end",
        |file| file.tensor_count = Some(u64::MAX),
        "has 18446744073709551615 tensors, which do not fit",
    ),
    ("keys without end", |file| file.key_count = Some(u64::MAX / 13), "keys, which do not fit into the"),
    ("more tensors than there are", |file| file.tensor_count = Some(13), "tensor  has 0 axes, but must have 1 to 4"),
    ("a key twice", |file| file.entries.push(file.entries[0].clone()), "has key general.architecture twice"),
    ("a key that is no text", |file| file.entries.push((vec![0xff; 4], Value::U8(1))), "has a key that is not UTF-8"),
    (
        "a key of a megabyte",
        |file| file.entries.push((vec![b'a'; 1 << 20], Value::U8(1))),
        "has a key of 1048576 bytes, but at most 65535 are read",
    ),
    (
        "a value of no type",
        |file| {
            file.set("x", Value::Raw(13, vec![0; 8]));
        },
        "key x is of type 13",
    ),
    (
        "a flag of 2",
        |file| {
            file.set("x", Value::Raw(7, vec![2]));
        },
        "key x is a flag of value 2",
    ),
    (
        "flags of 2",
        |file| {
            file.set("x", Value::Flags(vec![0, 1, 2]));
        },
        "key x is a flag of value 2",
    ),
    (
        "an array of arrays",
        |file| {
            file.set("x", Value::Raw(9, [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 20]].concat()));
        },
        "key x is an array of arrays",
    ),
    (
        "an array without end",
        |file| {
            file.set("x", Value::Raw(9, [&8u32.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat()));
        },
        "key x has 2305843009213693952 elements, which do not fit",
    ),
    (
        "a text without end",
        |file| {
            file.set("x", Value::Raw(8, (u64::MAX - 7).to_le_bytes().to_vec()));
        },
        "key x ends after",
    ),
    (
        "an alignment of 0",
        |file| {
            file.set("general.alignment", Value::U32(0));
        },
        "general.alignment is 0, but must be a multiple of 8",
    ),
    (
        "an alignment of 12",
        |file| {
            file.set("general.alignment", Value::U32(12));
        },
        "general.alignment is 12, but must be a multiple of 8",
    ),
    (
        "an alignment of a gigabyte",
        |file| {
            file.set("general.alignment", Value::U64(1 << 30));
        },
        "general.alignment is 1073741824, but must be a multiple of 8",
    ),
    (
        "an alignment that is a text",
        |file| {
            file.set("general.alignment", "32");
        },
        "general.alignment must be a multiple of 8",
    ),
    ("a tensor twice", |file| file.tensors.push(file.tensors[0].clone()), "has tensor token_embd.weight twice"),
    (
        "a tensor of no axes",
        |file| file.tensors[2].lens.clear(),
        "tensor blk.0.attn_q.weight has 0 axes, but must have 1 to 4",
    ),
    (
        "a tensor of 5 axes",
        |file| file.tensors[2].lens = vec![32, 1, 1, 1, 32],
        "tensor blk.0.attn_q.weight has 5 axes, but must have 1 to 4",
    ),
    (
        "lengths that overflow",
        |file| file.tensors[2].lens = vec![1 << 32, 1 << 32, 1 << 32],
        "tensor blk.0.attn_q.weight has [4294967296, 4294967296, 4294967296, 1] numbers, which no file holds",
    ),
    (
        "a length of 0",
        |file| file.tensors[2].lens = vec![32, 0],
        "tensor blk.0.attn_q.weight has [32, 0, 1, 1] numbers, which no file holds",
    ),
    (
        "an unknown type",
        |file| file.tensors[2].kind = 4,
        "tensor blk.0.attn_q.weight is of type 4, which this library does not know",
    ),
    (
        "rows that are no blocks",
        |file| file.tensors[2].kind = 12,
        "tensor blk.0.attn_q.weight has rows of 32 numbers, but Q4_K needs a multiple of 256",
    ),
    (
        "an offset beyond the file",
        |file| file.tensors[2].offset = 1 << 40,
        "tensor blk.0.attn_q.weight has 4096 bytes at offset 1099511627776, which reach beyond the end of the file",
    ),
    (
        "an offset that overflows",
        |file| file.tensors[2].offset = u64::MAX - 31,
        "tensor blk.0.attn_q.weight has 4096 bytes at offset 18446744073709551584, which reach beyond the end",
    ),
    ("an offset between two places", |file| file.tensors[2].offset += 4, "which is no multiple of the alignment, 32"),
];

#[test]
fn a_header_that_cannot_be_true_is_refused() {
    let scratch = Scratch::new("headers");
    for (name, spoil, words) in HEADERS {
        let mut file = model();
        spoil(&mut file);
        let path = scratch.write("model.gguf", &file.bytes());
        let error = refusal(&path);
        assert!(error.starts_with(&path.display().to_string()) && error.contains(words), "{name}: {error}");
    }
}

const MODELS: &[(&str, Spoil, &str)] = &[
    (
        "no architecture",
        |file| {
            file.without("general.architecture");
        },
        "general.architecture is missing",
    ),
    (
        "another architecture",
        |file| {
            file.set("general.architecture", "mamba");
        },
        "general.architecture is mamba, which is not supported; supported architectures: llama, mistral3, qwen2, qwen3",
    ),
    (
        "no layers",
        |file| {
            file.without("llama.block_count");
        },
        "block_count is missing",
    ),
    (
        "no width",
        |file| {
            file.without("llama.embedding_length");
        },
        "embedding_length is missing",
    ),
    (
        "a width that is no number",
        |file| {
            file.set("llama.embedding_length", "32");
        },
        "embedding_length is 32, but must be a whole number",
    ),
    (
        "an epsilon that is none",
        |file| {
            file.set("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN));
        },
        "key llama.attention.layer_norm_rms_epsilon is NaN, but must be a finite number",
    ),
    (
        "other heads in each layer",
        |file| {
            file.set("llama.block_count", Value::U32(2)).set("llama.attention.head_count_kv", Value::I32s(vec![1, 2]));
        },
        "attention.head_count_kv is [1,2], but must be the same number above 0 in every layer",
    ),
    (
        "values of another width than keys",
        |file| {
            file.set("llama.attention.value_length", Value::U32(8));
        },
        "attention.value_length is 8, but must be that of keys, which is 16",
    ),
    (
        "experts",
        |file| {
            file.set("llama.expert_count", Value::U32(8));
        },
        "expert_used_count is missing",
    ),
    (
        "more experts for a token than there are",
        |file| {
            file.set("llama.expert_count", Value::U32(8));
            file.set("llama.expert_used_count", Value::U32(9));
        },
        "num_experts_per_tok is 9, but must be at most num_experts, which is 8",
    ),
    (
        "experts that are scored by sigmoids",
        |file| {
            file.set("llama.expert_count", Value::U32(8));
            file.set("llama.expert_used_count", Value::U32(2));
            file.set("llama.expert_gating_func", Value::U32(2));
        },
        "expert_gating_func is 2, which is not supported",
    ),
    (
        "a window",
        |file| {
            file.set("llama.attention.sliding_window", Value::U32(8));
        },
        "attention.sliding_window is 8, which is not supported",
    ),
    (
        "half a rotation",
        |file| {
            file.set("llama.rope.dimension_count", Value::U32(8));
        },
        "partial_rotary_factor is 0.5, which is not supported",
    ),
    (
        "an unknown scaling",
        |file| {
            file.set("llama.rope.scaling.type", "dynamic");
        },
        "rope.scaling.type is dynamic, which is not supported: it must be none, linear, yarn or longrope",
    ),
    (
        "a factor of cosines alone",
        |file| {
            file.set("llama.rope.scaling.attn_factor", Value::F32(2.0));
        },
        "rope.scaling.attn_factor is 2, which is not supported: it must be 1 without yarn",
    ),
    (
        "factors of a longer rotation",
        |file| {
            file.tensor("rope_freqs.weight", &[9], &[1.0; 9]);
        },
        "short_factor is 9 factors for 8 pairs",
    ),
    (
        "a type without numbers",
        |file| {
            file.tensors[2].kind = 26;
        },
        "tensor blk.0.attn_q.weight has type I32, but only BF16, F16 and F32 are supported, and Q8_0",
    ),
    (
        "a norm of codes",
        |file| {
            let norm = file.tensors.iter_mut().find(|tensor| tensor.name == b"blk.0.ffn_norm.weight").unwrap();
            (norm.kind, norm.data) = (8, vec![0; 34]);
        },
        "tensor blk.0.ffn_norm.weight has type Q8_0, which only matrices may have",
    ),
    (
        "a missing tensor",
        |file| drop(file.tensors.remove(8)),
        "tensor blk.0.ffn_down.weight of shape [32, 64] is missing",
    ),
    ("no embedding", |file| drop(file.tensors.remove(0)), "tensor token_embd.weight is missing"),
    (
        "a tensor that nothing reads",
        |file| {
            file.tensor("blk.0.attn_q_norm.weight", &[16], &[1.0; 16]);
        },
        "unexpected tensor blk.0.attn_q_norm.weight",
    ),
    (
        "a tensor of another shape",
        |file| file.tensors[3].lens = vec![16, 32],
        "tensor blk.0.attn_k.weight has shape [32, 16], but config.json implies [16, 32]",
    ),
];

#[test]
fn a_model_that_is_not_computed_is_refused_by_name() {
    let scratch = Scratch::new("models");
    for (name, spoil, words) in MODELS {
        let mut file = model();
        spoil(&mut file);
        let error = refusal(&scratch.write("model.gguf", &file.bytes()));
        assert!(error.contains(words), "{name}: {error}");
    }
    assert!(open_with(&scratch.write("model.gguf", &model().bytes()), &config()).is_ok());
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let scratch = Scratch::new("truncated");
    let bytes = model().bytes();
    for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let path = scratch.write("model.gguf", &bytes[..len]);
        let error = refusal(&path);
        assert!(error.starts_with(&path.display().to_string()), "{len}: {error}");
    }
}

#[test]
fn version_2_is_read_and_another_alignment() {
    let scratch = Scratch::new("version");
    let tokens = |file: &Writer, config: &EngineOptions| {
        let (mut runner, info) = open_with(&scratch.write("model.gguf", &file.bytes()), config).unwrap();
        assert_eq!(info.vocab_size, VOCAB);
        greedy(&mut runner, &info.limits, &[1, 2, 3], 4).1
    };
    let wanted = tokens(&model(), &config());
    assert!(tokens(&Writer { version: 2, ..model() }, &config()) == wanted);
    let mut aligned = model();
    aligned.alignment = 4096;
    let mut end = 0;
    for tensor in &mut aligned.tensors {
        tensor.offset = end;
        end = (end + tensor.data.len() as u64).next_multiple_of(4096);
    }
    aligned.set("general.alignment", Value::U32(4096));
    assert!(tokens(&aligned, &config()) == wanted);
    assert!(tokens(&model(), &EngineOptions { loading: Loading::Read, ..config() }) == wanted);
}

/// The model in parts, of `per_part` tensors each.
fn parts(per_part: usize) -> Vec<Writer> {
    let whole = model();
    let count = whole.tensors.len().div_ceil(per_part);
    let part = |(number, tensors): (usize, &[Tensor])| {
        let mut part = if number == 0 { small::keys() } else { Writer::new() };
        part.set("split.no", Value::U32(number as u32))
            .set("split.count", Value::U32(count as u32))
            .set("split.tensors.count", Value::I32(whole.tensors.len() as i32));
        let mut end = 0;
        for tensor in tensors {
            part.tensors.push(Tensor { offset: end, ..tensor.clone() });
            end = (end + tensor.data.len() as u64).next_multiple_of(32);
        }
        part
    };
    whole.tensors.chunks(per_part).enumerate().map(part).collect()
}

fn write_parts(scratch: &Scratch, parts: &[Writer]) -> Vec<PathBuf> {
    let write = |(number, part): (usize, &Writer)| {
        scratch.write(&format!("model-{:05}-of-{:05}.gguf", number + 1, parts.len()), &part.bytes())
    };
    parts.iter().enumerate().map(write).collect()
}

#[test]
fn the_first_part_opens_all() {
    let scratch = Scratch::new("parts");
    let logits = |path: &Path| {
        let (mut runner, info) = open_with(path, &config()).unwrap();
        greedy(&mut runner, &info.limits, &[1, 2, 3], 4).1
    };
    let wanted = logits(&scratch.write("whole.gguf", &model().bytes()));
    for per_part in [1, 5, 12] {
        let paths = write_parts(&scratch, &parts(per_part));
        assert!(logits(&paths[0]) == wanted, "{per_part} tensors in each");
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let scratch = Scratch::new("bad-parts");
    let paths = write_parts(&scratch, &parts(5));
    let second = refusal(&paths[1]);
    let words = "is part 2 of 3 of a split file: give the path of the first, which ends in -00001-of-00003.gguf";
    assert!(second.contains(words), "{second}");
    let renamed = scratch.write("renamed.gguf", &fs::read(&paths[0]).unwrap());
    assert!(refusal(&renamed).contains("its name must end in -00001-of-00003.gguf"), "{}", refusal(&renamed));
    type Change = fn(&mut Vec<Writer>);
    let cases: [(Change, &str); 6] = [
        (|parts| parts.swap(1, 2), "is part 3 of 3 by its split.no, but part 2 by its name"),
        (
            |parts| {
                parts[2].without("split.count");
            },
            "has no split.count, but is a part of a split file",
        ),
        (
            |parts| {
                parts[2].set("split.count", Value::U32(4));
            },
            "has a split.count other than 3",
        ),
        (
            |parts| {
                parts[0].set("split.tensors.count", Value::I32(11));
            },
            "has a split.tensors.count of 11, but its parts have 12",
        ),
        (
            |parts| {
                parts[0].set("split.count", Value::U32(5000));
            },
            "is one of 5000 parts, but at most 1024 are read",
        ),
        (
            |parts| {
                parts[2].tensor("token_embd.weight", &[VOCAB, HIDDEN], &numbers(0, VOCAB * HIDDEN));
            },
            "holds tensor token_embd.weight, as another part of the model does",
        ),
    ];
    for (change, words) in cases {
        let mut changed = parts(5);
        change(&mut changed);
        let error = refusal(&write_parts(&scratch, &changed)[0]);
        assert!(error.contains(words), "{words}: {error}");
    }
    let paths = write_parts(&scratch, &parts(5));
    fs::remove_file(&paths[1]).unwrap();
    let missing = refusal(&paths[0]);
    assert!(missing.starts_with(&paths[1].display().to_string()), "{missing}");
}

/// A file whose header has an array of this many elements of a type, all of them zeros that take no space on the disk.
fn write_sparse(path: &Path, mut file: Writer, kind: u32, elements: u64, element_bytes: u64) {
    let bytes = [kind.to_le_bytes().as_slice(), &elements.to_le_bytes()].concat();
    file.set("zeros", Value::Raw(9, bytes));
    file.tensors.clear();
    let mut bytes = file.bytes();
    bytes.truncate(bytes.windows(5).rposition(|word| word == b"zeros").unwrap() + 5 + 4 + 4 + 8);
    fs::write(path, &bytes).unwrap();
    let len = bytes.len() as u64 + elements * element_bytes;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn the_headers_of_all_parts_have_one_limit() {
    const TEXT: u32 = 8;
    const U8: u32 = 0;
    let scratch = Scratch::new("sparse");
    let path = |part: usize| scratch.0.join(format!("model-{part:05}-of-00100.gguf"));
    for (kind, elements, element_bytes, read, words) in [
        (TEXT, 16 << 20, 8, 1, "more than 8388608 elements of arrays"),
        (TEXT, 1 << 20, 8, 8, "more than 67108864 bytes"),
        (TEXT, 1 << 18, 8, 32, "more than 67108864 bytes"),
        (U8, 2 << 20, 1, 5, "more than 8388608 elements of arrays"),
    ] {
        for part in 1..=100 {
            let mut file = if part == 1 { small::keys() } else { Writer::new() };
            file.set("split.no", Value::I32(part as i32 - 1)).set("split.count", Value::U32(100));
            write_sparse(&path(part), file, kind, elements, element_bytes);
        }
        let error = refusal(&path(1));
        assert!(error.starts_with(&path(read).display().to_string()) && error.contains(words), "{error}");
    }
}

#[test]
fn names_and_keys_of_all_parts_have_one_limit() {
    let scratch = Scratch::new("many-keys");
    let keys = |per_part: usize| {
        let mut all = parts(1);
        for (number, part) in all.iter_mut().enumerate() {
            let key = |i: usize| (format!("more.{number}.{i}").into_bytes(), Value::U8(0));
            part.entries.extend((0..per_part).map(key));
        }
        refusal(&write_parts(&scratch, &all)[0])
    };
    let error = keys(4000);
    assert!(error.contains("brings the headers of the model to more than 16384 keys"), "{error}");
    let mut names = parts(1);
    for (number, part) in names.iter_mut().enumerate() {
        let tensor = |i: usize| Tensor {
            name: format!("{number} {i} {}", "x".repeat(60_000)).into(),
            ..part.tensors[0].clone()
        };
        let tensors: Vec<Tensor> = (0..60).map(tensor).collect();
        part.tensors.extend(tensors);
    }
    let error = refusal(&write_parts(&scratch, &names)[0]);
    assert!(error.contains("more than 16777216 bytes of names of tensors"), "{error}");
}
