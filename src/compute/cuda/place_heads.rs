//! See `ops/place_heads.rs` for the contract, `kernels/place_heads.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use crate::{HEAD_PARTS_MAX, HeadPart};
use base::error::Result;

params! {
    PlaceHeadsParams in "place_heads.cu" {
        out: Address,
        x: [Address; HEAD_PARTS_MAX],
        heads: i32,
        out_stride: i32,
        x_stride: [i32; HEAD_PARTS_MAX],
        from_first: [i32; HEAD_PARTS_MAX],
        from_step: [i32; HEAD_PARTS_MAX],
        to_first: [i32; HEAD_PARTS_MAX],
        to_step: [i32; HEAD_PARTS_MAX],
        width: [i32; HEAD_PARTS_MAX],
    }
}

const THREADS: usize = 256;

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("place_heads", "place_heads")?))
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, heads: usize, parts: &[HeadPart<Tensor>]) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let none = [0; HEAD_PARTS_MAX];
        let mut params = PlaceHeadsParams {
            out: out.storage.address(),
            x: [0; HEAD_PARTS_MAX],
            heads: heads as i32,
            out_stride: out.storage.stride() as i32,
            x_stride: none,
            from_first: none,
            from_step: none,
            to_first: none,
            to_step: none,
            width: none,
        };
        for (index, part) in parts.iter().enumerate() {
            if let Some((x, from)) = &part.from {
                params.x[index] = x.storage.address();
                params.x_stride[index] = x.storage.stride() as i32;
                (params.from_first[index], params.from_step[index]) = (from.first as i32, from.step as i32);
            }
            (params.to_first[index], params.to_step[index]) = (part.to.first as i32, part.to.step as i32);
            params.width[index] = part.width as i32;
        }
        self.0.launch(device.chaining, [out.rows(), parts.len(), 1], THREADS, 0, &params)
    }
}
