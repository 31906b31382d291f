//! Link arguments of the shared library, and facts for `nvllm_build_info`.
//!
//! The output depends on nothing but the files and variables named here, so that equal sources give equal builds.

use std::env;
use std::fs;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=version.rs");
    println!("cargo::rerun-if-env-changed=NANOVLLM_GIT_REVISION");

    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnanovllm.so.{}", abi_version());
        // Worker threads and thread-local destructors may outlive dlclose().
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Symbols that dependencies export, such as llguidance's C API, must not be exported by this library.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }

    println!("cargo::rustc-env=NVLLM_BUILD_TARGET={}", env::var("TARGET").unwrap_or_default());
    println!("cargo::rustc-env=NVLLM_BUILD_RUSTC={}", rustc_version());
    // Taken from the environment and not from git itself: a commit alone must not cause a rebuild.
    if let Ok(revision) = env::var("NANOVLLM_GIT_REVISION")
        && !revision.is_empty()
    {
        println!("cargo::rustc-env=NVLLM_BUILD_GIT={revision}");
    }
}

/// The number in the soname, from the source of the header.
fn abi_version() -> u32 {
    let source = fs::read_to_string("version.rs").expect("version.rs is part of the crate");
    let line = source.lines().find_map(|line| line.strip_prefix("pub const NVLLM_ABI_VERSION: u32 = "));
    let number = line.and_then(|rest| rest.trim_end_matches(';').parse().ok());
    number.expect("version.rs defines NVLLM_ABI_VERSION")
}

fn rustc_version() -> String {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output().expect("cargo has a rustc");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
