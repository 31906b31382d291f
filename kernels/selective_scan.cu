// The selective scan of Mamba-2. Contract: src/compute/ops/selective_scan.rs. Reference: src/compute/cpu/selective_scan.rs.
//
// A warp has 32 / SPLIT columns of the state of a head in registers, from the first to the last token of a row: the state is read and written once. SPLIT
// lanes share a column, each with a part of its rows. Decode is bound by that traffic. A prompt is bound by arithmetic: 2 state_dim products a token and
// column. Each token depends on the one before it, in one order whatever the batch and the chunks of a prompt, so that these change no bit. While a token is
// computed, the next one is on its way.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/states.cuh"

template <class T>
struct SelectiveScanParams {
    T* out;                     // [tokens, out_stride]
    const T* xbc;               // [tokens, xbc_stride]
    const T* steps;             // [tokens, steps_stride], from the first step
    const float* rates;         // [3, heads]: exp(A_log), dt_bias, D
    float* states;              // [slots, slot_numbers], from the region of this layer
    const uint32_t* row_starts; // [rows + 1]
    const uint32_t* sources;    // [rows]
    const uint32_t* slots;      // [rows]
    const uint32_t* saves;      // [tokens]
    int64_t slot_numbers;
    int out_stride;
    int xbc_stride;
    int steps_stride;
    int heads;
    int groups;
    int head_dim;
};

// What a lane loads of a token.
template <int PER>
struct ScanToken {
    float b[PER];
    float c[PER];
    float x;
    float step;
};

template <class T, int STATE_DIM>
struct ScanHead {
    static constexpr int PER = STATE_DIM < 32 ? 1 : STATE_DIM / 32;
    const T* x;
    const T* b;
    const T* c;
    const T* step;
    int xbc_stride;
    int steps_stride;

    __device__ ScanToken<PER> load(int token) const {
        ScanToken<PER> v;
        const int first = threadIdx.x * PER;
        const size_t at = size_t(token) * xbc_stride;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            const bool has = first + i < STATE_DIM;
            v.b[i] = has ? widen(b[at + first + i]) : 0.0f;
            v.c[i] = has ? widen(c[at + first + i]) : 0.0f;
        }
        v.x = widen(x[at]);
        v.step = widen(step[size_t(token) * steps_stride]);
        return v;
    }
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
    if (slot == NO_STATE) return;

    const int width = p.heads * p.head_dim;
    const Head inputs = {
        p.xbc + head * p.head_dim + (has_column ? column : 0),
        p.xbc + width + group * STATE_DIM,
        p.xbc + width + (p.groups + group) * STATE_DIM,
        p.steps + head,
        p.xbc_stride,
        p.steps_stride,
    };
    ScanToken<PER> next = inputs.load(first);

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

    for (int token = first; token < end; token++) {
        const ScanToken<PER> v = next;
        if (token + 1 < end) next = inputs.load(token + 1);
        float4* const b4 = bs[token & 1];
        float4* const c4 = cs[token & 1];
#pragma unroll
        for (int i = 0; i < PER; i++) {
            if (lane * PER + i < STATE_DIM) {
                reinterpret_cast<float*>(b4)[lane * PER + i] = v.b[i];
                reinterpret_cast<float*>(c4)[lane * PER + i] = v.c[i];
            }
        }
        // Two buffers in turn: nobody still reads this one, because everybody has passed the barrier of the token before.
        __syncwarp();
        const float raw = v.step + bias;
        const float step = raw > 20.0f ? raw : log1pf(__expf(raw));
        const float decay = __expf(-rate * step);
        const float written = step * v.x;

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
            p.out[size_t(token) * p.out_stride + head * p.head_dim + column] = narrow<T>(fmaf(skip, v.x, sum));
        }
        const uint32_t saved = p.saves[token];
        if (saved != NO_STATE) keep(saved);
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
SELECTIVE_SCAN(bf16, 128, 2)
SELECTIVE_SCAN(bf16, 256, 4)
SELECTIVE_SCAN(f16, 16, 1)
SELECTIVE_SCAN(f16, 32, 1)
SELECTIVE_SCAN(f16, 64, 2)
SELECTIVE_SCAN(f16, 128, 2)
SELECTIVE_SCAN(f16, 256, 4)
