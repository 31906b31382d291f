//! Compiles the kernels into a folder, for builds that read them at run time: `compile_kernels FOLDER`.

use std::path::Path;
use std::process::ExitCode;

#[path = "compile.rs"]
mod compile;

fn main() -> ExitCode {
    let Some(out) = std::env::args_os().nth(1) else {
        eprintln!("usage: compile_kernels FOLDER");
        return ExitCode::FAILURE;
    };
    let Some(nvcc) = compile::find_nvcc() else {
        eprintln!("compile_kernels: nvcc was found neither in CUDA_HOME nor in PATH");
        return ExitCode::FAILURE;
    };
    let names = compile::compile_all(&nvcc, Path::new(env!("CARGO_MANIFEST_DIR")), Path::new(&out));
    println!("{} kernel files are in {}", names.len(), Path::new(&out).display());
    ExitCode::SUCCESS
}
