//! The C ABI: the only `extern "C"` functions of the library.
//!
//! One file a section of `include/nanovllm.h`, in the header's order: [`status`], [`version`], [`limits`], [`logging`], [`engine`],
//! [`requests`], [`stepping`], [`generate`], [`state`], [`text`], [`stats`]. Their doc comments are the header's, so they speak to
//! C programmers. The rest is what every call goes through: `guard` (panics, errors, log), `handle` (busy, poisoned,
//! forked, freed), `memory` (what the caller owns) and `refusal` (from error to status).
//!
//! Nothing here decides anything about a request: a function turns arguments into Rust values, makes one call, and
//! turns the answer back.

pub mod engine;
pub mod generate;
mod guard;
mod handle;
pub mod limits;
pub mod logging;
mod memory;
mod refusal;
pub mod requests;
pub mod state;
pub mod stats;
pub mod status;
pub mod stepping;
pub mod text;
pub mod version;
