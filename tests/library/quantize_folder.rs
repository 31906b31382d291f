//! Quantizing a folder reads that folder alone: its links, its names and the new folder are what a model folder may have.
#![cfg(unix)]

use crate::driver;
use crate::scratch_folder;

use base::error::{Error, Result};
use driver::golden;
use formats::source::Source;
use runner::{OnLoad, quantize_folder};
use safetensors::Dtype;
use scratch_folder::Folder;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const WHOLE: &str = "llama-f32-gqa1";
const SHARDED: &str = "qwen2-f32-tied-sharded";
const SECRET: &str = "the words that nobody else may read";
const TEMPLATES: &str = "additional_chat_templates";

fn quantize(from: &Path, to: &Path) -> Result<()> {
    quantize_folder(&Source::open(from)?, to, OnLoad::Int8, &mut |_| ControlFlow::Continue(()))
}

/// A folder `model`, copied from a golden one, a folder `outside` with secrets beside it, and a place for a new folder.
struct Scene(PathBuf);

impl Scene {
    fn new(test: &str, case: &str) -> Scene {
        let scene = Scene(std::env::temp_dir().join(format!("nanovllm-confined-{test}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&scene.0);
        fs::create_dir_all(scene.0.join("outside")).unwrap();
        let copy = Folder::copy(case, &format!("confined-{test}-copy"));
        // A link between file systems could not be renamed to.
        Command::new("cp").arg("-r").args([&copy.path, &scene.model()]).status().unwrap();
        fs::write(scene.outside("secret"), SECRET).unwrap();
        scene
    }

    fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.model().join(name)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.0.join("outside").join(name)
    }

    fn new_folder(&self) -> PathBuf {
        self.0.join("new")
    }

    fn quantize(&self) -> Result<()> {
        quantize(&self.model(), &self.new_folder())
    }

    /// Fails unless the model is refused for this name and these words, before anything is written.
    fn assert_refused(&self, case: &str, name: &str, words: &str) {
        match self.quantize() {
            Err(Error::ModelFile { path, reason }) => {
                assert!(path.ends_with(name), "{case}: {} {reason}", path.display());
                assert!(reason.contains(words), "{case}: {reason}");
            }
            other => panic!("{case}: {other:?}"),
        }
        assert!(!self.new_folder().exists(), "{case}: something was written");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::env::var_os("NVLLM_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Moves a file to a folder and leaves a link.
fn moved(from: &Path, to: &Path, link: &str) {
    fs::rename(from, to).unwrap();
    symlink(link, from).unwrap();
}

/// All files of a folder, by their names.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for path in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => open.push(path),
                false => found.push((path.strip_prefix(folder).unwrap().to_path_buf(), fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

fn has_secret(folder: &Path) -> bool {
    folder.exists()
        && files(folder).iter().any(|(_, bytes)| bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()))
}

#[test]
fn a_link_that_leads_out_is_refused_whatever_its_name() {
    const NAMES: &[&str] =
        &["env.txt", "tokenizer.json", "notes", ".hidden", "pytorch_model.bin", "quantize_config.json"];
    for name in NAMES {
        for to in ["/proc/self/environ", "../outside/secret", "/etc/passwd", "via", "../outside", "/dev/zero", "/"] {
            let scene = Scene::new("name", WHOLE);
            let _ = fs::remove_file(scene.file(name));
            symlink(to, scene.file(name)).unwrap();
            if to == "via" {
                symlink(scene.outside("secret"), scene.file("via")).unwrap();
                let refused = scene.quantize().unwrap_err().to_string();
                assert!(refused.contains("leads out of its folder"), "{name}: {refused}");
                continue;
            }
            scene.assert_refused(&format!("{name} -> {to}"), name, "leads out of its folder");
        }
    }
}

#[test]
fn weights_and_configs_of_others_are_refused_too() {
    for (case, name) in [
        (WHOLE, "config.json"),
        (WHOLE, "model.safetensors"),
        (SHARDED, "model.safetensors.index.json"),
        (SHARDED, "model-00002-of-00003.safetensors"),
    ] {
        let scene = Scene::new("weights", case);
        moved(&scene.file(name), &scene.outside(name), &format!("../outside/{name}"));
        scene.assert_refused(name, name, "leads out of its folder");
    }
}

#[test]
fn templates_in_a_folder_do_not_lead_out_either() {
    let scene = Scene::new("templates", WHOLE);
    fs::create_dir(scene.file(TEMPLATES)).unwrap();
    symlink("../../outside/secret", scene.file(TEMPLATES).join("tools.jinja")).unwrap();
    scene.assert_refused("a file", "additional_chat_templates/tools.jinja", "leads out of its folder");
    fs::remove_dir_all(scene.file(TEMPLATES)).unwrap();
    symlink("../outside", scene.file(TEMPLATES)).unwrap();
    scene.assert_refused("the folder", TEMPLATES, "leads out of its folder");
}

#[test]
fn links_within_the_folder_are_followed_and_folders_have_one_level() {
    let scene = Scene::new("within", WHOLE);
    fs::create_dir_all(scene.file("kept/deeper")).unwrap();
    fs::write(scene.file("kept/deeper/vocab.txt"), "a").unwrap();
    symlink("kept/deeper/vocab.txt", scene.file("vocab.txt")).unwrap();
    symlink("vocab.txt", scene.file("again.txt")).unwrap();
    symlink("no/such/file", scene.file(".#lock")).unwrap();
    fs::create_dir_all(scene.file(TEMPLATES).join(TEMPLATES)).unwrap();
    fs::write(scene.file(TEMPLATES).join("tools.jinja"), "b").unwrap();
    fs::write(scene.file(TEMPLATES).join(TEMPLATES).join("deep.jinja"), "c").unwrap();
    symlink(".", scene.file(TEMPLATES).join("round")).unwrap();
    scene.quantize().unwrap();
    let new = scene.new_folder();
    for (name, wanted) in [("vocab.txt", "a"), ("again.txt", "a"), ("additional_chat_templates/tools.jinja", "b")] {
        assert_eq!(fs::read_to_string(new.join(name)).unwrap(), wanted, "{name}");
        assert!(fs::symlink_metadata(new.join(name)).unwrap().is_file(), "{name}");
    }
    let below = fs::read_dir(new.join(TEMPLATES)).unwrap().count();
    assert!(below == 1 && !new.join("kept").exists() && !new.join(".#lock").exists());
}

/// Makes of a model folder a snapshot of a download cache, and answers with its path.
fn cached(scene: &Scene) -> PathBuf {
    let cache = scene.0.join("models--a--b");
    let snapshot = cache.join("snapshots/0123abcd");
    fs::create_dir_all(snapshot.join(TEMPLATES)).unwrap();
    fs::create_dir_all(cache.join("blobs")).unwrap();
    fs::write(scene.file("chat.jinja"), "template").unwrap();
    for (number, path) in fs::read_dir(scene.model()).unwrap().map(|entry| entry.unwrap().path()).enumerate() {
        fs::copy(&path, cache.join(format!("blobs/{number}"))).unwrap();
        let name = path.file_name().unwrap();
        symlink(format!("../../blobs/{number}"), snapshot.join(name)).unwrap();
        if name == "chat.jinja" {
            symlink(format!("../../../blobs/{number}"), snapshot.join(TEMPLATES).join(name)).unwrap();
        }
    }
    snapshot
}

#[test]
fn a_snapshot_of_a_download_cache_gives_the_files_of_its_folder() {
    for case in [WHOLE, SHARDED] {
        let scene = Scene::new("cache", case);
        let snapshot = cached(&scene);
        let (from_cache, linked) = (scene.0.join("from-cache"), scene.0.join("linked"));
        quantize(&snapshot, &from_cache).unwrap();
        assert!(from_cache.join(TEMPLATES).join("chat.jinja").exists());
        fs::remove_dir_all(from_cache.join(TEMPLATES)).unwrap();
        scene.quantize().unwrap();
        assert!(files(&scene.new_folder()) == files(&from_cache));
        // Through a link to the snapshot, and a model in a folder of it.
        symlink(&snapshot, &linked).unwrap();
        quantize(&linked, &scene.0.join("from-link")).unwrap();
        let nested = snapshot.join("fp32");
        fs::create_dir(&nested).unwrap();
        for entry in fs::read_dir(&snapshot).unwrap().map(|entry| entry.unwrap()) {
            if let Ok(link) = fs::read_link(entry.path()) {
                symlink(Path::new("..").join(link), nested.join(entry.file_name())).unwrap();
            }
        }
        quantize(&nested, &scene.0.join("from-nested")).unwrap();
        assert!(files(&scene.0.join("from-nested")) == files(&scene.new_folder()));
    }
}

/// Makes a link at a path in a snapshot that leads elsewhere.
type Spoil = fn(&Scene, &Path);

#[test]
fn a_snapshot_leads_into_its_own_blobs_alone() {
    let spoil: &[(&str, Spoil)] = &[
        ("a file beside blobs", |_, link| symlink("../../refs", link).unwrap()),
        ("through blobs", |_, link| symlink("../../blobs/../refs", link).unwrap()),
        ("a folder of blobs", |_, link| {
            let below = link.parent().unwrap().join("../../blobs/below");
            fs::create_dir(&below).unwrap();
            fs::write(below.join("secret"), SECRET).unwrap();
            symlink("../../blobs/below/secret", link).unwrap();
        }),
        ("blobs of another model", |scene, link| {
            fs::create_dir_all(scene.0.join("models--c--d/blobs")).unwrap();
            fs::write(scene.0.join("models--c--d/blobs/1"), SECRET).unwrap();
            symlink("../../../models--c--d/blobs/1", link).unwrap();
        }),
        ("a blob that is a link", |scene, link| {
            symlink(scene.outside("secret"), link.parent().unwrap().join("../../blobs/secret")).unwrap();
            symlink("../../blobs/secret", link).unwrap();
        }),
        ("another snapshot", |_, link| {
            let other = link.parent().unwrap().join("../4567");
            fs::create_dir(&other).unwrap();
            fs::write(other.join("secret"), SECRET).unwrap();
            symlink("../4567/secret", link).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        let scene = Scene::new("blobs", WHOLE);
        let snapshot = cached(&scene);
        fs::write(snapshot.join("../../refs"), SECRET).unwrap();
        spoil(&scene, &snapshot.join("link.txt"));
        let error = quantize(&snapshot, &scene.new_folder()).unwrap_err();
        assert!(matches!(&error, Error::ModelFile { path, .. } if path.ends_with("link.txt")), "{what}: {error}");
        assert!(error.to_string().contains("leads out of its folder"), "{what}: {error}");
    }
    let scene = Scene::new("blobs-link", WHOLE);
    let snapshot = cached(&scene);
    let blobs = scene.0.join("models--a--b/blobs");
    fs::rename(&blobs, scene.outside("blobs")).unwrap();
    symlink(scene.outside("blobs"), &blobs).unwrap();
    let error = quantize(&snapshot, &scene.new_folder()).unwrap_err().to_string();
    assert!(error.contains("leads out of its folder"), "blobs is a link: {error}");
    // `blobs` means something beside `snapshots` alone.
    let scene = Scene::new("blobs-elsewhere", WHOLE);
    fs::create_dir(scene.0.join("blobs")).unwrap();
    fs::write(scene.0.join("blobs/1"), SECRET).unwrap();
    symlink("../blobs/1", scene.file("notes.txt")).unwrap();
    scene.assert_refused("blobs beside the folder", "notes.txt", "leads out of its folder");
}

#[test]
fn what_is_no_file_and_no_folder_is_refused_at_once() {
    for below in ["", TEMPLATES] {
        let scene = Scene::new("special", WHOLE);
        let folder = scene.file(below);
        fs::create_dir_all(&folder).unwrap();
        let fifo = folder.join("pipe.json");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        scene.assert_refused("a FIFO", "pipe.json", "is a FIFO, but must be a regular file");
        fs::rename(&fifo, folder.join("config.bin")).unwrap();
        scene.assert_refused("a FIFO that would be left out", "config.bin", "is a FIFO");
        fs::remove_file(folder.join("config.bin")).unwrap();
        let _listener = UnixListener::bind(folder.join("socket")).unwrap();
        scene.assert_refused("a socket", "socket", "is a socket, but must be a regular file");
    }
    for name in ["config.json", "model.safetensors"] {
        let scene = Scene::new("special-name", WHOLE);
        fs::remove_file(scene.file(name)).unwrap();
        assert!(Command::new("mkfifo").arg(scene.file(name)).status().unwrap().success());
        scene.assert_refused("a FIFO", name, "is a FIFO, but must be a regular file");
    }
    let scene = Scene::new("special-round", WHOLE);
    symlink("round", scene.file("round")).unwrap();
    let refused = scene.quantize();
    assert!(matches!(&refused, Err(Error::Io { path, .. }) if path.ends_with("round")), "{refused:?}");
}

#[test]
fn names_that_are_not_utf8_are_refused_by_name() {
    for below in ["", TEMPLATES] {
        for name in [&b"caf\xe9.txt"[..], b"\xff", b"tok\xc3\x28.json", b"\xed\xa0\x80.bin"] {
            let scene = Scene::new("utf8", WHOLE);
            fs::create_dir_all(scene.file(below)).unwrap();
            let name = OsStr::from_bytes(name);
            fs::write(scene.file(below).join(name), "a").unwrap();
            let spelled = format!("has a name that is not UTF-8, {name:?}");
            match scene.quantize() {
                Err(Error::ModelFile { path, reason }) => {
                    assert_eq!(path.file_name(), Some(name));
                    assert!(reason.starts_with(&spelled), "{reason}");
                }
                other => panic!("{name:?}: {other:?}"),
            }
            assert!(!scene.new_folder().exists());
        }
    }
}

#[test]
fn the_new_folder_does_not_lie_in_the_old_one() {
    let scene = Scene::new("inside", WHOLE);
    let model = scene.model();
    fs::create_dir_all(scene.file("sub/empty")).unwrap();
    symlink(scene.file("sub"), scene.0.join("link-to-sub")).unwrap();
    symlink(scene.file("sub/empty"), scene.0.join("link-to-empty")).unwrap();
    symlink(&model, scene.0.join("link-to-model")).unwrap();
    let before = files(&model);
    let name = model.file_name().unwrap();
    for to in [
        scene.file("new"),
        scene.file("new/in/new"),
        scene.file("sub/empty"),
        scene.0.join("link-to-sub/new"),
        scene.0.join("link-to-empty"),
        scene.0.join("link-to-model/new"),
        scene.0.join("link-to-sub/../new"),
        scene.0.join("outside/..").join(name).join("new"),
        scene.0.join("no/such/../..").join(name).join("new"),
        scene.0.join("./model//./new"),
        model.clone(),
        scene.file("sub/.."),
    ] {
        let refused = quantize(&model, &to);
        match &refused {
            Err(Error::ModelFile { path, reason }) => {
                assert!(path == &to && reason.starts_with("lies in "), "{}: {reason}", to.display());
            }
            other => panic!("{}: {other:?}", to.display()),
        }
        let through_link = quantize(&scene.0.join("link-to-model"), &to).unwrap_err().to_string();
        assert!(through_link.contains("lies in "), "{}: {through_link}", to.display());
    }
    assert!(files(&model) == before && fs::read_dir(scene.file("sub/empty")).unwrap().count() == 0);
    // Beside it, and under a name that only begins alike, there is room.
    for to in [scene.0.join("model-int8"), scene.file("../beside"), scene.0.join("link-to-sub/../../further")] {
        quantize(&model, &to).unwrap();
    }
    assert!(scene.0.join("model-int8/config.json").exists() && scene.0.join("further/config.json").exists());
}

#[test]
fn a_link_that_changes_while_it_is_copied_leads_nowhere_else() {
    let scene = Scene::new("race", WHOLE);
    fs::write(scene.file("good.txt"), "good").unwrap();
    let (link, next) = (scene.file("notes.txt"), scene.file(".next"));
    symlink("good.txt", &link).unwrap();
    let is_over = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for to in ["../outside/secret", "good.txt"] {
                    symlink(to, &next).unwrap();
                    fs::rename(&next, &link).unwrap();
                }
            }
        });
        for _ in 0..300 {
            match scene.quantize() {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
            let leaked = has_secret(&scene.new_folder());
            if leaked {
                is_over.store(true, Ordering::Relaxed);
            }
            assert!(!leaked);
            let _ = fs::remove_dir_all(scene.new_folder());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{done} times done, {refused} times refused");
}

#[test]
fn a_copy_is_data() {
    let scene = Scene::new("modes", WHOLE);
    for (name, mode) in [("program", 0o4755), ("private.txt", 0o600), ("read-only.txt", 0o444)] {
        fs::write(scene.file(name), "a").unwrap();
        fs::set_permissions(scene.file(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    scene.quantize().unwrap();
    for (name, wanted) in [("program", 0o644), ("private.txt", 0o600), ("read-only.txt", 0o444)] {
        let mode = fs::metadata(scene.new_folder().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, wanted, "{name}");
    }
}

#[test]
fn files_beside_the_weights_have_limits() {
    let scene = Scene::new("limits", WHOLE);
    fs::File::create(scene.file("video.mp4")).unwrap().set_len((1 << 30) + 1).unwrap();
    scene.quantize().unwrap();
    assert!(!scene.new_folder().join("video.mp4").exists(), "one file of more than 1 GiB is left out");
    fs::remove_dir_all(scene.new_folder()).unwrap();
    for number in 0..1100 {
        fs::write(scene.file(&format!("{number}.txt")), "").unwrap();
    }
    scene.assert_refused("1100 files", "model", "has at least 1025 files");
    let scene = Scene::new("limits-bytes", WHOLE);
    for number in 0..5 {
        fs::File::create(scene.file(&format!("{number}.mp4"))).unwrap().set_len(1 << 30).unwrap();
    }
    scene.assert_refused("5 GiB", "model", "but at most 1024 files of 4294967296 bytes in all are copied");
}

#[test]
fn golden_folders_quantize_as_before() {
    for case in [WHOLE, SHARDED] {
        let scene = Scene::new("golden", case);
        quantize(&golden(case), &scene.new_folder()).unwrap();
    }
}

#[test]
fn matrices_without_numbers_and_names_that_collide_are_no_bugs() {
    let name = "model.layers.0.mlp.extra";
    for (rows, cols) in [(5, 0), (0, 64), (0, 0), (1 << 40, 0), (0, 1 << 34), (0, 1 << 60)] {
        let folder = Folder::copy(WHOLE, "no-numbers");
        folder.edit_tensors(|tensors| {
            tensors.insert(format!("{name}.weight"), (Dtype::F32, vec![rows, cols], Vec::new()));
        });
        let scene = Scene::new("no-numbers", WHOLE);
        let refused = quantize(&folder.path, &scene.new_folder()).unwrap_err().to_string();
        assert!(refused.contains(&format!("tensor {name}.weight has shape [{rows}, {cols}]")), "{refused}");
        assert!(!scene.new_folder().exists());
    }
    let folder = Folder::copy(WHOLE, "collide");
    folder.edit_tensors(|tensors| {
        tensors.insert("model.layers.0.mlp.up_proj.weight_scale".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    let scene = Scene::new("collide", WHOLE);
    let refused = quantize(&folder.path, &scene.new_folder()).unwrap_err().to_string();
    assert!(refused.contains("model.layers.0.mlp.up_proj.weight_scale, a name that one"), "{refused}");
    assert!(!scene.new_folder().exists());
}
