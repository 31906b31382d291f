//! Where do libraries of NVIDIA lie that the loader does not find by their soname?

use base::log::{Level, log};
#[cfg(unix)]
use std::ffi::CString;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::Read;
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

/// Opens the library `soname` by its path in the first of the [`folders`] that has it for this processor. It is never closed, and libraries
/// that are opened later find it by its soname. The log says why a file is not used.
pub fn open(soname: &str, variable: &str, package: &str) -> Option<NonNull<c_void>> {
    let paths = folders(variable, package).into_iter().map(|folder| folder.join(soname));
    paths.filter(|path| path.is_file()).find_map(|path| match other_processor(&path) {
        Some(reason) => {
            log(Level::Warn, format_args!("{} is not used: {reason}", path.display()));
            None
        }
        None => system::open_path(&path).or_else(|| {
            log(Level::Warn, format_args!("{} is not used: {}", path.display(), system::last_error()));
            None
        }),
    })
}

/// Why the library at `path` is not one for this processor, which loaders report as a file that is missing or damaged.
fn other_processor(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut head).ok()?;
    let word = |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    // The machines of ELF and of Windows' format.
    let (format, found, wanted) = if head.starts_with(b"\x7fELF") {
        ("ELF", word(18)?, if cfg!(target_arch = "aarch64") { 183 } else { 62 })
    } else if head.starts_with(b"MZ") {
        let header = usize::from(word(0x3c)?);
        ("PE", word(header + 4)?, if cfg!(target_arch = "aarch64") { 0xaa64 } else { 0x8664 })
    } else {
        return Some("it is no library".into());
    };
    let name = match found {
        62 | 0x8664 => "x86-64",
        183 | 0xaa64 => "ARM64",
        3 | 0x14c => "32-bit x86",
        _ => "another processor",
    };
    (found != wanted).then(|| {
        format!("it is for {name} ({format} machine {found}), and this library for {}", std::env::consts::ARCH)
    })
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

    /// Why the last call of this thread failed.
    pub fn last_error() -> String {
        // SAFETY: the text belongs to this thread until its next call.
        unsafe {
            let text = libc::dlerror();
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
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

    /// Why the last call of this thread failed.
    pub fn last_error() -> String {
        std::io::Error::last_os_error().to_string()
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

#[cfg(test)]
mod tests {
    use super::other_processor;

    #[test]
    fn a_library_for_another_processor_is_named_as_such() {
        let path = std::env::temp_dir().join(format!("nanovllm-library-{}", std::process::id()));
        let found = |head: &[u8]| {
            std::fs::write(&path, head).unwrap();
            other_processor(&path)
        };
        let elf = |machine: u8| [b"\x7fELF".as_slice(), &[0; 14], &[machine, 0], &[0; 44]].concat();
        let windows = |machine: [u8; 2]| [b"MZ".as_slice(), &[0; 58], &[64, 0, 0, 0], b"PE\0\0", &machine].concat();
        let (own, other) = if cfg!(target_arch = "aarch64") { (183, 62) } else { (62, 183) };
        assert_eq!(found(&elf(own)), None);
        assert!(found(&elf(other)).unwrap().contains(&format!("(ELF machine {other})")));
        assert!(found(&elf(3)).unwrap().starts_with("it is for 32-bit x86 (ELF machine 3), and this library for "));
        assert!(found(&windows([0x4c, 1])).unwrap().starts_with("it is for 32-bit x86 (PE machine 332)"));
        assert_eq!(found(b"\x7fELF"), None, "a damaged one is left to the loader");
        assert_eq!(found(b"libc.so.6").unwrap(), "it is no library");
        std::fs::remove_file(&path).unwrap();
    }
}
