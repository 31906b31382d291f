//! Model folders that a test may spoil.
#![allow(dead_code)]

use crate::driver::golden;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Number type, shape and bytes of tensors, by their names.
pub type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of a golden folder that a test may spoil; gone when the test ends, unless `NVLLM_TEST_KEEP` is set.
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn copy(case: &str, test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nanovllm-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        for entry in fs::read_dir(golden(case)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        Folder { path }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn edit_json(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap();
        edit(&mut value);
        fs::write(self.file(name), value.to_string()).unwrap();
    }

    /// Rewrites model.safetensors with other tensors.
    pub fn edit_tensors(&self, edit: impl FnOnce(&mut Tensors)) {
        let path = self.file("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let owned = |view: TensorView| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        let mut tensors = file.iter().map(|(name, view)| (name.to_owned(), owned(view))).collect();
        edit(&mut tensors);
        let views = tensors
            .iter()
            .map(|(name, (dtype, shape, data))| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
        serialize_to_file(views, None, &path).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("NVLLM_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
