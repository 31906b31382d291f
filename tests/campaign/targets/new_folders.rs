//! Folders that nvllm_quantize_folder is given: links, sub-folders, names, configs and tensors, with secrets beside them.
//!
//! The files of a golden folder come first, as they are or as a download cache has them. Whatever happens, no byte of what lies outside may
//! come into the new folder, and nothing that exists may change.

use super::folders::{Built, CONFIG_NAMES, change_json, change_tensors, file};
use crate::capi::{self, Engine, Good, judge};
use crate::case::{self, Bounds, Content, Input, Session, Target, violation};
use crate::random::Rng;
use ::capi::quantize::nvllm_quantize_folder;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Quantizes folders, and looks for what must not be in them.
pub struct NewFolders;

/// Parts that are no files.
const BASE: &str = "base";
const LAYOUT: &str = "layout";
const TO: &str = "to";
const BITS: &str = "quantization";

/// Stands in a name for a byte that is not UTF-8.
const NOT_UTF8: char = '\u{f8ff}';

/// What the files outside have.
const SECRET: &[u8; 32] = b"<nobody else may read this text>";

const BASES: &[&str] = &[
    "tests/golden/llama-f32-gqa1",
    "tests/golden/qwen2-f32-tied-sharded",
    "tests/golden/qwen3-f32-untied-gqa8",
    "tests/golden/qwen2-f16-old-keys",
    "tests/golden/quantized/awq-group32",
];

impl Target for NewFolders {
    fn name(&self) -> &'static str {
        "new_folders"
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
        let case = |layout: &str, to: &str, name: &str, content: Content| {
            let parts = [(BASE, BASES[0]), (LAYOUT, layout), (TO, to), (BITS, "1")];
            let mut parts: Vec<_> = parts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
            parts.push((name.to_owned(), content));
            Input { origin: format!("{name} in a {layout}, to {to}"), parts, seed: 1 }
        };
        let mut all = Vec::new();
        for layout in LAYOUTS {
            for to in TARGETS {
                all.push(case(layout, to, "notes.txt", "nothing special".into()));
            }
            for name in NAMES {
                for link in LINKS {
                    all.push(case(layout, "new", name, Content::Link(PathBuf::from(link))));
                }
                for content in [Content::Pipe, Content::Folder, Content::Missing, Content::Zeros(1 << 34)] {
                    all.push(case(layout, "new", name, content));
                }
            }
        }
        all
    }

    fn generate(&self, rng: &mut Rng, _: &[Input]) -> Input {
        let base = *rng.pick(BASES);
        let layout = rng.one_of(LAYOUTS);
        let to = if rng.one_in(3) { rng.one_of(TARGETS) } else { "new" };
        let bits = if rng.one_in(10) { rng.odd_number() } else { rng.between(1, 2).to_string() };
        let mut parts: BTreeMap<String, Content> = BTreeMap::new();
        for _ in 0..rng.between(1, 5) {
            let name = match rng.below(8) {
                0 => format!("{}{NOT_UTF8}{}", rng.word(), rng.word()),
                1 => rng.text(12).replace(['/', '\0', NOT_UTF8], "_"),
                2 => format!("{}/{}", rng.one_of(FOLDERS), rng.one_of(NAMES)),
                _ => rng.one_of(NAMES).to_owned(),
            };
            if !["", ".", "..", BASE, LAYOUT, TO, BITS].contains(&name.as_str()) {
                parts.insert(name.clone(), content(rng, base, &name));
            }
        }
        let parts = parts.into_iter();
        let fixed = [(BASE, base), (LAYOUT, layout), (TO, to), (BITS, &bits)];
        let fixed = fixed.map(|(name, text)| (name.to_owned(), Content::from(text)));
        Input { origin: "a random folder".to_owned(), parts: fixed.into_iter().chain(parts).collect(), seed: 0 }
    }

    fn open(&self) -> Box<dyn Session> {
        let engine = Engine::demo();
        let good = Good::of(&engine);
        Box::new(Visitor { engine, good })
    }
}

const LAYOUTS: &[&str] = &["folder", "cache", "nested cache"];

/// Where the new folder is to be, from the folder that has all of a case. `model` is a link to the folder that is quantized.
const TARGETS: &[&str] = &[
    "new",
    "new/er/folder",
    "empty",
    "full",
    "model",
    "model/new",
    "model/sub/../new",
    "link-to-sub/new",
    "link-to-sub/../new",
    "nothing/../model/new",
    "dangling",
    "dangling/new",
    "round",
    "full/keep.txt",
    "full/keep.txt/new",
    ".",
    "",
];

const NAMES: &[&str] = &[
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00003.safetensors",
    "tokenizer.json",
    "notes.txt",
    ".hidden",
    "pytorch_model.bin",
    "quantize_config.json",
    "additional_chat_templates",
    "additional_chat_templates/tools.jinja",
    "additional_chat_templates/additional_chat_templates",
    "sub",
    "sub/notes.txt",
];

const FOLDERS: &[&str] = &["additional_chat_templates", "sub", "additional_chat_templates/additional_chat_templates"];

/// `ROOT` stands for the folder that has all of a case.
const LINKS: &[&str] = &[
    "ROOT/outside/config.json",
    "ROOT/outside/model.safetensors",
    "ROOT/outside/secret",
    "ROOT/outside",
    "../outside/secret",
    "../../../outside/config.json",
    "../../blobs/0",
    "../../blobs/out",
    "../../blobs/below/secret",
    "../../blobs/../../outside/secret",
    "../../../blobs/1",
    "../../../blobs/out",
    "link-out",
    "sub/link-out",
    "notes.txt",
    "config.json",
    "sub",
    ".",
    "..",
    "/",
    "/proc/self/environ",
    "/proc/self/cwd/models/demo/config.json",
    "/dev/zero",
    "/dev/tty",
    "/nonexistent",
];

fn content(rng: &mut Rng, base: &str, name: &str) -> Content {
    let own = file(base, name);
    match rng.below(10) {
        0..4 => Content::Link(PathBuf::from(rng.one_of(LINKS))),
        4 => Content::Pipe,
        5 => Content::Folder,
        6 => Content::Missing,
        // What is copied in moments, or left out: a case is not to be one of the disk.
        7 if rng.one_in(2) => Content::Zeros(rng.below(1 << 24) as u64),
        7 => Content::Zeros(1 << rng.between(31, 40)),
        _ if own.is_empty() => Content::Bytes(rng.text(200).into_bytes()),
        _ if name.ends_with(".safetensors") => Content::Bytes(change_tensors(rng, own)),
        _ => Content::Bytes(change_json(rng, own, CONFIG_NAMES)),
    }
}

/// An engine that must not notice what happens to others.
struct Visitor {
    engine: Engine,
    good: Good,
}

/// The folder of a case, with secrets in it, and the one in it that is quantized.
struct Scene {
    root: Built,
    model: PathBuf,
}

impl Scene {
    fn new(input: &Input) -> Scene {
        let root = Built::empty();
        let at = |name: &str| root.0.join(name);
        let base = String::from_utf8_lossy(input.bytes(BASE)).into_owned();
        let (model, blobs) = match input.bytes(LAYOUT) {
            b"cache" => (at("cache/snapshots/1"), Some("../../blobs")),
            b"nested cache" => (at("cache/snapshots/1/nested"), Some("../../../blobs")),
            _ => (at("folder"), None),
        };
        for folder in [&model, &at("cache/blobs/below"), &at("outside"), &at("empty"), &at("full")] {
            fs::create_dir_all(folder).unwrap();
        }
        let text = String::from_utf8_lossy(SECRET);
        for name in ["outside/secret", "outside/tools.jinja", "cache/blobs/below/secret"] {
            fs::write(at(name), SECRET).unwrap();
        }
        fs::write(at("full/keep.txt"), "kept").unwrap();
        let mut config: serde_json::Value = serde_json::from_slice(&file(&base, "config.json")).unwrap();
        config["note"] = text.as_ref().into();
        fs::write(at("outside/config.json"), config.to_string()).unwrap();
        // Tensors whose numbers are the secret, over and over.
        let name = if base.ends_with("sharded") { "model-00001-of-00003.safetensors" } else { "model.safetensors" };
        let mut weights = file(&base, name);
        let header = 8 + u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
        weights[header..].iter_mut().zip(SECRET.iter().cycle()).for_each(|(byte, secret)| *byte = *secret);
        fs::write(at("outside/model.safetensors"), weights).unwrap();
        symlink("../../outside/secret", at("cache/blobs/out")).unwrap();
        symlink(model.join("sub"), at("link-to-sub")).unwrap();
        symlink(&model, at("model")).unwrap();
        symlink("outside/nothing", at("dangling")).unwrap();
        symlink("round", at("round")).unwrap();
        fs::create_dir(model.join("sub")).unwrap();

        for (number, entry) in fs::read_dir(case::root().join(&base)).unwrap().flatten().enumerate() {
            let name = entry.file_name().into_string().unwrap();
            if input.parts.iter().any(|(part, _)| *part == name) || name.starts_with("reference") {
                continue;
            }
            match blobs {
                None => drop(fs::copy(entry.path(), model.join(name)).unwrap()),
                Some(blobs) => {
                    fs::copy(entry.path(), at("cache/blobs").join(number.to_string())).unwrap();
                    symlink(format!("{blobs}/{number}"), model.join(name)).unwrap();
                }
            }
        }
        for name in ["link-out", "sub/link-out"] {
            // Only where something leads to it: it is refused by itself.
            let leads_there = |content: &Content| matches!(content, Content::Link(to) if to == Path::new(name));
            if input.parts.iter().any(|(_, content)| leads_there(content)) {
                symlink(at("outside/secret"), model.join(name)).unwrap();
            }
        }
        for (name, content) in input.parts.iter().filter(|(name, _)| ![BASE, LAYOUT, TO, BITS].contains(&name.as_str()))
        {
            add(&model, &root.0, name, content);
        }
        Scene { root, model }
    }
}

/// Puts a part into the folder, as far as what is there allows it.
fn add(model: &Path, root: &Path, name: &str, content: &Content) {
    let name: Vec<u8> =
        name.chars().flat_map(|c| if c == NOT_UTF8 { vec![0xff] } else { c.to_string().into() }).collect();
    let path = model.join(OsString::from_vec(name));
    if let Some(folder) = path.parent() {
        let _ = fs::create_dir_all(folder);
        // Nothing is put through a link.
        if fs::canonicalize(folder).ok().is_none_or(|folder| !folder.starts_with(model)) {
            return;
        }
    }
    let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
    let _ = match content {
        Content::Bytes(bytes) => fs::write(&path, bytes),
        Content::Missing => Ok(()),
        Content::Folder => fs::create_dir(&path),
        Content::Link(to) => symlink(to.to_str().unwrap().replace("ROOT", root.to_str().unwrap()), &path),
        Content::Zeros(len) => fs::File::create_new(&path).and_then(|file| file.set_len(*len)),
        Content::Pipe => {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: the path ends with a NUL.
            unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
            Ok(())
        }
    };
}

/// What stands under a name of a folder.
#[derive(PartialEq)]
enum Found {
    Folder,
    Link(PathBuf),
    File(u64, Option<std::time::SystemTime>),
    Other,
}

/// Everything below a folder. No link is followed.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for path in fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(facts) = fs::symlink_metadata(&path) else { continue };
            let what = match facts.file_type() {
                kind if kind.is_dir() => Found::Folder,
                kind if kind.is_symlink() => Found::Link(fs::read_link(&path).unwrap_or_default()),
                kind if kind.is_file() => Found::File(facts.len(), facts.modified().ok()),
                _ => Found::Other,
            };
            if what == Found::Folder {
                open.push(path.clone());
            }
            found.insert(path, what);
        }
    }
    found
}

/// Looks at what is new: files without secrets, and folders.
fn look_at(scene: &Scene, before: &BTreeMap<PathBuf, Found>, status: i32, to: &Path) {
    let after = everything(&scene.root.0);
    for (path, was) in before {
        if after.get(path).is_none_or(|is| is != was) {
            violation(format!("{} is not what it was", path.display()));
        }
    }
    for (path, what) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
        if path.starts_with(&scene.model) {
            violation(format!("{} was written into the folder that is read", path.display()));
        }
        match what {
            Found::Folder => {}
            Found::File(len, _) if *len > 64 << 20 => {}
            Found::File(..) => {
                let bytes = fs::read(path).unwrap_or_default();
                if bytes.windows(SECRET.len()).any(|part| part == SECRET) {
                    violation(format!("{} has what lies outside", path.display()));
                }
                let is_weights = path.extension().is_some_and(|end| end == "safetensors");
                if status == capi::OK && is_weights && SafeTensors::deserialize(&bytes).is_err() {
                    violation(format!("{} is no safetensors file", path.display()));
                }
            }
            Found::Link(_) | Found::Other => violation(format!("{} is no file", path.display())),
        }
    }
    // Nothing is read where the call failed: a pipe may stand there.
    let config = || fs::read(to.join("config.json")).unwrap_or_default();
    if status == capi::OK && serde_json::from_slice::<serde_json::Value>(&config()).is_err() {
        violation("the new folder has no config.json");
    }
}

fn quantize(from: &Path, to: &Path, bits: i32) -> (i32, String) {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let mut error = capi::no_error();
    // SAFETY: all pointers are of live values.
    let status = unsafe { nvllm_quantize_folder(from.as_ptr(), to.as_ptr(), bits, None, null_mut(), Some(&mut error)) };
    (status, judge("nvllm_quantize_folder", status, &error))
}

impl Session for Visitor {
    fn run(&mut self, input: &Input) {
        let scene = Scene::new(input);
        let before = everything(&scene.root.0);
        let to = scene.root.0.join(String::from_utf8_lossy(input.bytes(TO)).as_ref());
        let bits = String::from_utf8_lossy(input.bytes(BITS)).parse().unwrap_or(0);
        let (status, _) = quantize(&scene.model, &to, bits);
        look_at(&scene, &before, status, &to);
    }

    fn probe(&mut self) {
        self.good.check(&self.engine);
        let scene = Scene::new(&Input {
            parts: [(BASE, BASES[0]), (LAYOUT, "cache")].map(|(name, text)| (name.to_owned(), text.into())).into(),
            ..Input::default()
        });
        let (status, message) = quantize(&scene.model, &scene.root.0.join("new"), 1);
        if status != capi::OK {
            violation(format!("a good folder was refused with {status}: {message}"));
        }
    }
}
