// The selective scan of Mamba-2. Contract: src/compute/ops/selective_scan.rs. Reference: src/compute/cpu/selective_scan.rs.
//
// A warp has 32 / SPLIT columns of the state of a head in registers, from the first to the last token of a row: the state is read and written once. SPLIT
// lanes share a column, each with a part of its rows. Decode is bound by that traffic. A prompt is bound by arithmetic: 2 state_dim products per
// token and column. Each token depends on the one before it, in one order whatever the batch and the chunks of a prompt, so that these change no bit. While a token is
// computed, the next ones are on their way.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/packed.cuh"
#include "common/selective_scan.cuh"
#include "common/states.cuh"

// What a lane loads of a token, as it is stored: several tokens are on their way.
template <class T, int PER>
struct ScanToken {
    Packed<T, PER> b;
    Packed<T, PER> c;
    T x;
    T step;
    uint32_t saved;
};

template <class T, int STATE_DIM>
struct ScanHead {
    static constexpr int PER = STATE_DIM < 32 ? 1 : STATE_DIM / 32;
    using Token = ScanToken<T, PER>;
    const T* x;
    const T* b;
    const T* c;
    const T* step;
    const uint32_t* saves;
    int xbc_stride;
    int steps_stride;

    __device__ Token load(int token) const {
        Token v;
        // Lanes that have no number of a short state repeat the last one.
        const int first = min(int(threadIdx.x) * PER, STATE_DIM - PER);
        const size_t at = size_t(token) * xbc_stride;
        v.b = Packed<T, PER>::load(b + at + first);
        v.c = Packed<T, PER>::load(c + at + first);
        v.x = x[at];
        v.step = step[size_t(token) * steps_stride];
        v.saved = saves[token];
        return v;
    }
};

// What a token does to the state, but for its `B` and its `C`.
struct ScanStep {
    float x;
    float step;
    float decay;
    uint32_t saved;
};

// The sum over the lanes that share a column.
template <int SPLIT>
__device__ inline float column_sum(float v) {
#pragma unroll
    for (int lanes = 32 / SPLIT; lanes < 32; lanes *= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// Grid [rows, heads, head_dim * SPLIT / 32 rounded up], block [32].
template <class T, int STATE_DIM, int SPLIT>
__device__ void selective_scan(const SelectiveScanParams<T>& p) {
    using Head = ScanHead<T, STATE_DIM>;
    constexpr int PER = Head::PER, ROWS = STATE_DIM / SPLIT;
    __shared__ float4 bs[2][STATE_DIM / 4], cs[2][STATE_DIM / 4];
    launch_dependents();
    const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    const int group = head / (p.heads / p.groups);
    const int column = blockIdx.z * (32 / SPLIT) + lane % (32 / SPLIT);
    const int part = lane / (32 / SPLIT);
    const bool has_column = column < p.head_dim;
    const float rate = p.rates[head], bias = p.rates[p.heads + head], skip = p.rates[2 * p.heads + head];
    grid_dependency_wait();
    const int first = p.row_starts[row], end = p.row_starts[row + 1];
    const uint32_t slot = p.slots[row], source = p.sources[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE || end - first > p.tokens_max) return;

    const int width = p.heads * p.head_dim;
    const Head inputs = {
        p.xbc + head * p.head_dim + (has_column ? column : 0),
        p.xbc + width + group * STATE_DIM,
        p.xbc + width + (p.groups + group) * STATE_DIM,
        p.steps + head,
        p.saves,
        p.xbc_stride,
        p.steps_stride,
    };
    const auto prepared = [&](const typename Head::Token& v, int token) {
        float b[PER], c[PER];
        v.b.widen_to(b);
        v.c.widen_to(c);
        if (lane * PER < STATE_DIM) {
#pragma unroll
            for (int i = 0; i < PER; i++) {
                reinterpret_cast<float*>(bs[token & 1])[lane * PER + i] = b[i];
                reinterpret_cast<float*>(cs[token & 1])[lane * PER + i] = c[i];
            }
        }
        const float step = softplus_step(widen(v.step), p.step_scale, bias);
        return ScanStep{widen(v.x), step, __expf(-rate * step), v.saved};
    };
    // The inputs of a row are read in order; behind its end the last token is read again.
    const auto load = [&](int token) { return inputs.load(min(token, end - 1)); };
    typename Head::Token first_token = load(first), odd = load(first + 1), even = load(first + 2);

    // [ROWS, head_dim] of this head, from the first row of this part and from this column.
    const size_t of_head = (size_t(head) * STATE_DIM + part * ROWS) * p.head_dim + (has_column ? column : 0);
    float state[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        state[i] = source == NO_STATE ? 0.0f : p.states[source * p.slot_numbers + of_head + size_t(i) * p.head_dim];
    }
    const auto keep = [&](uint32_t to) {
        if (!has_column) return;
#pragma unroll
        for (int i = 0; i < ROWS; i++) p.states[to * p.slot_numbers + of_head + size_t(i) * p.head_dim] = state[i];
    };

    ScanStep next = prepared(first_token, first);
    // Computes `token`, prepares the next one, which is `loaded`, and loads the one that is as far behind it as two are on their way.
    const auto advance = [&](int token, typename Head::Token& loaded) {
        const ScanStep now = next;
        // Two buffers in turn: the one of this token is written, and nobody reads the other one any more.
        __syncwarp();
        if (token + 1 < end) {
            next = prepared(loaded, token + 1);
            loaded = load(token + 3);
        }
        const float4* const b4 = bs[token & 1];
        const float4* const c4 = cs[token & 1];
        const float decay = now.decay, written = now.step * now.x;
        float read[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            const float4 b = b4[part * (ROWS / 4) + i], c = c4[part * (ROWS / 4) + i];
            state[4 * i] = fmaf(b.x, written, state[4 * i] * decay);
            state[4 * i + 1] = fmaf(b.y, written, state[4 * i + 1] * decay);
            state[4 * i + 2] = fmaf(b.z, written, state[4 * i + 2] * decay);
            state[4 * i + 3] = fmaf(b.w, written, state[4 * i + 3] * decay);
            read[0] = fmaf(c.x, state[4 * i], read[0]);
            read[1] = fmaf(c.y, state[4 * i + 1], read[1]);
            read[2] = fmaf(c.z, state[4 * i + 2], read[2]);
            read[3] = fmaf(c.w, state[4 * i + 3], read[3]);
        }
        const float sum = column_sum<SPLIT>((read[0] + read[1]) + (read[2] + read[3]));
        if (has_column && part == 0) {
            p.out[size_t(token) * p.out_stride + head * p.head_dim + column] = narrow<T>(fmaf(skip, now.x, sum));
        }
        if (now.saved != NO_STATE) keep(now.saved);
    };
    for (int token = first; token < end; token += 2) {
        advance(token, odd);
        if (token + 1 < end) advance(token + 1, even);
    }
    keep(slot);
}

#define SELECTIVE_SCAN(T, state_dim, split)                                                          \
    extern "C" __global__ void __launch_bounds__(32)                                                 \
        nvllm_k_selective_scan_##state_dim##_##T(const __grid_constant__ SelectiveScanParams<T> p) { \
        selective_scan<T, state_dim, split>(p);                                                      \
    }

SELECTIVE_SCAN(bf16, 16, 1)
SELECTIVE_SCAN(bf16, 32, 1)
SELECTIVE_SCAN(bf16, 64, 2)
SELECTIVE_SCAN(bf16, 128, 4)
SELECTIVE_SCAN(bf16, 256, 8)
SELECTIVE_SCAN(f16, 16, 1)
SELECTIVE_SCAN(f16, 32, 1)
SELECTIVE_SCAN(f16, 64, 2)
SELECTIVE_SCAN(f16, 128, 4)
SELECTIVE_SCAN(f16, 256, 8)
