// Copies whole KV blocks in every layer, for sequences that fork. Contract: src/compute/ops/copy_blocks.rs. Reference:
// src/compute/cpu/copy_blocks.rs.
//
// Memory-bound: reads and writes each block once. One thread block per pair, layer and slice of a block.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

struct CopyBlocksParams {
    char* cache;            // [layers][blocks][block_bytes]
    const uint32_t* pairs;  // [pairs][from, to]; no block is copied to and from in one launch
    long long layer_bytes;
    int block_bytes;        // a multiple of 16
};

// Grid [pairs, layers, slices], block [256].
extern "C" __global__ void nvllm_k_copy_blocks(const __grid_constant__ CopyBlocksParams p) {
    grid_dependency_wait();
    launch_dependents();
    char* layer = p.cache + blockIdx.y * p.layer_bytes;
    const char* from = layer + size_t(p.pairs[2 * blockIdx.x]) * p.block_bytes;
    char* to = layer + size_t(p.pairs[2 * blockIdx.x + 1]) * p.block_bytes;
    for (int i = (blockIdx.z * blockDim.x + threadIdx.x) * 16; i < p.block_bytes; i += gridDim.z * blockDim.x * 16) {
        *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
    }
}
