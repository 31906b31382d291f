//! Times each CUDA kernel at the shapes of Qwen3-0.6B and Qwen3-8B, compared with the ceilings of the machine.
//!
//! Each figure is the median of several replays of a graph that contains the op many times with different weights or layers, so
//! that neither launch times nor the L2 cache distort it. `kernels [filter]` runs the lines whose name contains the filter.
#[cfg(nvllm_cuda)]
#[path = "kernels/cuda.rs"]
mod cuda;

fn main() {
    #[cfg(nvllm_cuda)]
    cuda::main();
    #[cfg(not(nvllm_cuda))]
    eprintln!("built without CUDA: nothing is timed");
}
