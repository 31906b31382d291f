//! Times each CUDA kernel at the shapes of Qwen3-0.6B and Qwen3-8B, compared with the ceilings of the machine.
//!
//! Each figure is the median of several replays of a graph that contains the op many times with different weights or layers, so
//! that neither launch times nor the L2 cache distort it. `kernels [filter] [shape]` runs the lines whose name contains the filter, for
//! a shape that is named: 0.6B, 8B, 32B, or what one of several ranks computes, such as 8B/2, 32B/4 and 70B/2. `BENCH_MIXTURES=Q8_0,Q4KM` runs
//! the lines of quantized weights for these alone, beside bf16.
#[cfg(feature = "cuda")]
#[path = "kernels/cuda.rs"]
mod cuda;

fn main() {
    #[cfg(feature = "cuda")]
    cuda::main();
    #[cfg(not(feature = "cuda"))]
    eprintln!("built without CUDA: nothing is timed");
}
