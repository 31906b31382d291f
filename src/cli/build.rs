//! Where the linker and the loader find libnanovllm.so, unless the engine is a part of the program.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_STATIC").is_some() {
        return;
    }
    for variable in ["NANOVLLM_LIB_DIR", "NANOVLLM_INSTALL_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Ok(folder) = env::var("NANOVLLM_LIB_DIR") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    // The libraries of an installation, seen from its bin folder. Windows looks beside the program.
    let is_elf = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| matches!(os.as_str(), "linux" | "android" | "freebsd"));
    if is_elf {
        let installed = env::var("NANOVLLM_INSTALL_LIBDIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=nanovllm=-Wl,-rpath,$ORIGIN/../lib");
        if !["", "lib"].contains(&installed.as_str()) {
            println!("cargo::rustc-link-arg-bin=nanovllm=-Wl,-rpath,$ORIGIN/../{installed}");
        }
    }
}
