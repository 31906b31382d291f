//! Files of a model that the caller gave: named ranges of its memory and of files that it opened.
//!
//! The names are those that the files would have in a model folder, with `/` between folders. Invariant: each name is there once and
//! leads to no other place, and a range lay inside its file when it was given.
#![allow(unsafe_code)]

use super::HostBytes;
#[cfg(windows)]
use super::model_file::refuse_devices;
use super::model_file::{Loading, copied, found_instead_of_a_file, in_large_pages, too_long};
use base::error::{Error, Result};
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Where paths to the files begin, which no file system has to have.
const ROOT: &str = "<files>";

/// The files, by name.
#[derive(Debug, Default)]
pub struct GivenFiles {
    by_name: BTreeMap<String, Given>,
}

/// A file of the caller.
#[derive(Debug)]
pub enum Given {
    /// Bytes of its memory.
    Memory(HostBytes),
    /// A range of a file that it opened.
    Range {
        /// The file, which ranges share.
        file: Arc<File>,
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
    },
}

impl GivenFiles {
    /// The path that stands for `name`, a file or a folder; without a name, for the folder that all files are in.
    pub fn path(name: Option<&str>) -> PathBuf {
        let root = Path::new(ROOT);
        name.map_or(root.into(), |name| root.join(name))
    }

    /// Adds a file.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a name that is there already or that no file in a folder can have;
    /// [`Error::Io`] and [`Error::ModelFile`] for what is no regular file that can be read, and for a range that reaches beyond its end.
    pub fn add(&mut self, name: &str, given: Given) -> Result<()> {
        let refuse = |value, wanted| Err(Error::Option { field: "the name of a file", value, wanted });
        if !is_relative(name) {
            let wanted =
                "a path inside a folder, with / and no backslash between its parts, none of which is empty, . or ..";
            return refuse(format!("{name:?}"), wanted);
        }
        if self.by_name.contains_key(name) {
            return refuse(format!("{name:?} twice"), "different from the others");
        }
        if self.is_folder_name(name) || folders_of(name).any(|folder| self.by_name.contains_key(folder)) {
            return refuse(format!("{name:?}, and of a folder too"), "a file or a folder");
        }
        let given = match given {
            Given::Memory(bytes) => Given::Memory(bytes),
            Given::Range { file, offset, len } => {
                check_range(name, &file, offset, len)?;
                Given::Range { file, offset, len }
            }
        };
        self.by_name.insert(name.to_owned(), given);
        Ok(())
    }

    /// Whether a name begins with this folder.
    fn is_folder_name(&self, folder: &str) -> bool {
        let inside = format!("{folder}/");
        let mut after = self.by_name.range::<str, _>((Bound::Included(&*inside), Bound::Unbounded));
        folder.is_empty() || after.next().is_some_and(|(name, _)| name.starts_with(&inside))
    }

    /// As [`Files::is_folder`](super::Files::is_folder).
    pub(super) fn is_folder(&self, path: &Path) -> Result<bool> {
        if self.find(path).is_some() {
            return Ok(false);
        }
        match name_of(path).is_some_and(|name| self.is_folder_name(&name)) {
            true => Ok(true),
            false => Err(not_given(path)),
        }
    }

    /// As [`Files::exists`](super::Files::exists).
    pub(super) fn exists(&self, path: &Path) -> bool {
        self.find(path).is_some()
    }

    /// As [`Files::entries`](super::Files::entries).
    pub(super) fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let Some(folder) = name_of(folder) else { return Vec::new() };
        let names = self.by_name.keys().filter(|name| folders_of(name).last().unwrap_or("") == folder);
        names.map(|name| GivenFiles::path(Some(name))).collect()
    }

    /// As [`Files::read`](super::Files::read).
    pub(super) fn read(&self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(given) = self.find(path) else { return Ok(None) };
        match given.len() {
            len if len > bytes_max => Err(too_long(path, len, bytes_max)),
            len => given.part(path, 0, len as usize).map(Some),
        }
    }

    /// As [`Files::read_part`](super::Files::read_part).
    pub(super) fn read_part(&self, path: &Path, start: u64, bytes_max: u64) -> Result<(Vec<u8>, u64)> {
        let given = self.known(path)?;
        let room = bytes_max.min(given.len().saturating_sub(start)) as usize;
        Ok((given.part(path, start.min(given.len()), room)?, given.len()))
    }

    /// As [`Files::load`](super::Files::load).
    pub(super) fn load(&self, path: &Path, loading: Loading, free_bytes: u64) -> Result<HostBytes> {
        let given = self.known(path)?;
        match loading {
            Loading::Map => given.bytes(path),
            Loading::Read => copied(path, given.len(), free_bytes, |copy| given.read(0, copy)),
        }
    }

    fn find(&self, path: &Path) -> Option<&Given> {
        self.by_name.get(&name_of(path)?)
    }

    fn known(&self, path: &Path) -> Result<&Given> {
        self.find(path).ok_or_else(|| not_given(path))
    }
}

impl Given {
    fn len(&self) -> u64 {
        match self {
            Given::Memory(bytes) => bytes.len() as u64,
            Given::Range { len, .. } => *len,
        }
    }

    /// All bytes, where they lie.
    fn bytes(&self, path: &Path) -> Result<HostBytes> {
        match self {
            Given::Memory(bytes) => Ok(bytes.clone()),
            Given::Range { file, offset, len } => {
                let map = map(file, *offset, *len as usize);
                let map = map.map_err(|source| Error::Io { path: path.into(), source })?;
                in_large_pages(&map);
                Ok(HostBytes::mapped(Arc::new(map), 0..*len as usize))
            }
        }
    }

    /// `len` bytes from `start`, which are there.
    fn part(&self, path: &Path, start: u64, len: usize) -> Result<Vec<u8>> {
        let mut part = Vec::new();
        let refused = |_| Error::Io { path: path.into(), source: ErrorKind::OutOfMemory.into() };
        part.try_reserve_exact(len).map_err(refused)?;
        part.resize(len, 0);
        let read = self.read(start, &mut part);
        read.map_err(|source| Error::Io { path: path.into(), source })?;
        Ok(part)
    }

    fn read(&self, start: u64, to: &mut [u8]) -> io::Result<()> {
        match self {
            Given::Memory(bytes) => to.copy_from_slice(&bytes[start as usize..][..to.len()]),
            Given::Range { file, offset, .. } => read_at(file, offset + start, to)?,
        }
        Ok(())
    }
}

/// Reads without moving the position of the file, which belongs to the caller. A file that became shorter is an error.
#[cfg(unix)]
fn read_at(file: &File, offset: u64, to: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

/// A read on Windows moves the position, and one of a handle that was opened for overlapped calls does not end. A mapping does neither,
/// and Windows does not truncate a file that is mapped.
#[cfg(not(unix))]
fn read_at(file: &File, offset: u64, to: &mut [u8]) -> io::Result<()> {
    to.copy_from_slice(&map(file, offset, to.len())?[..to.len()]);
    Ok(())
}

fn map(file: &File, offset: u64, len: usize) -> io::Result<Mmap> {
    if len == 0 {
        return MmapMut::map_anon(0)?.make_read_only();
    }
    // SAFETY: the mapping is read-only, so that this process cannot write it. Another program that writes into the file changes weights, and one that truncates it
    // ends the process, as the header says of NVLLM_LOAD_MAP.
    unsafe { MmapOptions::new().offset(offset).len(len).map(file) }
}

/// Refuses a file that cannot be read, that is no regular one, or that ends before the range does.
fn check_range(name: &str, file: &File, offset: u64, len: u64) -> Result<()> {
    let path = GivenFiles::path(Some(name));
    let refused = |source| Error::Io { path: path.clone(), source };
    let wrong = |reason: String| Err(Error::ModelFile { path: path.clone(), reason });
    #[cfg(windows)]
    refuse_devices(&path, file)?;
    let facts = file.metadata().map_err(refused)?;
    if let Some(found) = found_instead_of_a_file(facts.file_type()) {
        return wrong(format!("is given by a descriptor of {found}, but must be a range of a regular file"));
    }
    if let Some(flaw) = flaw(file).map_err(refused)? {
        return wrong(format!(
            "is given by a descriptor {flaw}, but must be a range of a file that is open for reading"
        ));
    }
    match offset.checked_add(len) {
        Some(end) if end <= facts.len() => Ok(()),
        _ => wrong(format!(
            "has {len} bytes at offset {offset}, which reach beyond the end of its file of {} bytes",
            facts.len()
        )),
    }
}

/// A file of its own for the open file of the caller: closing either leaves the other open.
///
/// # Safety
///
/// The descriptor belongs to the caller for the time of the call. Unix refuses one that is not open; on Windows it must be an open handle.
///
/// # Errors
///
/// Those of the system.
#[cfg(unix)]
pub unsafe fn duplicate(descriptor: i64) -> io::Result<File> {
    use std::os::fd::FromRawFd;
    let descriptor = i32::try_from(descriptor).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the call takes any number, and makes a descriptor that nobody else has, above those of the standard streams.
    match unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: open, and owned by nobody yet.
        own => Ok(unsafe { File::from_raw_fd(own) }),
    }
}

/// As on Unix, of a handle.
///
/// # Safety
///
/// As there.
///
/// # Errors
///
/// As there.
#[cfg(windows)]
pub unsafe fn duplicate(descriptor: i64) -> io::Result<File> {
    use std::os::windows::io::BorrowedHandle;
    let handle = descriptor as isize as *mut std::ffi::c_void;
    if handle.is_null() || descriptor == -1 {
        return Err(io::Error::from(ErrorKind::InvalidInput));
    }
    // SAFETY: an open handle by the caller's promise, neither null nor INVALID_HANDLE_VALUE.
    Ok(unsafe { BorrowedHandle::borrow_raw(handle) }.try_clone_to_owned()?.into())
}

/// Why the file of a descriptor cannot be read, if it cannot.
#[cfg(unix)]
fn flaw(file: &File) -> io::Result<Option<&'static str>> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while the file is borrowed, and F_GETFL takes no argument.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    Ok(match flags {
        -1 => return Err(io::Error::last_os_error()),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        flags if flags & libc::O_PATH != 0 => Some("that was opened with O_PATH"),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        flags if flags & libc::O_DIRECT != 0 => Some("with O_DIRECT, which reads only whole blocks"),
        flags if flags & libc::O_ACCMODE == libc::O_WRONLY => Some("that is not open for reading"),
        _ => None,
    })
}

/// A handle that must not be read is one that cannot be mapped either, and Windows says so then.
#[cfg(not(unix))]
fn flaw(_: &File) -> io::Result<Option<&'static str>> {
    Ok(None)
}

/// Whether a name is a path that stays in its folder.
fn is_relative(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\\');
    name.split('/').all(is_part)
}

/// The folders that a file is in, the outermost first.
fn folders_of(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

fn not_given(path: &Path) -> Error {
    Error::ModelFile { path: path.into(), reason: "is not among the files that were given".into() }
}

/// The name that a path of [`GivenFiles::path`] stands for: its parts, with `/` between them. Empty for the folder of all files.
fn name_of(path: &Path) -> Option<String> {
    let part = |component| match component {
        Component::Normal(part) => part.to_str(),
        _ => None,
    };
    let parts: Option<Vec<&str>> = path.strip_prefix(ROOT).ok()?.components().map(part).collect();
    parts.map(|parts| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &[u8]) -> Given {
        Given::Memory(HostBytes::owned(bytes.into()))
    }

    fn files(names: &[&str]) -> GivenFiles {
        let mut files = GivenFiles::default();
        for name in names {
            files.add(name, memory(name.as_bytes())).unwrap();
        }
        files
    }

    /// A file with ten digits.
    fn digits(name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("nanovllm-given-{name}-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Arc::new(file)
    }

    fn at(name: &str) -> PathBuf {
        GivenFiles::path(Some(name))
    }

    #[test]
    fn names_with_slashes_are_folders() {
        let files = files(&["a", "a-b", "b/c", "b/d/e", "b-"]);
        for (path, is_folder) in [("a", false), ("b", true), ("b/d", true), ("b/c", false)] {
            assert_eq!(files.is_folder(&at(path)).unwrap(), is_folder, "{path}");
        }
        assert!(files.is_folder(&GivenFiles::path(None)).unwrap());
        for missing in ["c", "b/", "b/d/f", "../a", "A"] {
            let found = files.is_folder(&at(missing));
            assert_eq!(found.is_ok(), missing == "b/", "{missing}");
        }
        assert!(files.is_folder(Path::new("a")).is_err(), "a path of the file system");
        assert_eq!(files.entries(&GivenFiles::path(None)), [at("a"), at("a-b"), at("b-")]);
        assert_eq!(files.entries(&at("b")), [at("b/c")]);
        assert!(files.entries(&at("nothing")).is_empty());
    }

    #[test]
    fn a_name_that_is_there_or_leads_elsewhere_is_refused() {
        let mut files = files(&["a", "b/c"]);
        for name in ["", "/", "/a", "a/", "x//y", ".", "x/..", "x\\y", "a", "b/c", "b", "a/x", "b/c/d"] {
            assert!(matches!(files.add(name, memory(b"")), Err(Error::Option { .. })), "{name}");
        }
        files.add("b/d", memory(b"")).unwrap();
    }

    #[test]
    fn a_range_is_read_like_a_file() {
        let mut files = GivenFiles::default();
        files.add("range", Given::Range { file: digits("range"), offset: 3, len: 5 }).unwrap();
        files.add("memory", memory(b"34567")).unwrap();
        for name in ["range", "memory"] {
            let path = at(name);
            assert_eq!(files.read(&path, 5).unwrap().unwrap(), b"34567", "{name}");
            let refused = files.read(&path, 4).unwrap_err().to_string();
            assert!(refused.ends_with("has 5 bytes, but at most 4 are read"), "{refused}");
            assert_eq!(files.read_part(&path, 1, 3).unwrap(), (b"456".to_vec(), 5));
            assert_eq!(files.read_part(&path, 4, 3).unwrap(), (b"7".to_vec(), 5));
            assert_eq!(files.read_part(&path, 9, 3).unwrap(), (Vec::new(), 5));
            assert_eq!(&*files.load(&path, Loading::Map, 0).unwrap(), b"34567");
            assert_eq!(&*files.load(&path, Loading::Read, 5).unwrap(), b"34567");
            assert!(matches!(files.load(&path, Loading::Read, 4), Err(Error::OutOfMemory { bytes: 5, .. })));
        }
        assert_eq!(files.read(&at("nothing"), 4).unwrap(), None);
        assert!(!files.exists(&at("nothing")) && files.exists(&at("range")));
    }

    #[test]
    fn an_empty_range_is_an_empty_file() {
        let mut files = GivenFiles::default();
        files.add("end", Given::Range { file: digits("end"), offset: 10, len: 0 }).unwrap();
        for loading in [Loading::Map, Loading::Read] {
            assert!(files.load(&at("end"), loading, 0).unwrap().is_empty());
        }
        assert_eq!(files.read(&at("end"), 0).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn a_range_that_leaves_its_file_is_refused() {
        for (offset, len) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let refused = GivenFiles::default().add("x", Given::Range { file: digits("outside"), offset, len });
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("beyond the end of its file of 10 bytes"), "{refused}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_became_shorter_is_an_error_and_no_signal() {
        let mut files = GivenFiles::default();
        let path = std::env::temp_dir().join(format!("nanovllm-given-shorter-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        files.add("x", Given::Range { file: Arc::new(File::open(&path).unwrap()), offset: 2, len: 8 }).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(files.read(&at("x"), 100), Err(Error::Io { .. })));
        assert!(matches!(files.load(&at("x"), Loading::Read, 100), Err(Error::Io { .. })));
    }
}
