//! Files of a model folder, which may hold anything: only regular files are opened, and none is read without a limit.
//!
//! What a path names can change between two calls, so the file that was opened is asked what it is. It is opened in a way
//! that never waits: a FIFO without a writer would block an ordinary open for ever.
#![allow(unsafe_code)]

use super::HostBytes;
use super::confined_folder::ConfinedFolder;
use base::error::{Error, Result};
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::Mmap;
use std::fs::{File, FileType, OpenOptions, metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// How the weights of a model come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// The files are mapped: their pages are shared with the system's page cache. A file that becomes shorter while it is
    /// mapped kills the process with SIGBUS. Windows refuses to write, shorten or delete a file while it is mapped.
    Map,
    /// The files are copied into memory of the process, which later changes to them cannot reach.
    Read,
}

/// The bytes of a file, or `None` where there is none.
///
/// # Errors
///
/// [`Error::Io`] when it cannot be read, [`Error::ModelFile`] when it is no regular file, has more than `bytes_max` bytes, or is not
/// `within` the folder that is given.
pub fn read_file(path: &Path, within: Option<&ConfinedFolder>, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let (file, len) = match open(path, within) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let refused = |source| Error::Io { path: path.into(), source };
    if len > bytes_max {
        return Err(too_long(path, len, bytes_max));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize + 1).map_err(|_| refused(ErrorKind::OutOfMemory.into()))?;
    // A file may grow while it is read, and those of /proc say that they have no bytes.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(refused)?;
    match bytes.len() as u64 {
        len if len > bytes_max => Err(too_long(path, len, bytes_max)),
        _ => Ok(Some(bytes)),
    }
}

/// At most `bytes_max` bytes of a file from byte `start`, fewer where it ends before, and the length of the file.
///
/// # Errors
///
/// [`Error::Io`] and [`Error::ModelFile`], as [`read_file`].
pub fn read_part(path: &Path, within: Option<&ConfinedFolder>, start: u64, bytes_max: u64) -> Result<(Vec<u8>, u64)> {
    let (mut file, len) = open(path, within)?;
    let refused = |source| Error::Io { path: path.into(), source };
    let room = bytes_max.min(len.saturating_sub(start)) as usize;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(room).map_err(|_| refused(ErrorKind::OutOfMemory.into()))?;
    file.seek(SeekFrom::Start(start)).map_err(refused)?;
    file.take(room as u64).read_to_end(&mut bytes).map_err(refused)?;
    Ok((bytes, len))
}

/// All bytes of a file: mapped read-only, or copied into memory of this process if they are at most `free_bytes`.
///
/// # Errors
///
/// [`Error::Io`] and [`Error::ModelFile`], as [`read_file`]; [`Error::OutOfMemory`] when a copy does not fit.
pub fn load_file(path: &Path, within: Option<&ConfinedFolder>, loading: Loading, free_bytes: u64) -> Result<HostBytes> {
    let (mut file, len) = open(path, within)?;
    match loading {
        Loading::Map => {
            // SAFETY: the mapping is read-only, so this process cannot write it. Another program that writes into a model file in use
            // changes weights, and one that truncates it kills the process, as the header says of NVLLM_LOAD_MAP; whoever replaces a
            // model writes a new file and renames it, or asks for NVLLM_LOAD_READ.
            let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::Io { path: path.into(), source })?;
            in_large_pages(&map);
            let all = 0..map.len();
            Ok(HostBytes::mapped(Arc::new(map), all))
        }
        Loading::Read => copied(path, len, free_bytes, |copy| file.read_exact(copy)),
    }
}

/// Asks the system to keep what it reads of a mapped file in large pages: a CPU that reads weights from end to end waits for the addresses of small
/// ones. Pages that are in the page cache already stay as they are. A system without large pages for files changes nothing.
pub(super) fn in_large_pages(map: &Mmap) {
    #[cfg(target_os = "linux")]
    let _ = map.advise(Advice::HugePage);
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}

/// Memory of this process with the `len` bytes of a file, if they are at most `free_bytes`.
pub(super) fn copied(
    path: &Path,
    len: u64,
    free_bytes: u64,
    read: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> Result<HostBytes> {
    const WHAT: &str = "a file of weights, read as NVLLM_LOAD_READ asks,";
    if len > free_bytes {
        return Err(Error::OutOfMemory { what: WHAT, bytes: len, knob: "load_mode" });
    }
    let refused = |source| Error::Io { path: path.into(), source };
    HostBytes::written(len as usize, WHAT, "load_mode", |copy| read(copy).map_err(refused))
}

/// A file has more bytes than are read.
pub(super) fn too_long(path: &Path, len: u64, bytes_max: u64) -> Error {
    let reason = format!("has {len} bytes, but at most {bytes_max} are read");
    Error::ModelFile { path: path.into(), reason }
}

/// Opens a regular file, which must lie `within` a folder if one is given. The answer has its length at this moment.
fn open(path: &Path, within: Option<&ConfinedFolder>) -> Result<(File, u64)> {
    if let Some(folder) = within {
        return folder.open(path);
    }
    let refused = |source| Error::Io { path: path.into(), source };
    // Opening a device can have effects, and opening a FIFO wakes its writer, so what is none of a model is not opened.
    refuse_others(path, metadata(path).map_err(refused)?.file_type())?;
    checked(path, open_any(path).map_err(refused)?)
}

/// Opens whatever there is for reading, without waiting.
pub(super) fn open_any(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    options.open(path)
}

/// An open file and its length, if it is a regular one.
pub(super) fn checked(path: &Path, file: File) -> Result<(File, u64)> {
    let facts = file.metadata().map_err(|source| Error::Io { path: path.into(), source })?;
    refuse_others(path, facts.file_type())?;
    #[cfg(windows)]
    refuse_devices(path, &file)?;
    Ok((file, facts.len()))
}

/// Refuses names such as `CON`, which Windows reports as files.
#[cfg(windows)]
pub(super) fn refuse_devices(path: &Path, file: &File) -> Result<()> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, GetFileType};
    // SAFETY: the handle is open while the file is borrowed.
    match unsafe { GetFileType(file.as_raw_handle()) } {
        FILE_TYPE_DISK => Ok(()),
        _ => Err(not_regular(path, "a device")),
    }
}

/// Refuses what is no regular file.
pub(super) fn refuse_others(path: &Path, kind: FileType) -> Result<()> {
    if kind.is_dir() {
        #[cfg(unix)]
        let source = io::Error::from_raw_os_error(libc::EISDIR);
        #[cfg(not(unix))]
        let source = io::Error::from(ErrorKind::IsADirectory);
        return Err(Error::Io { path: path.into(), source });
    }
    found_instead_of_a_file(kind).map_or(Ok(()), |found| Err(not_regular(path, found)))
}

/// What there is, if it is no regular file.
pub(super) fn found_instead_of_a_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        #[cfg(unix)]
        kind if kind.is_fifo() => Some("a FIFO"),
        #[cfg(unix)]
        kind if kind.is_socket() => Some("a socket"),
        #[cfg(unix)]
        kind if kind.is_block_device() || kind.is_char_device() => Some("a device"),
        kind if kind.is_symlink() => Some("a symbolic link"),
        _ => Some("something other than a file"),
    }
}

fn not_regular(path: &Path, found: &str) -> Error {
    Error::ModelFile { path: path.into(), reason: format!("is {found}, but must be a regular file") }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use std::ffi::CString;
    #[cfg(unix)]
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("nanovllm-files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn reason<T>(refused: Result<T>) -> String {
        match refused {
            Err(Error::ModelFile { reason, .. }) => reason,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("opened"),
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = Folder::new("limit");
        let path = folder.write("text", b"seven b");
        assert_eq!(read_file(&path, None, 7).unwrap().as_deref(), Some(&b"seven b"[..]));
        assert_eq!(reason(read_file(&path, None, 6)), "has 7 bytes, but at most 6 are read");
        assert_eq!(read_file(&folder.0.join("nothing"), None, 6).unwrap(), None);
        assert_eq!(read_file(&folder.write("empty", b""), None, 0).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn a_part_of_a_file_ends_where_the_file_ends() {
        let folder = Folder::new("part");
        let path = folder.write("text", b"seven b");
        let part = |start, most| read_part(&path, None, start, most).unwrap();
        assert_eq!(part(0, 3), (b"sev".to_vec(), 7));
        assert_eq!(part(5, 3), (b" b".to_vec(), 7));
        assert_eq!(part(9, 3), (Vec::new(), 7));
        assert!(matches!(read_part(&folder.0.join("nothing"), None, 0, 1), Err(Error::Io { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_hides_its_length_is_cut_off_too() {
        let endless = Path::new("/proc/self/maps");
        assert_eq!(metadata(endless).unwrap().len(), 0);
        assert!(reason(read_file(endless, None, 10)).contains("at most 10 are read"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = Folder::new("kinds");
        let fifo = folder.0.join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = folder.0.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let to_zero = folder.0.join("to-zero");
        std::os::unix::fs::symlink("/dev/zero", &to_zero).unwrap();
        for (path, kind) in [(&fifo, "a FIFO"), (&socket, "a socket"), (&to_zero, "a device")] {
            let wanted = format!("is {kind}, but must be a regular file");
            assert_eq!(reason(read_file(path, None, 100)), wanted);
            assert_eq!(reason(load_file(path, None, Loading::Map, 100)), wanted);
            assert_eq!(reason(load_file(path, None, Loading::Read, 100)), wanted);
        }
        let round = folder.0.join("round");
        std::os::unix::fs::symlink(&round, &round).unwrap();
        for path in [&folder.0, &round] {
            assert!(matches!(read_file(path, None, 100), Err(Error::Io { .. })), "{}", path.display());
            assert!(matches!(load_file(path, None, Loading::Map, 100), Err(Error::Io { .. })), "{}", path.display());
        }
    }

    #[test]
    fn a_copy_does_not_follow_its_file() {
        let folder = Folder::new("copy");
        let path = folder.write("weights", &[7; 10_000]);
        let copy = load_file(&path, None, Loading::Read, 10_000).unwrap();
        assert!(matches!(load_file(&path, None, Loading::Read, 9_999), Err(Error::OutOfMemory { bytes: 10_000, .. })));
        File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
        assert!(copy.iter().all(|&byte| byte == 7) && copy.len() == 10_000);
        assert!(load_file(&folder.write("empty", b""), None, Loading::Read, 0).unwrap().is_empty());
    }
}
