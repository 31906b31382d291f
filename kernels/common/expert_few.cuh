// Products of up to 8 tokens with the weights of their experts, memory-bound. Weights of an expert are read once for all tokens that chose it: they are
// the rows of A (16 x 16) of a tensor-core product, and the tokens are the columns of B (16 x 8). A result is a sum over k in an order that does not
// depend on the other tokens.
#pragma once

#include "activation.cuh"
#include "dependent_launch.cuh"
#include "tensor_core.cuh"

// The slots with the expert of one slot, or none if an earlier slot has it: then that one's thread block computes them. A token chooses an expert once.
struct Members {
    int expert;
    int count;  // up to 8
    int own;    // the slot of member `lane / 4`, or -1
};

__device__ inline Members members_of(const int* experts_of, int slots, int slot) {
    const int lane = threadIdx.x % 32;
    Members members{experts_of[slot], 0, -1};
    for (int base = 0; base < slots; base += 32) {
        const bool is_member = base + lane < slots && experts_of[base + lane] == members.expert;
        for (uint32_t left = __ballot_sync(0xffffffffu, is_member); left != 0; left &= left - 1) {
            const int found = base + __ffs(left) - 1;
            if (members.count == 0 && found != slot) return members;
            if (members.count == lane / 4) members.own = found;
            members.count++;
        }
    }
    return members;
}

constexpr int FEW_WARPS = 4, FEW_ROWS = 16;
// Thread blocks of FEW_WARPS warps that a multiprocessor shall hold: the gates and ups of eight experts of 768 are 768 thread blocks, which should all run at
// once, because all wait for memory as long.
constexpr int FEW_BLOCKS = 6;

// Grid [columns / 16 rounded up, slots], block [32 * FEW_WARPS]. Of gated results a thread block has 8 columns: 8 gates and their ups. Warps share
// out k in pieces of 64, and their sums are added in the order of the warps. `Weights` loads the rows of a thread block, `AHEAD` pieces at a time, and
// prepares them when they are there. x is in the caches by then.
template <class T, class Weights, class Params>
__device__ void expert_linear_few(const Params& p) {
    __shared__ float sums[FEW_WARPS][FEW_ROWS][9];
    __shared__ int slots[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool is_gated = p.activation >= 0;
    const int columns = is_gated ? FEW_ROWS / 2 : FEW_ROWS, first = blockIdx.x * columns;
    launch_dependents();
    grid_dependency_wait();
    const Members members = members_of(p.experts_of, gridDim.y, blockIdx.y);
    // Another rank has the weights of others.
    if (members.count == 0 || unsigned(members.expert - p.first_expert) >= unsigned(p.experts)) return;
    if (warp == 0 && lane % 4 == 0) slots[lane / 4] = members.own;
    // Rows of weights of an expert: `n`, or gates over ups.
    const Weights weights(p, members.expert - p.first_expert, first, is_gated);
    const T* const x = members.own < 0 ? nullptr : p.x + size_t(members.own / p.slots_of_row) * p.x_stride;
    const auto load_x = [&](int piece, int half) {
        const int k = piece * 64 + half * 32 + lane % 4 * 8;
        return x && k < p.k ? load_eight(x + k) : Eight{};
    };
    const int pieces = (p.k + 63) / 64;
    float sum[4] = {};
    for (int piece = warp; piece < pieces; piece += Weights::AHEAD * FEW_WARPS) {
        typename Weights::Piece loaded[Weights::AHEAD];
#pragma unroll
        for (int a = 0; a < Weights::AHEAD; a++) {
            // Without a branch, so that all loads are under way together.
            loaded[a] = weights.load(min(piece + a * FEW_WARPS, pieces - 1));
        }
#pragma unroll
        for (int a = 0; a < Weights::AHEAD; a++) {
            const int at = piece + a * FEW_WARPS;
            if (at >= pieces) continue;
            const Eight numbers[2] = {load_x(at, 0), load_x(at, 1)};
            const auto ready = weights.prepare(loaded[a]);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const Eight upper = weights.rows(ready, 0, half), lower = weights.rows(ready, 1, half), &v = numbers[half];
                const uint32_t low[4] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
                const uint32_t high[4] = {upper.pair[2], lower.pair[2], upper.pair[3], lower.pair[3]};
                mma<T>(sum, low, v.pair[0], v.pair[1]);
                mma<T>(sum, high, v.pair[2], v.pair[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sum[i];
    __syncthreads();
    const int member = threadIdx.x / FEW_ROWS, row = threadIdx.x % FEW_ROWS;
    if (member >= members.count || row >= columns || first + row >= p.n) return;
    const float* const bias = p.bias ? p.bias + size_t(members.expert - p.first_expert) * (is_gated ? 2 : 1) * p.n + first + row : nullptr;
    const auto total = [&](int row, const float* bias) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < FEW_WARPS; w++) total += sums[w][row][member];
        return bias ? total + *bias : total;
    };
    float result = total(row, bias);
    if (is_gated) {
        const float up = widen<T>(narrow<T>(total(row + FEW_ROWS / 2, bias ? bias + p.n : nullptr)));
        result = gated(p.activation, widen<T>(narrow<T>(result)), up);
    }
    p.out[size_t(slots[member]) * p.out_stride + first + row] = narrow<T>(result);
}
