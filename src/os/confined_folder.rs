//! Where does a name in a folder lead, and may what is there be read?
//!
//! Whoever copies a folder copies what its links name, which can be `/proc/self/environ` or the keys of a user. Policy: a file is read if it
//! lies in the folder, below it, or in `blobs` of the download cache of which the folder is a snapshot
//! (`snapshots/REVISION/FILE -> ../../blobs/HASH`). Links to links count by where the last of them leads.
//!
//! Invariant: what is judged is the file that is read. On Unix a path without links is opened folder by folder, following none, from a folder
//! that is held open; on Windows the open file is asked where it lies. A link that changes in between opens nothing else.
#![allow(unsafe_code)]

#[cfg(windows)]
use super::model_file::open_any;
use super::model_file::{checked, refuse_others};
use base::error::{Error, Result};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// A folder that no file is read out of.
#[derive(Debug)]
pub struct ConfinedFolder {
    /// As the caller spells it.
    path: PathBuf,
    folder: AllowedFolder,
    /// `blobs` of a download cache.
    blobs: Option<AllowedFolder>,
}

/// A folder in which files may lie.
#[derive(Debug)]
struct AllowedFolder {
    /// Without links.
    path: PathBuf,
    /// Whether files in folders below it count, too.
    is_deep: bool,
    /// Held open, so that its path is not followed again.
    #[cfg(unix)]
    folder: File,
}

impl ConfinedFolder {
    /// The folder at `path`, which may be a link to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where there is no folder, or where it cannot be read.
    pub fn new(path: &Path) -> Result<ConfinedFolder> {
        let refused = |source| Error::Io { path: path.into(), source };
        let folder = AllowedFolder::new(fs::canonicalize(path).map_err(refused)?, true).map_err(refused)?;
        let mut above = folder.path.ancestors().skip(1);
        let snapshots = above.find(|folder| folder.file_name().is_some_and(|name| name == "snapshots"));
        let blobs = snapshots.map(|snapshots| snapshots.with_file_name("blobs"));
        // One that is a link itself could lead anywhere.
        let blobs = blobs.filter(|blobs| fs::symlink_metadata(blobs).is_ok_and(|facts| facts.is_dir()));
        let blobs = blobs.map(|blobs| AllowedFolder::new(blobs, false)).transpose().map_err(refused)?;
        Ok(ConfinedFolder { path: path.into(), folder, blobs })
    }

    /// Where it is, as the caller spells it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path without links is that of the folder, or of something below it, which need not exist.
    pub fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.folder.path) || path.ancestors().any(|folder| self.folder.is_at(folder))
    }

    /// What `path`, a name in the folder, leads to: a file or a folder.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where it leads to nothing, [`Error::ModelFile`] where it leads out of the folder, or to something that is neither.
    pub fn facts(&self, path: &Path) -> Result<Metadata> {
        let (_, real) = self.place_of(path)?;
        let facts = fs::symlink_metadata(real).map_err(|source| Error::Io { path: path.into(), source })?;
        match facts.is_dir() {
            true => Ok(facts),
            false => refuse_others(path, facts.file_type()).map(|()| facts),
        }
    }

    /// Opens the file that `path`, a name in the folder, leads to. The answer has its length at this moment.
    ///
    /// # Errors
    ///
    /// Those of [`ConfinedFolder::facts`], and [`Error::Io`] for a folder.
    pub fn open(&self, path: &Path) -> Result<(File, u64)> {
        let (place, real) = self.place_of(path)?;
        let refused = |source| Error::Io { path: path.into(), source };
        // Opening a device can have effects.
        refuse_others(path, fs::symlink_metadata(&real).map_err(refused)?.file_type())?;
        let file = place.open(&real).map_err(refused)?;
        match path_of(&file).map_err(refused)? {
            Some(real) if !place.has(&real) => Err(leads_out(path, &real)),
            _ => checked(path, file),
        }
    }

    /// Where `path` leads, without links, and in which of the folders that is.
    fn place_of(&self, path: &Path) -> Result<(&AllowedFolder, PathBuf)> {
        let real = fs::canonicalize(path).map_err(|source| Error::Io { path: path.into(), source })?;
        match [&self.folder].into_iter().chain(&self.blobs).find(|place| place.has(&real)) {
            Some(place) => Ok((place, real)),
            None => Err(leads_out(path, &real)),
        }
    }
}

fn leads_out(path: &Path, real: &Path) -> Error {
    let reason = format!(
        "leads out of its folder, to {}, and only links into blobs/ of a download cache may: put a copy of the file in its place",
        real.display()
    );
    Error::ModelFile { path: path.into(), reason }
}

#[cfg(unix)]
impl AllowedFolder {
    fn new(path: PathBuf, is_deep: bool) -> io::Result<AllowedFolder> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let folder = fs::OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        Ok(AllowedFolder { path, is_deep, folder })
    }

    /// Whether this is the folder at a path: it may be mounted twice, or have a name that knows no capitals.
    fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let number = |facts: Metadata| (facts.dev(), facts.ino());
        match (self.folder.metadata(), fs::symlink_metadata(path)) {
            (Ok(own), Ok(other)) => number(own) == number(other),
            _ => false,
        }
    }

    /// Opens a path without links that [`AllowedFolder::has`], and follows none that it has by now.
    fn open(&self, real: &Path) -> io::Result<File> {
        let below = real.strip_prefix(&self.path).map_err(|_| io::ErrorKind::NotFound)?;
        let (Some(name), Some(folders)) = (below.file_name(), below.parent()) else {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        };
        let mut folder = None;
        for name in folders {
            folder = Some(open_at(folder.as_ref().unwrap_or(&self.folder), name, libc::O_DIRECTORY)?);
        }
        open_at(folder.as_ref().unwrap_or(&self.folder), name, libc::O_NONBLOCK | libc::O_NOCTTY)
    }
}

/// Opens `name` in `folder` for reading, unless it is a link.
#[cfg(unix)]
fn open_at(folder: &File, name: &std::ffi::OsStr, flags: i32) -> io::Result<File> {
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(name.as_bytes())?;
    loop {
        let flags = flags | libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the folder is open while it is borrowed, and the name ends with a NUL.
        match unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) } {
            -1 => match io::Error::last_os_error() {
                interrupted if interrupted.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            // SAFETY: the descriptor was just opened, and nobody else has it.
            descriptor => return Ok(unsafe { File::from_raw_fd(descriptor) }),
        }
    }
}

/// Where an open file lies, where that is not known from how it was opened.
#[cfg(unix)]
fn path_of(_: &File) -> io::Result<Option<PathBuf>> {
    Ok(None)
}

#[cfg(windows)]
impl AllowedFolder {
    fn new(path: PathBuf, is_deep: bool) -> io::Result<AllowedFolder> {
        fs::read_dir(&path)?;
        Ok(AllowedFolder { path, is_deep })
    }

    fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    fn open(&self, real: &Path) -> io::Result<File> {
        open_any(real)
    }
}

/// Where an open file lies, without links.
#[cfg(windows)]
fn path_of(file: &File) -> io::Result<Option<PathBuf>> {
    use std::os::windows::ffi::OsStringExt;
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::GetFinalPathNameByHandleW;
    let mut path = vec![0u16; 1 << 15];
    // SAFETY: the handle is open while the file is borrowed, and the buffer has the length that is given. 0 asks for the form that
    // `fs::canonicalize` answers with.
    let len = unsafe { GetFinalPathNameByHandleW(file.as_raw_handle(), path.as_mut_ptr(), path.len() as u32, 0) };
    match path.get(..len as usize) {
        None | Some([]) => Err(io::Error::last_os_error()),
        Some(path) => Ok(Some(std::ffi::OsString::from_wide(path).into())),
    }
}

impl AllowedFolder {
    /// Whether a path without links is one of a file that lies here.
    fn has(&self, real: &Path) -> bool {
        match self.is_deep {
            true => real.starts_with(&self.path),
            false => real.parent() == Some(&self.path),
        }
    }
}
