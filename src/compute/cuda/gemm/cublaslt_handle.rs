//! One handle of cuBLASLt per device, which all engines of the process share.
//!
//! `cublasLtCreate` and `cublasLtDestroy` wait for all work of the device, which invalidates what another thread is capturing in the same
//! context at that moment. So the handle is created with the first engine on a device and destroyed with the last one: while an engine
//! captures, it holds the handle itself. Creating and destroying exclude each other.
#![allow(unsafe_code)]

use crate::cuda::driver::Context;
use base::error::{Error, Result};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys::CUdevice;
use os::lock::Mutex;
use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, LazyLock};

/// Handles that are open, by their device, and the number of engines that share each.
static HANDLES: LazyLock<Mutex<HashMap<CUdevice, (Shared, usize)>>> = LazyLock::new(Mutex::default);

/// A handle that several threads may use at the same time: <https://docs.nvidia.com/cuda/cublas/#thread-safety>.
#[derive(Clone, Copy)]
struct Shared(lt::cublasLtHandle_t);

// SAFETY: see above.
unsafe impl Send for Shared {}

/// A share of the handle of a device.
pub struct BlasHandle {
    context: Arc<Context>,
    handle: Shared,
}

impl BlasHandle {
    /// The handle of the device of `context`, which is current. cuBLASLt is there.
    pub fn of(context: &Arc<Context>) -> Result<BlasHandle> {
        let mut handles = HANDLES.lock();
        let (handle, shares) = match handles.get_mut(&context.device()) {
            Some(known) => (known.0, &mut known.1),
            None => {
                let mut handle = ptr::null_mut();
                // SAFETY: the caller found the library; the out-pointer is a live local.
                match unsafe { lt::cublasLtCreate(&mut handle) } {
                    lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS => {}
                    status => return Err(Error::Device { call: "cublasLtCreate", code: status as i32 }),
                }
                let known = handles.entry(context.device()).or_insert((Shared(handle), 0));
                (known.0, &mut known.1)
            }
        };
        *shares += 1;
        Ok(BlasHandle { context: context.clone(), handle })
    }

    /// The handle itself.
    pub fn get(&self) -> lt::cublasLtHandle_t {
        self.handle.0
    }
}

impl Drop for BlasHandle {
    fn drop(&mut self) {
        let mut handles = HANDLES.lock();
        let device = self.context.device();
        let Some((_, shares)) = handles.get_mut(&device) else { return };
        *shares -= 1;
        if *shares == 0 {
            handles.remove(&device);
            let _ = self.context.make_current();
            // SAFETY: created by `of`, and this was the last share of it. The context lives by its `Arc`.
            let _ = unsafe { lt::cublasLtDestroy(self.handle.0) };
        }
    }
}
