//! Where do libraries of NVIDIA lie that the loader does not find by their soname?

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;

/// Folders that may hold a library besides those that the loader knows: the one that the environment variable `variable` names, and
/// `package` among the packages of each Python.
fn folders(variable: &str, package: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os(variable).map(PathBuf::from).into_iter().collect();
    let mut roots = Vec::new();
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        roots.push(PathBuf::from(environment).join("lib"));
    }
    if let Some(home) = std::env::var_os("HOME") {
        roots.push(PathBuf::from(home).join(".local/lib"));
    }
    roots.extend(["/usr/local/lib", "/usr/lib"].map(PathBuf::from));
    for root in roots {
        for python in std::fs::read_dir(root).into_iter().flatten().flatten() {
            for packages in ["site-packages", "dist-packages"] {
                folders.push(python.path().join(packages).join(package));
            }
        }
    }
    folders
}

/// Opens the library `soname` by its path in the first of the [`folders`] that has it. It is never closed, and libraries that are opened
/// later find it by its soname.
pub fn open(soname: &str, variable: &str, package: &str) -> Option<NonNull<c_void>> {
    folders(variable, package).into_iter().map(|folder| folder.join(soname)).filter(|path| path.is_file()).find_map(
        |path| {
            let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
            // SAFETY: the path ends with a zero byte. The start-up code of the library is NVIDIA's.
            NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) })
        },
    )
}
