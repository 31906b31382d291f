//! The compiled form of each `*.cu` of this folder.
//!
//! A release build embeds them. A build without nvcc, and every development build, reads them from a folder when a device is opened.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes at an address that the driver can read words from.
#[repr(C, align(16))]
struct Aligned<B: ?Sized>(B);

include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));

/// Whether this build has kernels, or reads them at run time.
pub fn are_built() -> bool {
    !EMBEDDED.is_empty() || folder().is_some()
}

/// The fatbin of `<name>.cu`, aligned for the driver. `None`: this build has none of that name, or there is none in its folder.
pub fn fatbin(name: &'static str) -> Option<&'static [u8]> {
    match folder() {
        None => EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, fatbin)| &fatbin.0),
        Some(folder) => read(&folder, name),
    }
}

/// The folder from which fatbins are read: that of NVLLM_KERNELS_DIR, or else the one that was named at build time. `None` in a build that
/// embeds them.
pub fn folder() -> Option<PathBuf> {
    let given = || env::var_os("NVLLM_KERNELS_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if EMBEDDED.is_empty() { given().or_else(|| FOLDER.map(PathBuf::from)) } else { None }
}

/// Reads a file once, and keeps it for the rest of the process, as a driver may read it at any time.
fn read(folder: &Path, name: &'static str) -> Option<&'static [u8]> {
    const ALIGN: usize = align_of::<Aligned<[u8; 0]>>();
    static READ: Mutex<Vec<(&str, &[u8])>> = Mutex::new(Vec::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, fatbin)) = read.iter().find(|(known, _)| *known == name) {
        return Some(fatbin);
    }
    // Room to move it to an address that is aligned.
    let mut bytes = vec![0; ALIGN];
    let length = File::open(folder.join(name).with_extension("fatbin")).ok()?.read_to_end(&mut bytes).ok()?;
    let begin = bytes.as_ptr().align_offset(ALIGN);
    bytes.copy_within(ALIGN..ALIGN + length, begin);
    let fatbin = &bytes.leak()[begin..begin + length];
    read.push((name, fatbin));
    Some(fatbin)
}
