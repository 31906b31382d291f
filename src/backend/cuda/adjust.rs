//! See `ops/adjust.rs` for the contract, `kernels/adjust.cu` for the work.

use super::driver::Address;
use super::params::params;
use super::{Cuda, Step, Tensor};
use crate::error::Result;

params! {
    AdjustParams {
        logits: Address,
        sampling: Address,
        adjustments: Address,
        previous: Address,
        raw: Address,
        awaited: Address,
        awaited_raw: Address,
        stride: i32,
    }
}

pub fn run(cuda: &Cuda, step: &mut Step, logits: &mut Tensor) -> Result<()> {
    let (at, wishes) = (step.addresses(), step.wishes());
    let params = AdjustParams {
        logits: logits.storage.address(),
        sampling: at.sampling,
        adjustments: wishes.adjustments(),
        previous: at.tokens,
        raw: wishes.raw(),
        awaited: wishes.awaited(),
        awaited_raw: wishes.awaited_raw(),
        stride: logits.storage.stride() as i32,
    };
    cuda.kernels.adjust.launch(cuda.chaining, [step.samples(), 1, 1], 256, 0, &params)
}
