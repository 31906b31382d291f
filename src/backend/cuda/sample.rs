//! See `ops/sample.rs` for the contract, `kernels/sample.cu` for the work.

use super::driver::Address;
use super::params::params;
use super::{Cuda, Step, Tensor};
use crate::error::Result;

params! {
    SampleParams {
        tokens: Address,
        logits: Address,
        sampling: Address,
        banned: Address,
        likeliest: Address,
        noisiest: Address,
        arrived: Address,
        vocab: i32,
        stride: i32,
    }
}

params! {
    /// The fields of `Sampling` in the order in which `Step` writes them.
    SamplingTwin {
        temperature: f32,
        top_p: f32,
        min_p: f32,
        top_k: u32,
        seed: u64,
        stream: u64,
        position: u32,
        banned_start: u32,
        banned_end: u32,
    }
}
const _: () = assert!(size_of::<SamplingTwin>() == size_of::<crate::batch::Sampling>());

pub fn run(cuda: &Cuda, step: &mut Step, logits: &Tensor) -> Result<()> {
    let at = step.addresses();
    let params = SampleParams {
        tokens: at.tokens,
        logits: logits.storage.address(),
        sampling: at.sampling,
        banned: at.banned,
        likeliest: at.likeliest,
        noisiest: at.noisiest,
        arrived: at.arrived,
        vocab: logits.cols() as i32,
        stride: logits.storage.stride() as i32,
    };
    let samples = logits.rows();
    // As many thread blocks as fill the device, but each thread should find a few numbers to look at.
    let splits = |threads: usize, fill: usize| {
        let useful = logits.cols().div_ceil(8 * threads).max(1);
        (fill * cuda.context.facts().processors).div_ceil(samples.max(1)).clamp(1, useful)
    };
    let kernels = &cuda.kernels;
    kernels.sample_likeliest.launch(cuda.chaining, [splits(256, 8), samples, 1], 256, 0, &params)?;
    kernels.sample_choose.launch(cuda.chaining, [splits(1024, 1), samples, 1], 1024, 0, &params)?;
    if cuda.context.is_capturing() { Ok(()) } else { step.finish() }
}
