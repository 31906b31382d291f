// Copies one recurrent state to another slot. Contract: src/compute/ops/copy_states.rs.
//
// Memory-bound, and rare: only beams are forked. One launch a copy, because copies come one after another.
#include "common/dependent_launch.cuh"

#include <stdint.h>

struct CopyStatesParams {
    const float* from;  // [numbers]
    float* to;          // [numbers]
    int64_t numbers;
};

// Block [256], any grid. It waits first: see dependent_launch.cuh.
extern "C" __global__ void nvllm_k_copy_states(const __grid_constant__ CopyStatesParams p) {
    grid_dependency_wait();
    launch_dependents();
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.numbers; i += step) p.to[i] = p.from[i];
}
