//! What a Rust program sees beside plain data: the two sides of an engine, and the log.

mod engine;
mod handle;
pub mod log;

pub use engine::Engine;
pub use handle::{EngineHandle, Message};
