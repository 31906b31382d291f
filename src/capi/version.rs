//! Version.
#![allow(unsafe_code)]

use super::guard::guard_value;
use compute::cpu::Isa;
use std::ffi::{CString, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The number in the library's soname. While the version is 0.x, it changes with every break of the ABI.
pub const NVLLM_ABI_VERSION: u32 = 0;

/// [any] Returns the version of the loaded library, such as "0.1.0". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    VERSION.as_ptr().cast()
}

/// [any] Returns the NVLLM_ABI_VERSION of the loaded library.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_abi_version() -> u32 {
    NVLLM_ABI_VERSION
}

/// [any] Returns a JSON object that describes the build and the machine: "version", "abi_version", "backends", "features"
/// (of the build), "instruction_sets" (those that this processor has and the kernels use, the best one last), "git" (null
/// when unknown), "rustc", "target". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_build_info() -> *const c_char {
    // Written once and kept. No lock: a fork may come here too.
    static INFO: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    guard_value("nvllm_build_info", c"{}".as_ptr(), || {
        let known = INFO.load(Ordering::Acquire);
        if !known.is_null() {
            return known.cast_const();
        }
        let made = CString::new(build_info().to_string()).unwrap_or_default().into_raw();
        match INFO.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made.cast_const(),
            Err(first) => {
                // SAFETY: made above by `into_raw`, and handed to nobody.
                drop(unsafe { CString::from_raw(made) });
                first.cast_const()
            }
        }
    })
}

fn build_info() -> serde_json::Value {
    let features: &[&str] = if cfg!(feature = "test-hooks") { &["test-hooks"] } else { &[] };
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "abi_version": NVLLM_ABI_VERSION,
        "backends": if runner::has_kernels_for_gpus() { &["cpu", "cuda"][..] } else { &["cpu"] },
        "features": features,
        "instruction_sets": Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>(),
        "git": option_env!("NVLLM_BUILD_GIT"),
        "rustc": env!("NVLLM_BUILD_RUSTC"),
        "target": env!("NVLLM_BUILD_TARGET"),
    })
}
