//! Version.
#![allow(unsafe_code)]

use super::guard::guard_value;
use crate::backend::cpu::Isa;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// The number in the library's soname. While the version is 0.x it changes with any break of the ABI.
pub const NVLLM_ABI_VERSION: u32 = 0;

/// [any] The version of the library that runs, as in "0.1.0". A static string.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    VERSION.as_ptr().cast()
}

/// [any] The NVLLM_ABI_VERSION of the library that runs.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_abi_version() -> u32 {
    NVLLM_ABI_VERSION
}

/// [any] How the library was built and what it found here, as a JSON object: "version", "abi_version", "backends",
/// "features" (of the build), "instruction_sets" (that this processor has and the kernels use, the best one last), "git"
/// (null when unknown), "rustc", "target". A static string.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_build_info() -> *const c_char {
    static INFO: OnceLock<CString> = OnceLock::new();
    guard_value("nvllm_build_info", c"{}".as_ptr(), || {
        INFO.get_or_init(|| CString::new(build_info().to_string()).unwrap_or_default()).as_ptr()
    })
}

fn build_info() -> serde_json::Value {
    let features: &[&str] = if cfg!(feature = "test-hooks") { &["test-hooks"] } else { &[] };
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "abi_version": NVLLM_ABI_VERSION,
        "backends": if cfg!(nvllm_cuda) { &["cpu", "cuda"][..] } else { &["cpu"] },
        "features": features,
        "instruction_sets": Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>(),
        "git": option_env!("NVLLM_BUILD_GIT"),
        "rustc": env!("NVLLM_BUILD_RUSTC"),
        "target": env!("NVLLM_BUILD_TARGET"),
    })
}
