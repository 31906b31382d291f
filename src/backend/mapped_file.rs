//! Files mapped into memory, to be read where the system's page cache holds them.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Maps a file, read-only.
pub fn map_file(path: &Path) -> Result<Arc<Mmap>> {
    let refused = |source| Error::Io { path: path.into(), source };
    let file = File::open(path).map_err(refused)?;
    // SAFETY: the mapping is private and read-only, so this process cannot write it. Another program that writes into a
    // model file in use changes weights, and one that truncates it kills the process, as with every mapped library;
    // whoever replaces a model writes a new file and renames it.
    let map = unsafe { Mmap::map(&file) }.map_err(refused)?;
    Ok(Arc::new(map))
}
