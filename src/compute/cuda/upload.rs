//! Brings a batch to the device: by `kernels/upload.cu`, or a large one by the copy engine.

use super::device::Device;
use super::driver::{Address, Memory, Pinned};
use super::kernels::{Chaining, Kernel};
use super::params::params;
use base::error::Result;

params! {
    UploadParams in "upload.cu" { to: Address, from: Address, count: i32 }
}

/// Bytes up to which a kernel is at least as fast.
const KERNEL_BYTES_MAX: usize = 256 << 10;
const THREADS: usize = 256;
/// Bytes that a thread copies at a time.
const CHUNK: usize = 16;

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(Kernel::new(&device.module("upload")?, "upload")?))
    }

    /// Begins to copy the first `bytes` bytes, a multiple of 16. `from` may be written again once an event after this was waited for.
    pub fn run(&self, from: &Pinned, to: &Memory, bytes: usize) -> Result<()> {
        if bytes > KERNEL_BYTES_MAX {
            return from.upload(0..bytes, to, 0);
        }
        assert!(bytes.is_multiple_of(CHUNK) && bytes <= from.bytes().len() && bytes <= to.bytes());
        let count = bytes / CHUNK;
        let params = UploadParams { to: to.address(), from: from.address(), count: count as i32 };
        self.0.launch(Chaining::Strict, [count.div_ceil(THREADS), 1, 1], THREADS, 0, &params)
    }
}
