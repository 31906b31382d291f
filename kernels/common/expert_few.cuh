// Products of up to 8 tokens with the weights of their experts, memory-bound where weights are plain. Weights of an expert are read once for all tokens
// that chose it: they are the rows of A (16 x 16) of a tensor-core product, and the tokens are the columns of B (16 x 8). A result is a sum over k in an
// order that does not depend on the other tokens.
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

// `is_early`: past the first-level cache, which may have kept the choice of another layer when this kernel began.
__device__ inline Members members_of(const int* experts_of, int slots, int slot, bool is_early) {
    const int lane = threadIdx.x % 32;
    const auto load = [&](int at) { return at >= slots ? -1 : is_early ? __ldcg(experts_of + at) : experts_of[at]; };
    // Those of eight tokens with eight experts come at once.
    const int first = load(lane), second = load(32 + lane);
    Members members{slot < 64 ? __shfl_sync(0xffffffffu, slot < 32 ? first : second, slot % 32) : load(slot), 0, -1};
    for (int base = 0; base < slots; base += 32) {
        const int of_lane = base == 0 ? first : base == 32 ? second : load(base + lane);
        for (uint32_t left = __ballot_sync(0xffffffffu, of_lane == members.expert); left != 0; left &= left - 1) {
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

struct FewShared {
    float4 scales[FEW_WARPS][2][FEW_ROWS];  // of two pieces of quantized weights in turn
    float sums[FEW_WARPS][FEW_ROWS][9];
    int slots[8];
};

// Adds the products of x with eight rows and eight more, each of which a lane has for 8 k.
template <class T>
__device__ inline void multiply_rows(float (&sum)[4], const Eight& upper, const Eight& lower, const Eight& x) {
    const uint32_t low[4] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
    const uint32_t high[4] = {upper.pair[2], lower.pair[2], upper.pair[3], lower.pair[3]};
    mma<T>(sum, low, x.pair[0], x.pair[1]);
    mma<T>(sum, high, x.pair[2], x.pair[3]);
}

// Grid [columns / 16 rounded up, slots], block [32 * FEW_WARPS], shared [`Weights::RING_BYTES` for each warp]. Of gated results a thread block has 8 columns:
// 8 gates and their ups. Warps share out k in pieces of 64, and their sums are added in the order of the warps. `Weights` loads the rows of a thread block,
// `STAGES` pieces ahead, and multiplies them with x, which is read when they are there.
//
// Plain weights of the second product are asked for while the first one runs (`ASKS_EARLY`), where the choice of experts is known to be older than the kernel
// before. That one must launch its dependents behind its own wait, as this kernel then does. Where weights take longer to decode than to load, dependents are
// launched first: one H200, a step of 8 tokens of 12 layers of Qwen3-30B-A3B in Q4_K_M, 1.145 ms and 1.241 behind the wait.
template <class T, class Weights, class Params>
__device__ void expert_linear_few(const Params& p, FewShared& fixed) {
    constexpr int STAGES = Weights::STAGES;
    extern __shared__ __align__(128) uint8_t shared[];
    auto& sums = fixed.sums;
    auto& slots = fixed.slots;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool is_gated = p.activation >= 0;
    const int columns = is_gated ? FEW_ROWS / 2 : FEW_ROWS, first = blockIdx.x * columns;
    const bool is_early = Weights::knows_choice(p);
    if (!Weights::ASKS_EARLY) launch_dependents();
    if (!is_early) grid_dependency_wait();
    if (Weights::ASKS_EARLY) launch_dependents();
    const Members members = members_of(p.experts_of, gridDim.y, blockIdx.y, is_early);
    // Another rank has the weights of others.
    if (members.count == 0 || unsigned(members.expert - p.first_expert) >= unsigned(p.experts)) {
        if (is_early) grid_dependency_wait();
        return;
    }
    if (warp == 0 && lane % 4 == 0) slots[lane / 4] = members.own;
    // Rows of weights of an expert: `n`, or gates over ups.
    Weights weights(p, shared, fixed, members.expert - p.first_expert, first, is_gated);
    const int pieces = (p.k + 63) / 64, own = (pieces - warp + FEW_WARPS - 1) / FEW_WARPS;
#pragma unroll
    for (int s = 0; s < STAGES; s++) weights.load(s, s, s < own);
    weights.advance();
    if (is_early) grid_dependency_wait();
    // Where this lane reads x, and how many numbers of the row follow.
    const int begin = warp * 64 + lane % 4 * 8, own_row = p.slots_of_row == 1 ? members.own : members.own / p.slots_of_row;
    const T* x = p.x + size_t(max(own_row, 0)) * p.x_stride + begin;
    int left = members.own < 0 ? 0 : p.k - begin;
    const auto load_x = [&](Eight (&to)[2], int s) {
        to[0] = left > s * FEW_WARPS * 64 ? load_eight(x + s * FEW_WARPS * 64) : Eight{};
        to[1] = left > s * FEW_WARPS * 64 + 32 ? load_eight(x + s * FEW_WARPS * 64 + 32) : Eight{};
    };
    float sum[4] = {};
    for (int i = 0; i < own; i += STAGES) {
#pragma unroll
        for (int s = 0; s < STAGES; s++) {
            if (i + s >= own) break;
            Eight numbers[2];
            load_x(numbers, s);
            weights.multiply(sum, s, numbers);
            weights.load(s, s, i + s + STAGES < own);
        }
        weights.advance();
        x += STAGES * FEW_WARPS * 64;
        left -= STAGES * FEW_WARPS * 64;
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
