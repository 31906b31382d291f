//! The C ABI: the only `extern "C"` functions of the library.
//!
//! One file per section of `include/nanovllm.h`, in the header's order: [`status`], [`version`], [`limits`], [`logging`],
//! [`engine`], [`model_files`], [`quantize`], [`explain`], [`requests`], [`chat`], [`stepping`], [`generate`], [`score`], [`state`], [`text`], [`answers`], [`stats`]. Their doc comments are those of the header,
//! so they address C programmers. Every call goes through the rest: `engine_options`, `request_options` and `model_info` (conversions), `guard` (panics, errors, log), `handle` (busy, poisoned,
//! forked, freed), `memory` (what the caller owns) and `refusal` (from error to status).
//!
//! Nothing here decides anything about a request: a function converts its arguments to Rust values, makes one call, and
//! converts the result back.
//!
//! The structs are the one declaration of every option: the header, the reference, the structs of the C++ and Go bindings and the
//! layout test are generated from them (`scripts/header.sh`). Their comments follow two rules that the generators read: that of a
//! flag begins with "0 or 1:", and that of a field with the values of an enumeration with "NVLLM_NAME_*".
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod answers;
pub mod chat;
pub mod engine;
mod engine_options;
pub mod explain;
pub mod generate;
mod guard;
mod handle;
pub mod limits;
pub mod logging;
mod memory;
pub mod model_files;
mod model_info;
pub mod quantize;
mod refusal;
mod request_options;
pub mod requests;
pub mod score;
pub mod state;
pub mod stats;
pub mod status;
pub mod stepping;
pub mod text;
pub mod version;
