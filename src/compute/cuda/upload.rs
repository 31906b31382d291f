//! Brings a batch to the device: by `kernels/upload.cu`, or a large one by the copy engine.

use super::device::Device;
use super::driver::{Address, Memory, Pinned};
use super::kernels::{Chaining, Kernel};
use super::params::params;
use base::error::Result;

params! {
    UploadParams in "upload.cu" { to: Address, from: Address, count: i32, behind: i32, stride: i32, behind_count: i32, parts: i32 }
}

/// Bytes up to which a kernel is at least as fast.
const KERNEL_BYTES_MAX: usize = 256 << 10;
const THREADS: usize = 256;
/// Bytes that a thread copies at a time.
const CHUNK: usize = 16;

/// Parts that are copied besides the beginning, one every `stride` bytes. All but `count` are multiples of [`CHUNK`].
pub struct Behind {
    /// Where the first one begins.
    pub at: usize,
    /// From the beginning of one to that of the next.
    pub stride: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// How many.
    pub count: usize,
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(Kernel::new(&device.module("upload")?, "upload")?))
    }

    /// Begins to copy the first `bytes` bytes, a multiple of 16, and what `behind` names. `from` may be written again once an event after this was
    /// waited for.
    pub fn run(&self, from: &Pinned, to: &Memory, bytes: usize, behind: &Behind) -> Result<()> {
        let &Behind { at, stride, bytes: part, count: parts } = behind;
        let all = bytes + parts * part;
        if all > KERNEL_BYTES_MAX {
            from.upload(0..bytes, to, 0)?;
            let begins = (0..parts).map(|index| at + index * stride);
            return begins.into_iter().try_for_each(|begin| from.upload(begin..begin + part, to, begin));
        }
        let end = if parts > 0 { at + (parts - 1) * stride + part } else { bytes };
        assert!(end <= from.bytes().len() && end <= to.bytes());
        assert!([bytes, at, stride, part].iter().all(|bytes| bytes.is_multiple_of(CHUNK)));
        let chunks = |bytes: usize| (bytes / CHUNK) as i32;
        let params = UploadParams {
            to: to.address(),
            from: from.address(),
            count: chunks(bytes),
            behind: chunks(at),
            stride: chunks(stride),
            behind_count: chunks(part),
            parts: parts as i32,
        };
        self.0.launch(Chaining::Strict, [(all / CHUNK).div_ceil(THREADS), 1, 1], THREADS, 0, &params)
    }
}
