// Copies parts of heads. Contract: src/compute/ops/place_heads.rs. Reference: src/compute/cpu/place_heads.rs.
//
// Memory-bound: reads and writes each number once. Eight numbers a thread at a time. One thread block per token and part.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct PlaceHeadsParams {
    T* out;             // [tokens, out_stride]
    const T* x[8];      // [tokens, x_stride]. Null: zeros
    int heads;
    int out_stride;     // numbers from row to row, a multiple of 8
    int x_stride[8];    // the same of each x
    int from_first[8];  // column of the first head in x, a multiple of 8
    int from_step[8];   // columns from one head to the next, a multiple of 8
    int to_first[8];    // the same in out
    int to_step[8];
    int width[8];       // numbers of a head, a multiple of 8
};

// Grid [tokens, parts], block [256].
template <class T>
__device__ void place_heads(const PlaceHeadsParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int part = blockIdx.y;
    const int units = p.width[part] / 8;
    const T* x = p.x[part];
    T* out = p.out + size_t(blockIdx.x) * p.out_stride + p.to_first[part];
    if (x != nullptr) x += size_t(blockIdx.x) * p.x_stride[part] + p.from_first[part];
    for (int i = threadIdx.x; i < p.heads * units; i += blockDim.x) {
        const int head = i / units, at = i % units * 8;
        Eight numbers = {};
        if (x != nullptr) numbers = load_eight(x + size_t(head) * p.from_step[part] + at);
        store_eight(out + size_t(head) * p.to_step[part] + at, numbers);
    }
}

extern "C" __global__ void nvllm_k_place_heads_bf16(const __grid_constant__ PlaceHeadsParams<bf16> p) { place_heads(p); }
extern "C" __global__ void nvllm_k_place_heads_f16(const __grid_constant__ PlaceHeadsParams<f16> p) { place_heads(p); }
