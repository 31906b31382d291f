//! Finds or compiles the fatbins that the library embeds.
//!
//! A release build compiles the kernels, if nvcc is found in `CUDA_HOME` or `PATH`. `NVLLM_CUDA=require` makes a missing nvcc an error.
//!
//! A development build reads them at run time, from `target/kernels` or the folder that `NVLLM_KERNELS_DIR` names then. So a change of a
//! kernel compiles no Rust, and a change of Rust no kernel. `make kernels` fills `target/kernels`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "compile.rs"]
mod compile;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=compile.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let table = match is_release {
        false => table(&[], Some(&folder.join("../target/kernels"))),
        true => table(&embedded(&folder, &out), None),
    };
    fs::write(out.join("fatbins.rs"), table).expect("OUT_DIR is writable");
}

/// Compiles the kernels, and returns their files.
fn embedded(folder: &Path, out: &Path) -> Vec<PathBuf> {
    for name in compile::VARIABLES.iter().chain(&["NVLLM_CUDA"]) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let Some(nvcc) = compile::find_nvcc() else {
        let missing = "nvcc was found neither in CUDA_HOME nor in PATH";
        assert!(env::var("NVLLM_CUDA").as_deref() != Ok("require"), "{missing}, but NVLLM_CUDA=require");
        if env::var_os("CUDA_HOME").is_none() {
            println!("cargo::rerun-if-env-changed=PATH");
        }
        println!("cargo::warning={missing}: building without kernels for GPUs");
        return Vec::new();
    };
    println!("cargo::rerun-if-changed=.");
    println!("cargo::rerun-if-changed={}", nvcc.display());
    let names = compile::compile_all(&nvcc, folder, out);
    names.iter().map(|name| out.join(name).with_extension("fatbin")).collect()
}

/// What `lib.rs` includes.
fn table(files: &[PathBuf], folder: Option<&Path>) -> String {
    let row = |file: &PathBuf| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        format!("    ({name:?}, &Aligned(*include_bytes!({:?}))),\n", file.display().to_string())
    };
    let rows: String = files.iter().map(row).collect();
    let folder = folder.map(|folder| folder.display().to_string());
    format!("static EMBEDDED: &[(&str, &Aligned<[u8]>)] = &[\n{rows}];\nconst FOLDER: Option<&str> = {folder:?};\n")
}
