//! The compiled kernels: loads them, and launches one with its parameter struct.

use super::driver::{Context, check};
use super::params::Params;
use crate::KvFormat;
use base::error::{Error, Result};
use cudarc::driver::sys;
use formats::DType;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

/// A kernel file on the device.
pub struct Module {
    context: Arc<Context>,
    module: sys::CUmodule,
    loading: KernelLoading,
    /// Whether its kernels wait for those before them: what `__CUDA_ARCH__` was when they were compiled, which for code that the driver
    /// made from PTX is less than the device has.
    waits: OnceLock<bool>,
}

/// When the driver brings a kernel to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelLoading {
    /// At its first launch, unless the driver is told otherwise.
    AtFirstLaunch,
    /// At once: a driver that loads a kernel may wait for what runs, and hold up other threads meanwhile.
    AtOnce,
}

// SAFETY: a driver handle, see `Context`.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads the code of `kernels/<file>.cu` for this device's architecture.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if this build has no code for it.
    pub fn load(context: &Arc<Context>, file: &'static str, loading: KernelLoading) -> Result<Arc<Module>> {
        let Some(fatbin) = nanovllm_kernels::fatbin(file) else { return Err(no_kernels(file)) };
        context.make_current()?;
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole fatbin that is never freed, and the out-pointer is a live local.
        match unsafe { sys::cuModuleLoadData(&mut module, fatbin.as_ptr().cast()) } {
            sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | sys::CUresult::CUDA_ERROR_INVALID_PTX
            | sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                let (major, minor) = (context.facts().capability / 10, context.facts().capability % 10);
                let what = format!(
                    "the GPU has compute capability {major}.{minor}, for which this build has no kernels: name it in \
                     NVLLM_CUDA_ARCHS when building, or choose device CPU"
                );
                return Err(Error::Unsupported { what });
            }
            code => check("cuModuleLoadData", code)?,
        }
        Ok(Arc::new(Module { context: context.clone(), module, loading, waits: OnceLock::new() }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        // SAFETY: loaded by `load` and unloaded once; no kernel of it runs any more.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

fn no_kernels(file: &str) -> Error {
    let what = match nanovllm_kernels::folder() {
        Some(folder) => format!("the kernels of {file}.cu are not in {}: run make kernels", folder.display()),
        None => "this build has no kernels for GPUs, because there was no nvcc: use device CPU or AUTO".to_owned(),
    };
    Error::Unsupported { what }
}

/// The first compute capability with programmatic dependent launch.
pub const DEPENDENT_LAUNCH: i32 = 90;

/// How a kernel follows the one before it on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaining {
    /// It begins when that one has ended.
    Strict,
    /// Programmatic dependent launch: it may begin while that one runs, and waits where it needs its results
    /// (`kernels/common/dependent_launch.cuh`). From compute capability 9.0 on, for kernels that were compiled for it; others are launched as
    /// [`Chaining::Strict`].
    DependentLaunch,
}

/// A kernel that can be launched.
pub struct Kernel {
    module: Arc<Module>,
    function: sys::CUfunction,
    /// Without `nvllm_k_`.
    name: Box<str>,
}

// SAFETY: a driver handle, see `Context`.
unsafe impl Send for Kernel {}

impl Kernel {
    /// The kernel `nvllm_k_<name>`.
    pub fn new(module: &Arc<Module>, name: &str) -> Result<Kernel> {
        module.context.make_current()?;
        let symbol = CString::new(format!("nvllm_k_{name}")).expect("kernel names have no zero byte");
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a zero byte, the out-pointer is a live local.
        let code = unsafe { sys::cuModuleGetFunction(&mut function, module.module, symbol.as_ptr()) };
        if code == sys::CUresult::CUDA_ERROR_NOT_FOUND {
            let what =
                format!("the compiled kernels have no nvllm_k_{name}: they are of another version, run make kernels");
            return Err(Error::Unsupported { what });
        }
        check("cuModuleGetFunction", code)?;
        // All kernels ask for one split of a multiprocessor's memory: where it must change, kernels cannot overlap.
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the function lives as long as its module.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, 100) })?;
        if module.waits.get().is_none() {
            let (mut ptx_version, attribute) = (0, sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION);
            // SAFETY: as above; the out-pointer is a live local.
            check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut ptx_version, attribute, function) })?;
            let _ = module.waits.set(ptx_version >= DEPENDENT_LAUNCH);
        }
        if module.loading == KernelLoading::AtOnce {
            // SAFETY: as above.
            check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
        }
        Ok(Kernel { module: module.clone(), function, name: name.into() })
    }

    /// Allows launches with up to `bytes` of dynamic shared memory.
    pub fn allow_shared(&self, bytes: usize) -> Result<()> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function lives as long as its module.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.function, attribute, bytes as i32) })
    }

    /// Allows clusters of more than eight thread blocks, of `threads` with `shared` bytes of dynamic shared memory. False where the device cannot hold one.
    pub fn allow_cluster(&self, cluster: usize, threads: usize, shared: usize) -> Result<bool> {
        self.module.context.make_current()?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        // SAFETY: the function lives as long as its module.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.function, attribute, 1) })?;
        let mut attributes = [clusters_of(cluster)];
        let config = self.config([cluster, 1, 1], threads, shared, &mut attributes);
        let mut clusters = 0;
        // SAFETY: as above; the configuration and the out-pointer are live locals.
        match unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, self.function, &config) } {
            sys::CUresult::CUDA_ERROR_INVALID_VALUE | sys::CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE => Ok(false),
            code => check("cuOccupancyMaxActiveClusters", code).map(|()| clusters > 0),
        }
    }

    /// Thread blocks of `threads` that the device holds at once.
    pub fn one_wave(&self, threads: usize) -> Result<usize> {
        let context = &self.module.context;
        context.make_current()?;
        let mut blocks = 0;
        // SAFETY: the function lives as long as its module, the out-pointer is a live local.
        let code =
            unsafe { sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.function, threads as i32, 0) };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok((blocks.max(0) as usize * context.facts().processors).max(1))
    }

    /// Launches a grid of `blocks` thread blocks of `threads` with `shared` bytes of dynamic shared memory.
    ///
    /// `params` is the kernel's parameter struct: a test compares each with its CUDA twin. An empty grid launches nothing.
    pub fn launch<P: Params>(
        &self,
        chaining: Chaining,
        blocks: [usize; 3],
        threads: usize,
        shared: usize,
        params: &P,
    ) -> Result<()> {
        self.launch_clusters(chaining, blocks, 1, threads, shared, params)
    }

    /// The same, with each `cluster` neighbours of the grid's first dimension on the device at once, able to reach each other's shared
    /// memory. More than one need compute capability 9.0, and divide `blocks[0]`.
    pub fn launch_clusters<P: Params>(
        &self,
        chaining: Chaining,
        blocks: [usize; 3],
        cluster: usize,
        threads: usize,
        shared: usize,
        params: &P,
    ) -> Result<()> {
        debug_assert!(!P::FIELDS.is_empty());
        if blocks.contains(&0) {
            return Ok(());
        }
        let context = &self.module.context;
        context.make_current()?;
        let waits = self.module.waits.get().is_some_and(|waits| *waits);
        let chaining = if waits { chaining } else { Chaining::Strict };
        let chained = attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: i32::from(chaining == Chaining::DependentLaunch),
            },
        );
        let mut attributes = [chained, clusters_of(cluster)];
        let count = if cluster > 1 { 2 } else { usize::from(chaining == Chaining::DependentLaunch) };
        let config = self.config(blocks, threads, shared, &mut attributes[..count]);
        let mut arguments = [ptr::from_ref(params).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one struct by value, which `params` is; the driver copies it before the call returns. The
        // addresses in it belong to buffers whose owners outlive the launch: dropping them waits for the stream.
        check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(&config, self.function, arguments.as_mut_ptr(), ptr::null_mut())
        })?;
        context.launches().note(&self.name);
        Ok(())
    }

    fn config(
        &self,
        blocks: [usize; 3],
        threads: usize,
        shared: usize,
        attributes: &mut [sys::CUlaunchAttribute],
    ) -> sys::CUlaunchConfig {
        sys::CUlaunchConfig {
            gridDimX: blocks[0] as u32,
            gridDimY: blocks[1] as u32,
            gridDimZ: blocks[2] as u32,
            blockDimX: threads as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared as u32,
            hStream: self.module.context.stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        }
    }
}

fn attribute(id: sys::CUlaunchAttributeID, value: sys::CUlaunchAttributeValue) -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute { id, pad: [0; 4], value }
}

/// Clusters of `cluster` neighbours of the grid's first dimension.
fn clusters_of(cluster: usize) -> sys::CUlaunchAttribute {
    let dimension = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: cluster as u32, y: 1, z: 1 };
    let value = sys::CUlaunchAttributeValue { clusterDim: dimension };
    attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)
}

/// How kernel names spell a number type.
pub fn suffix(dtype: DType) -> &'static str {
    match dtype {
        DType::Bf16 => "bf16",
        DType::F16 | DType::F32 => "f16",
    }
}

/// How the names of kernels end that compute in `dtype` and read or write a KV cache of `format`.
pub fn cache_suffix(dtype: DType, format: KvFormat) -> String {
    match format {
        KvFormat::Plain(_) => suffix(dtype).to_owned(),
        KvFormat::Int8 => format!("{}_int8", suffix(dtype)),
    }
}
