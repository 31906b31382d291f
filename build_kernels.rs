//! Compiles each `kernels/*.cu` into one fatbin for all architectures, if nvcc is found.
//!
//! nvcc is looked for in `CUDA_HOME`, then in `PATH`. Without it the library builds without CUDA, with a warning; the cfg
//! `nvllm_cuda` tells the crate whether the kernels are built. `NVLLM_CUDA_ARCHS=90` (a comma-separated list) builds for fewer
//! architectures, and `NVLLM_CUDA=require` makes a missing nvcc an error. With `NVLLM_CUDA_DELAYS=1`, for tests, warps pause at random where
//! kernels wait for each other.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Compute capabilities that get machine code. One of them gets PTX too, for the devices between and after them.
const ARCHS: &str = "80,86,89,90,100,120";
/// The files that only a device of compute capability 9.0 loads.
const HOPPER: [&str; 10] = [
    "attention_few_units",
    "attention_hopper",
    "attention_units",
    "gated_linear_hopper",
    "linear_coded_hopper",
    "linear_few",
    "linear_hopper",
    "linear_hopper_tall",
    "linear_hopper_wide",
    "sample_once",
];
const COMMON_FLAGS: [&str; 4] = ["-fatbin", "-std=c++17", "-O3", "--compress-mode=size"];

/// Compiles the kernels into `OUT_DIR` and tells cargo whether they are there.
pub fn build() {
    println!("cargo::rustc-check-cfg=cfg(nvllm_cuda)");
    for name in ["CUDA_HOME", "NVLLM_CUDA", "NVLLM_CUDA_ARCHS", "NVLLM_CUDA_DELAYS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build_kernels.rs");
    println!("cargo::rerun-if-changed=kernels");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let Some(nvcc) = find_nvcc() else {
        let missing = "nvcc was found neither in CUDA_HOME nor in PATH";
        assert!(env::var("NVLLM_CUDA").as_deref() != Ok("require"), "{missing}, but NVLLM_CUDA=require");
        println!("cargo::warning={missing}: building without CUDA");
        return;
    };
    println!("cargo::rerun-if-changed={}", nvcc.display());
    let (flags, hopper_flags) = (flags(), hopper_flags());
    let sources = Mutex::new(files("kernels", "cu"));
    let headers = files("kernels/common", "cuh");
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(source) = { sources.lock().expect("no compile panicked").pop() } {
                    let is_hopper = source.file_stem().is_some_and(|stem| HOPPER.iter().any(|file| stem == *file));
                    assert!(is_hopper || !needs_hopper(&source), "{} is not among HOPPER", source.display());
                    compile(&nvcc, if is_hopper { &hopper_flags } else { &flags }, &source, &headers);
                }
            });
        }
    });
    println!("cargo::rustc-cfg=nvllm_cuda");
}

fn find_nvcc() -> Option<PathBuf> {
    if let Some(home) = env::var_os("CUDA_HOME") {
        let nvcc = Path::new(&home).join("bin/nvcc");
        return nvcc.is_file().then_some(nvcc);
    }
    println!("cargo::rerun-if-env-changed=PATH");
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("nvcc")).find(|nvcc| nvcc.is_file())
}

fn flags() -> Vec<String> {
    let archs = env::var("NVLLM_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.to_owned());
    let number = |arch: &str| arch.parse().unwrap_or_else(|_| panic!("NVLLM_CUDA_ARCHS: {arch:?} is not like 90"));
    let mut archs: Vec<u32> = archs.split(',').map(|arch| number(arch.trim())).collect();
    archs.sort_unstable();
    archs.dedup();
    // A device compiles PTX of its own capability or an earlier one: the first that has all that the kernels use serves the most.
    let ptx = archs.iter().rev().find(|arch| **arch <= 90).or(archs.first());
    let mut flags = common_flags();
    flags.extend(archs.iter().map(|arch| format!("-gencode=arch=compute_{arch},code=sm_{arch}")));
    flags.extend(ptx.map(|arch| format!("-gencode=arch=compute_{arch},code=compute_{arch}")));
    flags
}

/// Machine code for compute capability 9.0 with the instructions that no other has. There is no PTX of it: no other device loads these files.
fn hopper_flags() -> Vec<String> {
    let mut flags = common_flags();
    flags.push("-gencode=arch=compute_90a,code=sm_90a".to_owned());
    flags
}

fn common_flags() -> Vec<String> {
    let delays = env::var("NVLLM_CUDA_DELAYS").is_ok_and(|delays| delays == "1");
    COMMON_FLAGS.into_iter().chain(delays.then_some("-DNVLLM_RANDOM_DELAYS")).map(str::to_owned).collect()
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// Whether a file has code that other flags than [`hopper_flags`] would leave out.
fn needs_hopper(source: &Path) -> bool {
    fs::read_to_string(source).is_ok_and(|text| text.contains("__CUDA_ARCH_FEAT_SM90_ALL"))
}

/// Compiles one kernel file, unless its fatbin comes from the same text and flags.
fn compile(nvcc: &Path, flags: &[String], source: &Path, headers: &[PathBuf]) {
    let mut hasher = DefaultHasher::new();
    (nvcc, flags).hash(&mut hasher);
    for file in headers.iter().map(PathBuf::as_path).chain([source]) {
        fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).hash(&mut hasher);
    }
    let stamp = hasher.finish().to_string();

    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join(source.file_name().expect("a file"));
    let (fatbin, stamp_file) = (out.with_extension("fatbin"), out.with_extension("stamp"));
    if fatbin.is_file() && fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
        return;
    }
    let output = Command::new(nvcc).args(flags).arg("-o").arg(&fatbin).arg(source).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", nvcc.display()));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nvcc refused {}:\n{messages}", source.display());
    fs::write(stamp_file, stamp).expect("OUT_DIR is writable");
}
