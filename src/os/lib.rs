//! What the operating system gives: locks, threads, processes, sockets, files and memory.
//!
//! Nothing here knows what a model is. What may block says so, and what a forked child may use says that too.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod confined_folder;
mod files;
mod given_files;
mod host_bytes;
mod host_memory;
pub mod lock;
mod model_file;
pub mod process;
pub mod socket;
pub mod thread;

pub use confined_folder::ConfinedFolder;
pub use files::Files;
pub use given_files::{Given, GivenFiles, duplicate};
pub use host_bytes::HostBytes;
pub use host_memory::free_bytes;
pub use model_file::Loading;
