//! libnanovllm: an LLM inference engine in the packaging of a C library.
//!
//! ```text
//! ffi -> engine -> runner -> model -> ops -> backend -> cpu
//! ```
//!
//! Each layer imports only what stands to its right; [`error`], [`batch`], [`limits`], [`contain`] and [`log`] are
//! leaves that all may import.
//! `tests/architecture.rs` holds the import table. C programs see `include/nanovllm.h` alone; the Rust items are public
//! for the tests and benches of this repository and carry no promise of stability.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod backend;
pub mod batch;
pub mod contain;
pub mod engine;
pub mod error;
pub mod ffi;
pub mod limits;
pub mod log;
pub mod model;
pub mod ops;
pub mod runner;
