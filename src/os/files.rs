//! Where are the files of a model?
//!
//! Invariant: whoever reads a model reads it through [`Files`], so that what is checked and limited does not depend on where it is.

use super::HostBytes;
use super::confined_folder::ConfinedFolder;
use super::given_files::GivenFiles;
use super::model_file::{self, Loading};
use base::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the files of a model are.
#[derive(Clone, Debug, Default)]
pub enum Files {
    /// In the file system.
    #[default]
    OnDisk,
    /// In a folder of the file system that none of them may lead out of.
    Confined(Arc<ConfinedFolder>),
    /// In ranges that the caller gave. Paths are those of [`GivenFiles::path`].
    Given(Arc<GivenFiles>),
}

impl PartialEq for Files {
    fn eq(&self, other: &Files) -> bool {
        match (self, other) {
            (Files::OnDisk, Files::OnDisk) => true,
            (Files::Confined(one), Files::Confined(other)) => Arc::ptr_eq(one, other),
            (Files::Given(one), Files::Given(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Files {
    /// The folder that nothing may lead out of.
    fn within(&self) -> Option<&ConfinedFolder> {
        match self {
            Files::Confined(folder) => Some(folder),
            Files::OnDisk | Files::Given(_) => None,
        }
    }

    /// Whether there is a folder at `path`, and not a file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::ModelFile`] where there is neither.
    pub fn is_folder(&self, path: &Path) -> Result<bool> {
        match self {
            Files::OnDisk | Files::Confined(_) => {
                let facts = fs::metadata(path).map_err(|source| Error::Io { path: path.into(), source })?;
                Ok(facts.is_dir())
            }
            Files::Given(files) => files.is_folder(path),
        }
    }

    /// Whether there is a file at `path`.
    pub fn exists(&self, path: &Path) -> bool {
        match self {
            Files::OnDisk | Files::Confined(_) => path.exists(),
            Files::Given(files) => files.exists(path),
        }
    }

    /// The paths of what is in a folder, in no order. Empty if there is no such folder.
    pub fn entries(&self, folder: &Path) -> Box<dyn Iterator<Item = PathBuf>> {
        match self {
            Files::OnDisk | Files::Confined(_) => {
                let entries = fs::read_dir(folder).into_iter().flatten();
                Box::new(entries.flatten().map(|entry| entry.path()))
            }
            Files::Given(files) => Box::new(files.entries(folder).into_iter()),
        }
    }

    /// The bytes of a file, or `None` where there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot be read, [`Error::ModelFile`] when it is no regular file, has more than `bytes_max` bytes, or leads
    /// out of the folder of [`Files::Confined`].
    pub fn read(&self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Files::OnDisk | Files::Confined(_) => model_file::read_file(path, self.within(), bytes_max),
            Files::Given(files) => files.read(path, bytes_max),
        }
    }

    /// At most `bytes_max` bytes of a file from byte `start`, fewer where it ends before, and the length of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`], as [`Files::read`].
    pub fn read_part(&self, path: &Path, start: u64, bytes_max: u64) -> Result<(Vec<u8>, u64)> {
        match self {
            Files::OnDisk | Files::Confined(_) => model_file::read_part(path, self.within(), start, bytes_max),
            Files::Given(files) => files.read_part(path, start, bytes_max),
        }
    }

    /// All bytes of a file: where they lie, or copied into at most `free_bytes` of memory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`], as [`Files::read`]; [`Error::OutOfMemory`] when a copy does not fit.
    pub fn load(&self, path: &Path, loading: Loading, free_bytes: u64) -> Result<HostBytes> {
        match self {
            Files::OnDisk | Files::Confined(_) => model_file::load_file(path, self.within(), loading, free_bytes),
            Files::Given(files) => files.load(path, loading, free_bytes),
        }
    }
}
