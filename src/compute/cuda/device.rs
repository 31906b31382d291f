//! The GPU that ops launch on, and what chooses between their kernels.

use super::driver::{Context, Facts};
use super::kernels::{Chaining, DEPENDENT_LAUNCH, Kernel, KernelLoading, Module, suffix};
use crate::Rounding;
use base::error::Result;
use formats::DType;
use std::sync::Arc;

/// What every op launches with.
pub struct Device {
    pub context: Arc<Context>,
    /// Number type of weights, activations and caches.
    pub dtype: DType,
    /// How kernels follow each other.
    pub chaining: Chaining,
    /// When kernels are brought to the device: before the first exchange where this is one of several ranks.
    pub kernel_loading: KernelLoading,
    /// What the results of a row may depend on.
    pub rounding: Rounding,
}

impl Device {
    /// The GPU of `context`, for kernels that follow each other as fast as it allows.
    pub fn new(context: Arc<Context>, dtype: DType, kernel_loading: KernelLoading) -> Device {
        Device {
            chaining: match context.facts().capability >= DEPENDENT_LAUNCH {
                true => Chaining::DependentLaunch,
                false => Chaining::Strict,
            },
            dtype,
            kernel_loading,
            rounding: Rounding::Fastest,
            context,
        }
    }

    pub fn facts(&self) -> Facts {
        self.context.facts()
    }

    /// As many rows as a kernel's geometry may depend on.
    pub fn rows_of_geometry(&self, rows: usize) -> usize {
        if self.rounding == Rounding::BatchInvariant { 1 } else { rows }
    }

    /// Loads `kernels/<file>.cu`.
    pub fn module(&self, file: &'static str) -> Result<Arc<Module>> {
        Module::load(&self.context, file, self.kernel_loading)
    }

    /// The kernel `nvllm_k_<name>_<dtype>`, alone of its file.
    pub fn kernel(&self, file: &'static str, name: &str) -> Result<Kernel> {
        Kernel::new(&self.module(file)?, &format!("{name}_{}", suffix(self.dtype)))
    }
}
