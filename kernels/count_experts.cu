// How many tokens each expert computes. Contract: src/compute/ops/count_experts.rs. Reference: src/compute/cpu/count_experts.rs.
//
// At the launch floor: launched only where statistics are asked for. Sums of integers do not depend on the order of the additions.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

struct CountExpertsParams {
    unsigned long long* counts;  // [experts]
    const int* experts_of;       // [tokens, chosen]
    const uint32_t* slots;       // [tokens]: 0xffffffff for tokens that only pad
    int len;                     // of `experts_of`
    int chosen;
};

// Grid [len / 256 rounded up], block [256].
extern "C" __global__ void nvllm_k_count_experts(const __grid_constant__ CountExpertsParams p) {
    launch_dependents();
    grid_dependency_wait();
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < p.len && p.slots[at / p.chosen] != 0xffffffffu) atomicAdd(&p.counts[p.experts_of[at]], 1ull);
}
