// The gated delta rule. Contract: src/compute/ops/gated_delta.rs. Reference: src/compute/cpu/gated_delta.rs.
//
// A warp has 32 / SPLIT columns of the state of a value head in registers, from the first to the last token of a row: the state is read and written
// once. SPLIT lanes share a column, each with a part of its rows: more than 64 rows do not fit into the registers of a lane. Decode is bound by that traffic. A prompt is bound by arithmetic: 3 key_dim products a token and column. Each token depends on the one before it, in one
// order whatever the batch and the chunks of a prompt, so that these change no bit. While a token is computed, the next one is on its way.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/states.cuh"

template <class T>
struct GatedDeltaParams {
    T* out;                     // [tokens, out_stride]
    const T* qkv;               // [tokens, qkv_stride]
    const T* gates;             // [tokens, gates_stride], from the first column of the gates: b, then a
    const float* decays;        // [2, value_heads]: exp(A_log), dt_bias
    float* states;              // [slots, slot_numbers], from the region of this layer
    const uint32_t* row_starts; // [rows + 1]
    const uint32_t* sources;    // [rows]
    const uint32_t* slots;      // [rows]
    const uint32_t* saves;      // [tokens]
    int64_t slot_numbers;
    int out_stride;
    int qkv_stride;
    int gates_stride;
    int key_heads;
    int value_heads;
    int value_dim;
    int is_tiled;               // value head h has key head h % key_heads
};

// What a lane loads of a token.
template <int PER>
struct DeltaToken {
    float query[PER];
    float key[PER];
    float value;
    float b;
    float a;
};

template <class T, int KEY_DIM>
struct DeltaHead {
    static constexpr int PER = KEY_DIM < 32 ? 1 : KEY_DIM / 32;
    const T* query;
    const T* key;
    const T* value;
    const T* b;
    const T* a;
    int qkv_stride;
    int gates_stride;

    __device__ DeltaToken<PER> load(int token) const {
        DeltaToken<PER> v;
        const int first = threadIdx.x * PER;
        const size_t at = size_t(token) * qkv_stride;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            const bool has = first + i < KEY_DIM;
            v.query[i] = has ? widen(query[at + first + i]) : 0.0f;
            v.key[i] = has ? widen(key[at + first + i]) : 0.0f;
        }
        v.value = widen(value[at]);
        v.b = widen(b[size_t(token) * gates_stride]);
        v.a = widen(a[size_t(token) * gates_stride]);
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

// Grid [rows, value_heads, value_dim * SPLIT / 32 rounded up], block [32].
template <class T, int KEY_DIM, int SPLIT>
__device__ void gated_delta(const GatedDeltaParams<T>& p) {
    using Head = DeltaHead<T, KEY_DIM>;
    constexpr int PER = Head::PER, ROWS = KEY_DIM / SPLIT;
    __shared__ float4 keys[2][KEY_DIM / 4], queries[2][KEY_DIM / 4];
    launch_dependents();
    const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    const int key_head = p.is_tiled ? head % p.key_heads : head / (p.value_heads / p.key_heads);
    const int column = blockIdx.z * (32 / SPLIT) + lane % (32 / SPLIT);
    const int part = lane / (32 / SPLIT);
    const bool has_column = column < p.value_dim;
    const float rate = p.decays[head], bias = p.decays[p.value_heads + head];
    grid_dependency_wait();
    const int first = p.row_starts[row], end = p.row_starts[row + 1];
    const uint32_t slot = p.slots[row], source = p.sources[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE) return;

    const int key_width = p.key_heads * KEY_DIM;
    const Head inputs = {
        p.qkv + key_head * KEY_DIM,
        p.qkv + key_width + key_head * KEY_DIM,
        p.qkv + 2 * key_width + head * p.value_dim + (has_column ? column : 0),
        p.gates + head,
        p.gates + p.value_heads + head,
        p.qkv_stride,
        p.gates_stride,
    };
    DeltaToken<PER> next = inputs.load(first);

    // [ROWS, value_dim] of this head, from the first row of this part and from this column.
    const size_t of_head = (size_t(head) * KEY_DIM + part * ROWS) * p.value_dim + (has_column ? column : 0);
    float state[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        state[i] = source == NO_STATE ? 0.0f : p.states[source * p.slot_numbers + of_head + size_t(i) * p.value_dim];
    }
    const auto keep = [&](uint32_t to) {
        if (!has_column) return;
#pragma unroll
        for (int i = 0; i < ROWS; i++) p.states[to * p.slot_numbers + of_head + size_t(i) * p.value_dim] = state[i];
    };

    for (int token = first; token < end; token++) {
        const DeltaToken<PER> v = next;
        if (token + 1 < end) next = inputs.load(token + 1);
        float query_squares = 0.0f, key_squares = 0.0f;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            query_squares = fmaf(v.query[i], v.query[i], query_squares);
            key_squares = fmaf(v.key[i], v.key[i], key_squares);
        }
        const float query_scale = rsqrtf(warp_sum(query_squares) + 1e-6f) * rsqrtf(float(KEY_DIM));
        const float key_scale = rsqrtf(warp_sum(key_squares) + 1e-6f);
        float4* const k4 = keys[token & 1];
        float4* const q4 = queries[token & 1];
#pragma unroll
        for (int i = 0; i < PER; i++) {
            if (lane * PER + i < KEY_DIM) {
                reinterpret_cast<float*>(k4)[lane * PER + i] = v.key[i] * key_scale;
                reinterpret_cast<float*>(q4)[lane * PER + i] = v.query[i] * query_scale;
            }
        }
        // Two buffers in turn: nobody still reads this one, because everybody has passed the barrier of the token before.
        __syncwarp();
        const float beta = 1.0f / (1.0f + __expf(-v.b));
        const float x = v.a + bias;
        const float softplus = x > 20.0f ? x : log1pf(__expf(x));
        const float decay = __expf(-rate * softplus);

        float known[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            const float4 k = k4[part * (ROWS / 4) + i];
            known[0] = fmaf(k.x, state[4 * i], known[0]);
            known[1] = fmaf(k.y, state[4 * i + 1], known[1]);
            known[2] = fmaf(k.z, state[4 * i + 2], known[2]);
            known[3] = fmaf(k.w, state[4 * i + 3], known[3]);
        }
        const float all_known = column_sum<SPLIT>((known[0] + known[1]) + (known[2] + known[3]));
        const float delta = beta * (v.value - decay * all_known);
        float read[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            const float4 k = k4[part * (ROWS / 4) + i], q = q4[part * (ROWS / 4) + i];
            state[4 * i] = fmaf(k.x, delta, state[4 * i] * decay);
            state[4 * i + 1] = fmaf(k.y, delta, state[4 * i + 1] * decay);
            state[4 * i + 2] = fmaf(k.z, delta, state[4 * i + 2] * decay);
            state[4 * i + 3] = fmaf(k.w, delta, state[4 * i + 3] * decay);
            read[0] = fmaf(q.x, state[4 * i], read[0]);
            read[1] = fmaf(q.y, state[4 * i + 1], read[1]);
            read[2] = fmaf(q.z, state[4 * i + 2], read[2]);
            read[3] = fmaf(q.w, state[4 * i + 3], read[3]);
        }
        const float out = column_sum<SPLIT>((read[0] + read[1]) + (read[2] + read[3]));
        if (has_column && part == 0) {
            p.out[size_t(token) * p.out_stride + head * p.value_dim + column] = narrow<T>(out);
        }
        const uint32_t saved = p.saves[token];
        if (saved != NO_STATE) keep(saved);
    }
    keep(slot);
}

#define GATED_DELTA(T, key_dim, split)                                                       \
    extern "C" __global__ void __launch_bounds__(32)                                         \
        nvllm_k_gated_delta_##key_dim##_##T(const __grid_constant__ GatedDeltaParams<T> p) { \
        gated_delta<T, key_dim, split>(p);                                                   \
    }

GATED_DELTA(bf16, 16, 1)
GATED_DELTA(bf16, 32, 1)
GATED_DELTA(bf16, 64, 2)
GATED_DELTA(bf16, 128, 2)
GATED_DELTA(f16, 16, 1)
GATED_DELTA(f16, 32, 1)
GATED_DELTA(f16, 64, 2)
GATED_DELTA(f16, 128, 2)
