//! Where do libraries of NVIDIA lie that the loader does not find by their soname?

#[cfg(unix)]
use std::ffi::CString;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Folders that may hold a library besides those that the loader knows: the one that the environment variable `variable` names, and
/// `package` among the packages of each Python.
fn folders(variable: &str, package: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os(variable).map(PathBuf::from).into_iter().collect();
    if cfg!(windows) {
        folders.extend(windows_folders(package));
        return folders;
    }
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

/// Where an installed toolkit and Python's packages have them on Windows.
fn windows_folders(package: &str) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // CUDA 13 has its libraries in bin\x64, CUDA 12 in bin.
    let toolkit = variable("CUDA_PATH").into_iter().flat_map(|path| [path.join("bin").join("x64"), path.join("bin")]);
    // A virtual environment, and the Pythons of this user: %APPDATA%\Python\Python313\site-packages.
    let environment = variable("VIRTUAL_ENV").map(|path| path.join("Lib").join("site-packages"));
    let user = variable("APPDATA").and_then(|path| std::fs::read_dir(path.join("Python")).ok());
    let user = user.into_iter().flatten().flatten().map(|python| python.path().join("site-packages"));
    let packages = environment.into_iter().chain(user).map(|packages| packages.join(package));
    toolkit.chain(packages).collect()
}

/// Opens the library `soname` by its path in the first of the [`folders`] that has it. It is never closed, and libraries that are opened
/// later find it by its soname.
pub fn open(soname: &str, variable: &str, package: &str) -> Option<NonNull<c_void>> {
    folders(variable, package)
        .into_iter()
        .map(|folder| folder.join(soname))
        .filter(|path| path.is_file())
        .find_map(|path| system::open_path(&path))
}

/// Opens the library `soname` where the loader finds it. It is never closed, and its symbols are seen by nobody who does not ask for them.
pub fn open_by_name(soname: &CStr) -> Option<NonNull<c_void>> {
    system::open_name(soname)
}

/// The address of a function of a library that [`open`] or [`open_by_name`] opened.
pub fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    system::symbol(library, name)
}

#[cfg(unix)]
mod system {
    use super::{CStr, CString, NonNull, Path, c_void};

    pub fn open_path(path: &Path) -> Option<NonNull<c_void>> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
        // SAFETY: the path ends with a zero byte. The start-up code of the library is NVIDIA's.
        NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) })
    }

    pub fn open_name(name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the name ends with a zero byte. The start-up code of the library is NVIDIA's.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
    }

    pub fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is open, the name ends with a zero byte.
        NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
    }
}

#[cfg(windows)]
mod system {
    use super::{CStr, NonNull, Path, c_void};
    use std::os::windows::ffi::OsStrExt;
    use std::ptr::null_mut;
    use windows_sys::Win32::System::LibraryLoader::{
        GetProcAddress, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR, LoadLibraryA,
        LoadLibraryExW,
    };

    pub fn open_path(path: &Path) -> Option<NonNull<c_void>> {
        let path: Vec<u16> = std::path::absolute(path).ok()?.as_os_str().encode_wide().chain([0]).collect();
        // Libraries that it needs itself lie beside it.
        let flags = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
        // SAFETY: the path ends with a zero. The start-up code of the library is NVIDIA's.
        NonNull::new(unsafe { LoadLibraryExW(path.as_ptr(), null_mut(), flags) })
    }

    pub fn open_name(name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the name ends with a zero byte. The start-up code of the library is NVIDIA's.
        NonNull::new(unsafe { LoadLibraryA(name.as_ptr().cast()) })
    }

    pub fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is open, the name ends with a zero byte.
        let found = unsafe { GetProcAddress(library.as_ptr(), name.as_ptr().cast()) }?;
        NonNull::new(found as *mut c_void)
    }
}
