//! libnanovllm for Rust programs.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
