//! Compiles each `*.cu` of this folder into one fatbin for all architectures.
//!
//! Three environment variables say how. `NVLLM_CUDA_ARCHS=90` (a comma-separated list) builds for fewer architectures. With
//! `NVLLM_CUDA_DELAYS=1`, for tests, warps pause at random where kernels wait for each other. `NVLLM_KERNEL_CACHE` names a folder in
//! which fatbins outlive a build: each under the hash of the compiler, its flags, the source and all headers that it includes.

use std::collections::BTreeSet;
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
const HOPPER: [&str; 11] = [
    "attention_few_units",
    "attention_hopper",
    "attention_units",
    "gemm_gated",
    "gemm_quantized",
    "gemv_shared",
    "gemv_shared_quantized",
    "gemm_swap_ab",
    "gemm_full_n",
    "gemm_m128",
    "sample_once",
];
const COMMON_FLAGS: [&str; 4] = ["-fatbin", "-std=c++17", "-O3", "--compress-mode=size"];
/// The environment variables that change what is compiled.
#[allow(dead_code)] // the build script alone watches them
pub const VARIABLES: [&str; 3] = ["CUDA_HOME", "NVLLM_CUDA_ARCHS", "NVLLM_CUDA_DELAYS"];

/// The nvcc of `CUDA_HOME`, or else of `PATH`.
pub fn find_nvcc() -> Option<PathBuf> {
    if let Some(home) = env::var_os("CUDA_HOME") {
        let nvcc = Path::new(&home).join("bin/nvcc");
        return nvcc.is_file().then_some(nvcc);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("nvcc")).find(|nvcc| nvcc.is_file())
}

/// Compiles the sources of `folder` into `out`, and returns their names. A fatbin that is there and comes from the same text is kept.
///
/// # Panics
///
/// If a file cannot be read, written or compiled.
pub fn compile_all(nvcc: &Path, folder: &Path, out: &Path) -> Vec<String> {
    fs::create_dir_all(out).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
    let (flags, hopper_flags) = (flags(), hopper_flags());
    let compiler = version(nvcc);
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    sources.sort();
    let names = sources.iter().map(|path| stem(path)).collect();
    let sources = Mutex::new(sources);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(source) = { sources.lock().expect("no compile panicked").pop() } {
                    let is_hopper = HOPPER.contains(&stem(&source).as_str());
                    assert!(is_hopper || !needs_hopper(&source), "{} is not among HOPPER", source.display());
                    compile(nvcc, &compiler, if is_hopper { &hopper_flags } else { &flags }, &source, out);
                }
            });
        }
    });
    names
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
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

/// Whether a file has code that other flags than [`hopper_flags`] would leave out.
fn needs_hopper(source: &Path) -> bool {
    fs::read_to_string(source).is_ok_and(|text| text.contains("__CUDA_ARCH_FEAT_SM90_ALL"))
}

/// What tells one compiler from another: the words of `nvcc --version`.
fn version(nvcc: &Path) -> Vec<u8> {
    let output =
        Command::new(nvcc).arg("--version").output().unwrap_or_else(|error| panic!("{}: {error}", nvcc.display()));
    output.stdout
}

/// A file and what it includes by `#include "..."`, each once and before what includes it.
fn texts(file: &Path, seen: &mut BTreeSet<PathBuf>, texts: &mut Vec<String>) {
    if !seen.insert(file.to_owned()) {
        return;
    }
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let folder = file.parent().unwrap_or(Path::new(""));
    for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")) {
        let name = line.split('"').next().unwrap_or_default();
        // Headers of the compiler, such as those of CUDA, are what its version says they are.
        let header = folder.join(name);
        if header.is_file() {
            self::texts(&header, seen, texts);
        }
    }
    texts.push(text);
}

/// 128 bits over everything that a fatbin depends on.
fn hash(compiler: &[u8], flags: &[String], source: &Path) -> String {
    let mut all = Vec::new();
    texts(source, &mut BTreeSet::new(), &mut all);
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, compiler, flags, &all).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

fn compile(nvcc: &Path, compiler: &[u8], flags: &[String], source: &Path, out: &Path) {
    let hash = hash(compiler, flags, source);
    let fatbin = out.join(stem(source)).with_extension("fatbin");
    let stamp = fatbin.with_extension("stamp");
    if fatbin.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == hash) {
        return;
    }
    let cached = env::var_os("NVLLM_KERNEL_CACHE").filter(|folder| !folder.is_empty());
    let cached = cached.map(|folder| Path::new(&folder).join(format!("{}-{hash}.fatbin", stem(source))));
    let is_cached = cached.as_ref().is_some_and(|cached| fs::copy(cached, &fatbin).is_ok());
    if !is_cached {
        let output = Command::new(nvcc).args(flags).arg("-o").arg(&fatbin).arg(source).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", nvcc.display()));
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nvcc refused {}:\n{messages}", source.display());
        if let Some(cached) = cached {
            keep(&fatbin, &cached);
        }
    }
    fs::write(stamp, hash).expect("the folder of fatbins is writable");
}

/// Puts a fatbin into the cache, whole or not at all. Who cannot write there compiles again the next time.
fn keep(fatbin: &Path, cached: &Path) {
    let Some(folder) = cached.parent() else { return };
    let unfinished = cached.with_extension(format!("{}", std::process::id()));
    let _ = fs::create_dir_all(folder);
    let _ = fs::copy(fatbin, &unfinished).and_then(|_| fs::rename(&unfinished, cached));
}
