//! Where do the tensors lie of layers behind the decoder? In the folders of modules, or beside the decoder under names of their own.

use super::{Reading, Weights};
use crate::names::Root;
use crate::quantization::OnLoad;
use crate::spec::{DecoderSpec, PooledTensors};
use base::error::Result;
use formats::source::{Source, Tensors};
use std::mem;

impl Weights {
    /// The same with the tensors of the modules that `spec` names.
    ///
    /// # Errors
    ///
    /// Those of [`Tensors::open`].
    pub fn with_modules(mut self, source: &Source, spec: &DecoderSpec, reading: Reading) -> Result<Weights> {
        for layer in &spec.pooled_layers {
            if let PooledTensors::Module { folder, .. } = &layer.tensors {
                let tensors = Tensors::open(&source.module(folder), reading.loading, reading.free_bytes)?;
                self.modules.push((folder.clone(), tensors));
            }
        }
        Ok(self)
    }

    /// Reads tensors by their whole names, from a module of the folder or beside the decoder. No matrix is quantized.
    pub fn aside<T>(&mut self, module: Option<&str>, read: impl FnOnce(&mut Weights) -> Result<T>) -> Result<T> {
        const WHOLE: Root = Root { body: "", head: "" };
        let root = mem::replace(&mut self.root, WHOLE);
        let on_load = mem::replace(&mut self.on_load, OnLoad::None);
        let found = self.modules.iter().find(|(folder, _)| Some(folder.as_str()) == module);
        let tensors = found.map(|(_, tensors)| tensors.clone());
        let own = tensors.map(|tensors| mem::replace(&mut self.tensors, tensors));
        let result = read(self);
        (self.root, self.on_load) = (root, on_load);
        if let Some(own) = own {
            self.tensors = own;
        }
        result
    }
}
