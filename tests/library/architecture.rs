//! The form of the code: where `unsafe` may stand, how long a file is, what a module is called.

use crate::tree::root;
use std::fs;
use std::path::{Path, PathBuf};

/// A file ends where its question ends; this only finds those that have several.
const FILE_LINES_MAX: usize = 800;
/// A family with one kind of layers needs 60. What says which layer is of which kind stands there too.
const FAMILY_LINES_MAX: usize = 180;
const NAMES_OF_NO_NOUN: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

/// Files below `folder` that end in `extension`, relative to the root of the repository.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let root = root();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The code of a file: without comments, and without the tests at its end, which may look where they like.
fn code(path: &Path) -> String {
    let text = read(path);
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// What a crate imports stands in its Cargo.toml, and cargo holds it to that.
#[test]
fn unsafe_code_stands_only_in_capi_compute_os_and_the_calls_of_the_program() {
    let folders = fs::read_dir(root().join("src")).unwrap().map(Result::unwrap);
    for entry in folders.filter(|entry| entry.path().join("Cargo.toml").exists()) {
        let name = entry.file_name().into_string().unwrap();
        let wanted = match name.as_str() {
            // Each file that has some says so by `allow`, and clippy asks for a SAFETY note at each block.
            "capi" | "compute" | "os" => "#![deny(unsafe_code)]",
            _ => "#![forbid(unsafe_code)]",
        };
        let lib = fs::read_to_string(entry.path().join("lib.rs")).unwrap();
        assert!(lib.contains(wanted), "src/{name}/lib.rs lacks {wanted}");
    }
    // The program calls the C API, and its declaration of the command line does not.
    assert!(read(Path::new("src/cli/main.rs")).contains("#![deny(unsafe_code)]"));
    let allowed = files("src/cli", "rs").into_iter().filter(|path| read(path).contains("allow(unsafe_code"));
    assert_eq!(allowed.collect::<Vec<_>>(), [Path::new("src/cli/engine.rs"), Path::new("src/cli/ffi.rs")]);
}

#[test]
fn no_file_is_too_long_to_read() {
    let too_long = |folder: &str, extension: &str, max: usize| -> Vec<String> {
        let lines = |path: &Path| read(path).lines().count();
        let long = files(folder, extension).into_iter().filter(|path| lines(path) > max);
        long.map(|path| format!("{}: {} lines, at most {max}", path.display(), lines(&path))).collect()
    };
    let mut wrong = Vec::new();
    for (folder, extension) in [
        ("src", "rs"),
        ("tests", "rs"),
        ("tests", "cpp"),
        ("benches", "rs"),
        ("kernels", "cu"),
        ("kernels", "cuh"),
        ("bindings", "hpp"),
        ("bindings", "go"),
        ("examples", "go"),
    ] {
        wrong.extend(too_long(folder, extension, FILE_LINES_MAX));
    }
    wrong.extend(too_long("src/model/families", "rs", FAMILY_LINES_MAX));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `parking_lot` keeps waiting threads in a table whose locks a forked child may find locked: see `src/os/lock.rs`.
#[test]
fn locks_that_are_waited_for_are_not_those_of_parking_lot() {
    let never_contended =
        ["src/compute/cpu/mod.rs", "src/compute/cuda/mod.rs", "src/capi/answers.rs", "src/capi/handle.rs"];
    let users = files("src", "rs").into_iter().filter(|path| code(path).contains("parking_lot"));
    let wrong: Vec<_> = users.filter(|path| !never_contended.iter().any(|known| path == Path::new(known))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for entrance in ["src/capi/answers.rs", "src/capi/handle.rs"] {
        assert!(!code(Path::new(entrance)).contains(".lock()"), "{entrance}: an entrance is tried, never waited for");
    }
}

#[test]
fn every_op_has_its_column_of_files() {
    for path in files("src/compute/ops", "rs") {
        let op = path.file_stem().unwrap().to_str().unwrap();
        if op == "mod" {
            continue;
        }
        let places = [format!("src/compute/cpu/{op}.rs"), format!("src/compute/cpu/{op}/mod.rs")];
        let is_fusion = read(Path::new("src/compute/unfused.rs")).contains(&format!("pub fn {op}<"));
        let has_file = places.iter().any(|place| root().join(place).exists());
        assert!(is_fusion != has_file, "op {op} has neither of {places:?}, or both a file and a body in plain ops");
        let called = format!("fn {op}(");
        assert!(read(Path::new("src/compute/backend.rs")).contains(&called), "op {op} is no method of a backend");
    }
}

#[test]
fn a_module_is_named_after_a_noun() {
    for folder in ["src", "tests", "benches"] {
        for path in files(folder, "rs") {
            let of_no_noun = path.components().any(|part| {
                let name = part.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
                NAMES_OF_NO_NOUN.contains(&name.as_str())
            });
            assert!(!of_no_noun, "{}", path.display());
        }
    }
}

#[test]
fn the_library_neither_prints_nor_leaves_marks_of_unfinished_work() {
    let marks = ["println!", "eprintln!", "dbg!", "todo!", "unimplemented!", "print!"];
    let mut wrong = Vec::new();
    // Build scripts speak to cargo.
    for path in files("src", "rs").into_iter().filter(|path| !path.ends_with("build.rs")) {
        let code = code(&path);
        wrong
            .extend(marks.iter().filter(|mark| code.contains(*mark)).map(|mark| format!("{}: {mark}", path.display())));
        if read(&path).contains("TODO") {
            wrong.push(format!("{}: TODO", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Paths between backticks.
fn quoted_paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let looks_like_path = |word: &&str| {
        let known =
            ["src/", "tests/", "benches/", "docs/", "include/", "bindings/", "examples/", "models/", "kernels/"];
        known.iter().any(|folder| word.starts_with(folder))
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    };
    quoted.filter(looks_like_path).map(str::to_owned).collect()
}

/// The paths of a tree drawn in a code block: a path begins a line, and what lies in a folder is indented below it.
fn tree_paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let blocks = text.split("```").skip(1).step_by(2);
    for block in blocks.filter(|block| block.lines().any(|line| line.starts_with("src/"))) {
        let mut folders: Vec<(usize, String)> = Vec::new();
        for line in block.lines().skip(1) {
            let Some(name) = line.split_whitespace().next() else { continue };
            let indent = line.len() - line.trim_start().len();
            folders.retain(|(outer, _)| *outer < indent);
            let path = folders.iter().map(|(_, name)| name.as_str()).chain([name]).collect::<String>();
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if is_plain && (name.ends_with('/') || name.contains('.')) {
                found.push(path);
            }
            if name.ends_with('/') {
                folders.push((indent, name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn the_paths_of_a_document_are_found() {
    assert_eq!(quoted_paths("see `src/lib.rs` and `ops/<op>.rs` or `a b`"), ["src/lib.rs"]);
    let tree = "```\nREADME.md   what it is\nsrc/\n  lib.rs   map\n  ops/\n    <op>.rs\n  ffi/   C\ntests/  all\n```";
    assert_eq!(tree_paths(tree), ["README.md", "src/", "src/lib.rs", "src/ops/", "src/ffi/", "tests/"]);
    assert!(tree_paths("```c\nint x;\n```").is_empty());
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let mut wrong = Vec::new();
    for document in ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"] {
        let Ok(text) = fs::read_to_string(root().join(document)) else { continue };
        let named = quoted_paths(&text).into_iter().chain(tree_paths(&text));
        let missing = named.filter(|path| !root().join(path).exists());
        wrong.extend(missing.map(|path| format!("{document} names {path}, which does not exist")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
