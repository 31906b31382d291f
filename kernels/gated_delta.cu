// The gated delta rule. Contract: src/compute/ops/gated_delta.rs. Reference: src/compute/cpu/gated_delta.rs.
//
// A lane has COLS columns of 32 rows of the state of a value head in registers, from the first to the last token of a row: the state is read and written
// once. Longer columns are shared by KEY_DIM / 32 lanes of a warp, whose sums are added in one order. Decode is bound by the traffic of states: four columns
// per lane read whole lines of 128 bytes. Prompts are bound by the time from one token to the next, and many of them by arithmetic, 4 KEY_DIM operations
// per token and column: two columns per lane, so that more warps run.
// Each token depends on the one before it, in one order whatever the batch, the chunks of a prompt and COLS, so that these change no bit. While a token is
// computed, the keys and queries of the next one are normalized, and the two after that are on their way.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/packed.cuh"
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

// What a lane loads of a token, as it is stored: several tokens are on their way.
template <class T, int PER, int COLS>
struct DeltaToken {
    Packed<T, PER> query;
    Packed<T, PER> key;
    T value[COLS];
    T b;
    T a;
    uint32_t saved;
};

template <class T, int KEY_DIM, int COLS>
struct DeltaHead {
    static constexpr int PER = KEY_DIM < 32 ? 1 : KEY_DIM / 32;
    using Token = DeltaToken<T, PER, COLS>;
    const T* query;
    const T* key;
    const T* value;
    const T* b;
    const T* a;
    const uint32_t* saves;
    int qkv_stride;
    int gates_stride;

    __device__ Token load(int token) const {
        Token v;
        // Lanes that have no number of a short key repeat the last one.
        const int first = min(int(threadIdx.x) * PER, KEY_DIM - PER);
        const size_t at = size_t(token) * qkv_stride;
        v.query = Packed<T, PER>::load(query + at + first);
        v.key = Packed<T, PER>::load(key + at + first);
#pragma unroll
        for (int c = 0; c < COLS; c++) v.value[c] = value[at + c];
        v.b = b[size_t(token) * gates_stride];
        v.a = a[size_t(token) * gates_stride];
        v.saved = saves[token];
        return v;
    }
};

// What a token does to the state, but for its key and its query.
template <int COLS>
struct DeltaStep {
    float value[COLS];
    float beta;
    float decay;
    uint32_t saved;
};

// A token whose key and query are normalized.
template <int PER, int COLS>
struct DeltaReady {
    float query[PER];
    float key[PER];
    DeltaStep<COLS> step;

    // `keys` and `queries` have KEY_DIM numbers.
    template <int KEY_DIM>
    __device__ void store(float* keys, float* queries) const {
        const int at = threadIdx.x * PER;
        if (at >= KEY_DIM) return;
#pragma unroll
        for (int i = 0; i < PER; i++) keys[at + i] = key[i], queries[at + i] = query[i];
    }
};

template <int KEY_DIM, class T, int PER, int COLS>
__device__ inline DeltaReady<PER, COLS> prepare(const DeltaToken<T, PER, COLS>& v, float rate, float bias) {
    const bool has = threadIdx.x * PER < KEY_DIM;
    DeltaReady<PER, COLS> ready;
    float query_squares = 0.0f, key_squares = 0.0f;
    v.query.widen_to(ready.query);
    v.key.widen_to(ready.key);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        query_squares = fmaf(ready.query[i], ready.query[i], query_squares);
        key_squares = fmaf(ready.key[i], ready.key[i], key_squares);
    }
    const float query_scale = rsqrtf(warp_sum(has ? query_squares : 0.0f) + 1e-6f) * rsqrtf(float(KEY_DIM));
    const float key_scale = rsqrtf(warp_sum(has ? key_squares : 0.0f) + 1e-6f);
#pragma unroll
    for (int i = 0; i < PER; i++) ready.query[i] *= query_scale, ready.key[i] *= key_scale;
#pragma unroll
    for (int c = 0; c < COLS; c++) ready.step.value[c] = widen(v.value[c]);
    ready.step.beta = 1.0f / (1.0f + __expf(-widen(v.b)));
    const float x = widen(v.a) + bias;
    ready.step.decay = __expf(-rate * (x > 20.0f ? x : log1pf(__expf(x))));
    ready.step.saved = v.saved;
    return ready;
}

// COLS numbers of the state at once.
template <int COLS>
struct StateVector;
template <>
struct StateVector<2> {
    using Type = float2;
};
template <>
struct StateVector<4> {
    using Type = float4;
};

// The sum over the lanes that share a column.
template <int SPLIT>
__device__ inline float column_sum(float v) {
#pragma unroll
    for (int lanes = 32 / SPLIT; lanes < 32; lanes *= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// Grid [rows, value_heads, value_dim * SPLIT / (32 * COLS) rounded up], block [32].
template <class T, int KEY_DIM, int COLS>
__device__ void gated_delta(const GatedDeltaParams<T>& p) {
    using Head = DeltaHead<T, KEY_DIM, COLS>;
    constexpr int SPLIT = Head::PER, ROWS = KEY_DIM / SPLIT;
    __shared__ float4 keys[2][KEY_DIM / 4], queries[2][KEY_DIM / 4];
    launch_dependents();
    const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    const int key_head = p.is_tiled ? head % p.key_heads : head / (p.value_heads / p.key_heads);
    const int column = (blockIdx.z * (32 / SPLIT) + lane % (32 / SPLIT)) * COLS;
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
        p.saves,
        p.qkv_stride,
        p.gates_stride,
    };
    const auto stored = [&](const DeltaReady<Head::PER, COLS>& ready, int token) {
        float* const k = reinterpret_cast<float*>(keys[token & 1]);
        ready.template store<KEY_DIM>(k, reinterpret_cast<float*>(queries[token & 1]));
        return ready.step;
    };
    // The inputs of a row are read in order; behind its end the last token is read again.
    const auto load = [&](int token) { return inputs.load(min(token, end - 1)); };
    typename Head::Token first_token = load(first), odd = load(first + 1), even = load(first + 2);

    // [ROWS, value_dim] of this head, from the first row of this part and from the first of these columns.
    const size_t of_head = (size_t(head) * KEY_DIM + part * ROWS) * p.value_dim + (has_column ? column : 0);
    using Vector = typename StateVector<COLS>::Type;
    union Columns {
        Vector vector;
        float number[COLS];
    };
    Columns state[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (source == NO_STATE) {
#pragma unroll
            for (int c = 0; c < COLS; c++) state[i].number[c] = 0.0f;
        } else {
            const float* const at = p.states + source * p.slot_numbers + of_head + size_t(i) * p.value_dim;
            state[i].vector = *reinterpret_cast<const Vector*>(at);
        }
    }
    const auto keep = [&](uint32_t to) {
        if (!has_column) return;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float* const at = p.states + to * p.slot_numbers + of_head + size_t(i) * p.value_dim;
            *reinterpret_cast<Vector*>(at) = state[i].vector;
        }
    };

    DeltaStep<COLS> next = stored(prepare<KEY_DIM>(first_token, rate, bias), first);
    // Computes `token`, prepares the next one, which is `loaded`, and loads the one that is as far behind it as two are on their way. What the
    // next one needs is stored last: only the state is waited for.
    const auto advance = [&](int token, typename Head::Token& loaded) {
        const DeltaStep<COLS> step = next;
        // Two buffers in turn: the one of this token is written, and nobody reads the other one any more.
        __syncwarp();
        const float4* const k4 = keys[token & 1] + part * (ROWS / 4);
        const float4* const q4 = queries[token & 1] + part * (ROWS / 4);
        float4 k[ROWS / 4], q[ROWS / 4];
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) k[i] = k4[i], q[i] = q4[i];
        const bool has_next = token + 1 < end;
        DeltaReady<Head::PER, COLS> ready;
        if (has_next) {
            ready = prepare<KEY_DIM>(loaded, rate, bias);
            loaded = load(token + 3);
        }
        float known[COLS][4], read[COLS][4];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
#pragma unroll
            for (int j = 0; j < 4; j++) known[c][j] = read[c][j] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                known[c][0] = fmaf(k[i].x, state[4 * i].number[c], known[c][0]);
                known[c][1] = fmaf(k[i].y, state[4 * i + 1].number[c], known[c][1]);
                known[c][2] = fmaf(k[i].z, state[4 * i + 2].number[c], known[c][2]);
                known[c][3] = fmaf(k[i].w, state[4 * i + 3].number[c], known[c][3]);
            }
        }
        float delta[COLS];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            const float all_known = column_sum<SPLIT>((known[c][0] + known[c][1]) + (known[c][2] + known[c][3]));
            delta[c] = step.beta * (step.value[c] - step.decay * all_known);
        }
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                state[4 * i].number[c] = fmaf(k[i].x, delta[c], state[4 * i].number[c] * step.decay);
                state[4 * i + 1].number[c] = fmaf(k[i].y, delta[c], state[4 * i + 1].number[c] * step.decay);
                state[4 * i + 2].number[c] = fmaf(k[i].z, delta[c], state[4 * i + 2].number[c] * step.decay);
                state[4 * i + 3].number[c] = fmaf(k[i].w, delta[c], state[4 * i + 3].number[c] * step.decay);
                read[c][0] = fmaf(q[i].x, state[4 * i].number[c], read[c][0]);
                read[c][1] = fmaf(q[i].y, state[4 * i + 1].number[c], read[c][1]);
                read[c][2] = fmaf(q[i].z, state[4 * i + 2].number[c], read[c][2]);
                read[c][3] = fmaf(q[i].w, state[4 * i + 3].number[c], read[c][3]);
            }
        }
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            const float out = column_sum<SPLIT>((read[c][0] + read[c][1]) + (read[c][2] + read[c][3]));
            if (has_column && part == 0) {
                p.out[size_t(token) * p.out_stride + head * p.value_dim + column + c] = narrow<T>(out);
            }
        }
        if (has_next) next = stored(ready, token + 1);
        if (step.saved != NO_STATE) keep(step.saved);
    };
    for (int token = first; token < end; token += 2) {
        advance(token, odd);
        if (token + 1 < end) advance(token + 1, even);
    }
    keep(slot);
}

#define GATED_DELTA(T, key_dim, cols)                                                                \
    extern "C" __global__ void __launch_bounds__(32)                                                 \
        nvllm_k_gated_delta_##key_dim##x##cols##_##T(const __grid_constant__ GatedDeltaParams<T> p) { \
        gated_delta<T, key_dim, cols>(p);                                                            \
    }

GATED_DELTA(bf16, 16, 2)
GATED_DELTA(bf16, 16, 4)
GATED_DELTA(bf16, 32, 2)
GATED_DELTA(bf16, 32, 4)
GATED_DELTA(bf16, 64, 2)
GATED_DELTA(bf16, 64, 4)
GATED_DELTA(bf16, 128, 2)
GATED_DELTA(bf16, 128, 4)
GATED_DELTA(f16, 16, 2)
GATED_DELTA(f16, 16, 4)
GATED_DELTA(f16, 32, 2)
GATED_DELTA(f16, 32, 4)
GATED_DELTA(f16, 64, 2)
GATED_DELTA(f16, 64, 4)
GATED_DELTA(f16, 128, 2)
GATED_DELTA(f16, 128, 4)
