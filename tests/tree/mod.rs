//! Where the files of the repository are.

use std::path::{Path, PathBuf};

/// The repository: where cargo says that the package of this test is, or where it was built when it runs without cargo.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("tests/golden").is_dir());
    root.map(Path::to_owned).expect("the tests have their files")
}
