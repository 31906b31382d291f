//! A model opens from memory and from parts of a pack file as it does from its own files: the same logits, bit for bit.

use crate::driver;
use crate::gguf_file;
use crate::reference;

use base::TokenId;
use compute::cpu::{Cpu, Isa};
use driver::{config, golden, greedy};
use formats::source::Source;
use gguf_file::GgufFile;
use os::{Files, Given, GivenFiles, HostBytes};
use reference::Reference;
use runner::Loading;
use runner::options::EngineOptions;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TOKENS: usize = 6;

/// Folders with one file of weights, and with several.
const FOLDERS: [&str; 4] =
    ["qwen3-bf16-tied-gqa2", "llama-f32-llama3", "qwen2-f16-old-keys", "llama-bf16-sharded-gqa8"];

struct Pack {
    path: PathBuf,
    /// Name, offset, length.
    ranges: Vec<(String, u64, u64)>,
}

impl Pack {
    /// A file that holds `paths`, each at an odd offset.
    fn new(test: &str, paths: &[PathBuf]) -> Pack {
        let path = std::env::temp_dir().join(format!("nanovllm-pack-{test}-{}", std::process::id()));
        let mut pack = File::create(&path).unwrap();
        let (mut at, mut ranges) = (0, Vec::new());
        for file in paths {
            let bytes = fs::read(file).unwrap();
            let padding = 1 + at % 2;
            pack.write_all(&b"--"[..padding as usize]).unwrap();
            pack.write_all(&bytes).unwrap();
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            ranges.push((name, at + padding, bytes.len() as u64));
            at += padding + bytes.len() as u64;
        }
        Pack { path, ranges }
    }

    /// The ranges of the file.
    fn ranges(&self) -> Files {
        self.given(|offset, len| Given::Range { file: File::open(&self.path).unwrap().into(), offset, len })
    }

    /// The same in memory, of which every file is a part.
    fn memory(&self) -> Files {
        let whole = HostBytes::owned(fs::read(&self.path).unwrap().into());
        self.given(|offset, len| Given::Memory(whole.slice(offset as usize..(offset + len) as usize)))
    }

    fn given(&self, part: impl Fn(u64, u64) -> Given) -> Files {
        let mut files = GivenFiles::default();
        for (name, offset, len) in &self.ranges {
            files.add(name, part(*offset, *len)).unwrap();
        }
        Files::Given(Arc::new(files))
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(source: &Source, config: &EngineOptions, prompt: &[TokenId]) -> (Vec<TokenId>, Vec<Vec<f32>>) {
    let cpu = Cpu::new(2, Isa::detect().unwrap());
    let (mut runner, info) = runner::cpu::open(source, config, cpu, &mut |_| ControlFlow::Continue(())).unwrap();
    greedy(&mut runner, &info.limits, prompt, TOKENS)
}

/// Compares what `pack` gives with what is at `path`, which is `name` in the pack.
fn compare(case: &str, path: &Path, pack: &Pack, name: Option<&str>, prompt: &[TokenId]) {
    for loading in [Loading::Map, Loading::Read] {
        let config = EngineOptions { loading, ..config() };
        let wanted = answer(&Source::open(path).unwrap(), &config, prompt);
        for (files, what) in [(pack.memory(), "memory"), (pack.ranges(), "ranges")] {
            let source = Source::open_in(files, &GivenFiles::path(name)).unwrap();
            assert!(answer(&source, &config, prompt) == wanted, "{case} from {what}, {loading:?}");
        }
    }
}

#[test]
fn a_folder_is_the_same_in_memory_and_in_a_pack_file() {
    for case in FOLDERS {
        let folder = golden(case);
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let pack = Pack::new(case, &entries.filter(|path| path.is_file()).collect::<Vec<_>>());
        compare(case, &folder, &pack, None, &Reference::read(case).prompt);
    }
}

#[test]
fn a_gguf_file_is_the_same_in_memory_and_in_a_pack_file() {
    for case in ["qwen3-bf16-tied", "llama-f32"] {
        let file = GgufFile::assemble(case, "given");
        let pack = Pack::new(&format!("gguf-{case}"), std::slice::from_ref(&file.path));
        compare(case, &file.path, &pack, Some("model.gguf"), &Reference::read(&file.folder).prompt);
    }
}

#[test]
fn a_gguf_file_without_its_name_is_named_in_the_message() {
    let file = GgufFile::assemble("llama-f32", "unnamed");
    let pack = Pack::new("unnamed", std::slice::from_ref(&file.path));
    let Source::Folder(folder) = Source::open_in(pack.memory(), &GivenFiles::path(None)).unwrap() else {
        panic!("no folder");
    };
    let refused = folder.config().err().expect("there is no config.json").to_string();
    assert!(refused.contains("model.gguf: give the path of that file"), "{refused}");
}
