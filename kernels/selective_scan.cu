// The selective scan of Mamba-2. Contract: src/compute/ops/selective_scan.rs. Reference: src/compute/cpu/selective_scan.rs.
//
// A warp has 32 / SPLIT columns of the state of a head in registers, from the first to the last token of a row: the state is read and written once. SPLIT
// lanes share a column, each with a part of its rows. Decode is bound by that traffic. A prompt is bound by arithmetic: 2 state_dim products per
// token and column. Each token depends on the one before it, in one order whatever the batch and the chunks of a prompt, so that these change no bit. While a token is
// computed, the next ones are on their way.
//
// `scan_step` also computes the convolution before the scan and a gate or a norm behind it, for rows of one token each.
#include "common/arrivals.cuh"
#include "common/dependent_launch.cuh"
#include "common/gated_norm.cuh"
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
    float state[ROWS][1];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        state[i][0] = source == NO_STATE ? 0.0f : p.states[source * p.slot_numbers + of_head + size_t(i) * p.head_dim];
    }
    const auto keep = [&](uint32_t to) {
        if (!has_column) return;
#pragma unroll
        for (int i = 0; i < ROWS; i++) p.states[to * p.slot_numbers + of_head + size_t(i) * p.head_dim] = state[i][0];
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
        const float written[1] = {now.step * now.x};
        float sum[1];
        apply<SPLIT>(state, bs[token & 1] + part * (ROWS / 4), cs[token & 1] + part * (ROWS / 4), now.decay, written, sum);
        if (has_column && part == 0) {
            p.out[size_t(token) * p.out_stride + head * p.head_dim + column] = narrow<T>(fmaf(skip, now.x, sum[0]));
        }
        if (now.saved != NO_STATE) keep(now.saved);
    };
    for (int token = first; token < end; token += 2) {
        advance(token, odd);
        if (token + 1 < end) advance(token + 1, even);
    }
    keep(slot);
}

// What `scan_step` reads besides.
template <class T>
struct ScanStepParams {
    SelectiveScanParams<T> scan; // `xbc` are the inputs of the convolution, `states` the region behind that of the convolution
    GatedNormParams<T> norm;     // of `out`, a head for each group; `x` is null: none
    const float* conv_weight;    // [STEP_TAPS, width], then the biases
    float* conv_states;          // [slots, slot_numbers], from the region of the convolution
    const T* gate;               // [tokens, steps_stride], from the first column of the gates; null: what was read is stored as it is
    uint32_t* arrivals;          // [rows, groups], 0 before and after a launch
    float gate_scale;
    int has_bias;
};

// A layer of rows of one token each, from its projection to what a norm or the projection back reads: the convolution, the scan and a gate, each with the bits of its
// own kernel. A thread block has 64 columns of a head, and computes `B` and `C` of the group for itself. The last thread block of a group, when all others have read the
// states of their convolution and stored their columns, replaces these states and computes the norm.
//
// Grid [rows, heads, head_dim / STEP_COLUMNS], block [STATE_DIM], shared [norm.head_dim floats, if there is a norm]
constexpr int STEP_TAPS = 4, STEP_COLUMNS = 64;

template <class T, int STATE_DIM>
__device__ void scan_step(const ScanStepParams<T>& all) {
    constexpr int ROWS = 32, SPLIT = STATE_DIM / ROWS, COLS = 2, THREADS = STEP_COLUMNS / COLS * SPLIT, HISTORY = STEP_TAPS - 1;
    // What a thread block convolves: `B`, `C`, and its part of `x`.
    constexpr int SHARED_COLUMNS = 2 * STATE_DIM, ITEMS = (SHARED_COLUMNS + STEP_COLUMNS + THREADS - 1) / THREADS;
    static_assert(THREADS == STATE_DIM, "as the launch has it");
    const SelectiveScanParams<T>& p = all.scan;
    __shared__ __align__(16) float mixed[SHARED_COLUMNS + STEP_COLUMNS];
    __shared__ bool is_last;
    launch_dependents();
    const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = p.heads / p.groups, group = head / share, own = head * p.head_dim + blockIdx.z * STEP_COLUMNS;
    const int part = lane / (32 / SPLIT), column = (warp * (32 / SPLIT) + lane % (32 / SPLIT)) * COLS;
    const int heads_width = p.heads * p.head_dim, width = heads_width + 2 * p.groups * STATE_DIM;
    const float rate = p.rates[head], bias = p.rates[p.heads + head], skip = p.rates[2 * p.heads + head];
    const auto item = [](int k) { return int(threadIdx.x) + k * THREADS; };
    // The column of an item among those of the convolution.
    const auto column_of = [&](int i) {
        if (i < STATE_DIM) return heads_width + group * STATE_DIM + i;
        if (i < SHARED_COLUMNS) return heads_width + (p.groups + group) * STATE_DIM + i - STATE_DIM;
        return own + i - SHARED_COLUMNS;
    };
    float weight[ITEMS][STEP_TAPS], sum[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (item(k) >= SHARED_COLUMNS + STEP_COLUMNS) continue;
#pragma unroll
        for (int j = 0; j < STEP_TAPS; j++) weight[k][j] = all.conv_weight[size_t(j) * width + column_of(item(k))];
        sum[k] = all.has_bias ? all.conv_weight[size_t(STEP_TAPS) * width + column_of(item(k))] : 0.0f;
    }
    grid_dependency_wait();
    const uint32_t slot = p.slots[row], source = p.sources[row], saved = p.saves[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE) return;

    float state[ROWS][COLS];
    const auto state_at = [&](uint32_t of, int i) {
        const size_t of_head = (size_t(head) * STATE_DIM + part * ROWS + i) * p.head_dim;
        return reinterpret_cast<float2*>(p.states + of * p.slot_numbers + of_head + blockIdx.z * STEP_COLUMNS + column);
    };
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float2 pair = source == NO_STATE ? make_float2(0.0f, 0.0f) : *state_at(source, i);
        state[i][0] = pair.x, state[i][1] = pair.y;
    }
    const float step = softplus_step(widen(p.steps[size_t(row) * p.steps_stride + head]), p.step_scale, bias);

    // The inputs that the states of the convolution have afterwards.
    float inputs[ITEMS][STEP_TAPS];
    const auto keep_inputs = [&](int k) {
#pragma unroll
        for (int j = 0; j < HISTORY; j++) {
            const size_t at = size_t(j) * width + column_of(item(k));
            all.conv_states[slot * p.slot_numbers + at] = inputs[k][j + 1];
            if (saved != NO_STATE) all.conv_states[saved * p.slot_numbers + at] = inputs[k][j + 1];
        }
    };
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (item(k) >= SHARED_COLUMNS + STEP_COLUMNS) continue;
        const int c = column_of(item(k));
#pragma unroll
        for (int j = 0; j < HISTORY; j++) {
            inputs[k][j] = source == NO_STATE ? 0.0f : all.conv_states[source * p.slot_numbers + size_t(j) * width + c];
        }
        inputs[k][HISTORY] = widen(p.xbc[size_t(row) * p.xbc_stride + c]);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (item(k) >= SHARED_COLUMNS + STEP_COLUMNS) continue;
#pragma unroll
        for (int j = 0; j < STEP_TAPS; j++) sum[k] = fmaf(weight[k][j], inputs[k][j], sum[k]);
        mixed[item(k)] = widen(narrow<T>(silu(sum[k])));
        if (item(k) >= SHARED_COLUMNS) keep_inputs(k);
    }
    __syncthreads();

    const float2 x = *reinterpret_cast<const float2*>(mixed + SHARED_COLUMNS + column);
    const float4* const b = reinterpret_cast<const float4*>(mixed) + part * (ROWS / 4);
    const float written[COLS] = {step * x.x, step * x.y};
    float read[COLS];
    apply<SPLIT>(state, b, b + STATE_DIM / 4, __expf(-rate * step), written, read);
    if (part == 0) {
        uint32_t pair = narrow2<T>(fmaf(skip, x.x, read[0]), fmaf(skip, x.y, read[1]));
        if (all.gate) {
            const T* const at = all.gate + size_t(row) * p.steps_stride + own + column;
            const float2 v = widen2<T>(pair), gate = make_float2(widen(at[0]), widen(at[1]));
            pair = narrow2<T>(silu(all.gate_scale * gate.x) * v.x, silu(all.gate_scale * gate.y) * v.y);
        }
        *reinterpret_cast<uint32_t*>(p.out + size_t(row) * p.out_stride + own + column) = pair;
    }
    __syncthreads();
    uint32_t before = 0;
    if (threadIdx.x == 0) before = arrive(all.arrivals + row * p.groups + group);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float2 pair = make_float2(state[i][0], state[i][1]);
        *state_at(slot, i) = pair;
        if (saved != NO_STATE) *state_at(saved, i) = pair;
    }
    if (threadIdx.x == 0) {
        is_last = before + 1 == uint32_t(share) * gridDim.z;
        if (is_last) all.arrivals[row * p.groups + group] = 0;
    }
    __syncthreads();
    if (!is_last) return;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (item(k) < SHARED_COLUMNS) keep_inputs(k);
    }
    if (!all.norm.x) return;
    extern __shared__ __align__(16) float values[];
    WideHead<T> normed(all.norm, row, group);
    normed.load_weights(threadIdx.x * 8);
    normed.normalize(values);
}

#define SELECTIVE_SCAN(T, state_dim, split)                                                          \
    extern "C" __global__ void __launch_bounds__(32)                                                 \
        nvllm_k_selective_scan_##state_dim##_##T(const __grid_constant__ SelectiveScanParams<T> p) { \
        selective_scan<T, state_dim, split>(p);                                                      \
    }

#define SCAN_STEP(T, state_dim)                                                            \
    extern "C" __global__ void __launch_bounds__(state_dim, 512 / state_dim)               \
        nvllm_k_scan_step_##state_dim##_##T(const __grid_constant__ ScanStepParams<T> p) { \
        scan_step<T, state_dim>(p);                                                        \
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
SCAN_STEP(bf16, 64)
SCAN_STEP(bf16, 128)
SCAN_STEP(bf16, 256)
SCAN_STEP(f16, 64)
SCAN_STEP(f16, 128)
SCAN_STEP(f16, 256)
