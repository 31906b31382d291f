// The gated delta rule. Contract: src/compute/ops/gated_delta.rs. Reference: src/compute/cpu/gated_delta.rs.
//
// A lane has COLS columns of 32 rows of the state of a value head in registers, from the first to the last token of a row: the state is read and written
// once. Longer columns are shared by KEY_DIM / 32 lanes of a warp, whose sums are added in one order. Decode is bound by the traffic of states: four columns
// per lane read whole lines of 128 bytes. Prompts are bound by the time from one token to the next, and many of them by arithmetic, 4 KEY_DIM operations
// per token and column: two columns per lane, so that more warps run.
// Each token depends on the one before it, in one order whatever the batch, the chunks of a prompt and COLS, so that these change no bit. While a token is
// computed, the keys and queries of the next one are normalized, and the two after that are on their way.
//
// `delta_step` also computes what comes before and after the rule in a layer, for rows of one token each.
#include "common/dependent_launch.cuh"
#include "common/gated_delta.cuh"
#include "common/numbers.cuh"
#include "common/packed.cuh"
#include "common/states.cuh"

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
        const int first = min(int(threadIdx.x % 32) * PER, KEY_DIM - PER);
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
    __device__ void store(float* keys, float* queries, int lane) const {
        const int at = lane * PER;
        if (at >= KEY_DIM) return;
#pragma unroll
        for (int i = 0; i < PER; i++) keys[at + i] = key[i], queries[at + i] = query[i];
    }
};

template <int KEY_DIM, class T, int PER, int COLS>
__device__ inline DeltaReady<PER, COLS> prepare(const DeltaToken<T, PER, COLS>& v, float rate, float bias, int lane) {
    const bool has = lane * PER < KEY_DIM;
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

// A lane's columns of a row of the state.
template <int COLS>
union StateRow {
    typename StateVector<COLS>::Type vector;
    float number[COLS];
};

// Lets a token change a lane's part of the state, and reads it. `k` and `q` are those of the part.
template <int SPLIT, int ROWS, int COLS>
__device__ inline void apply(StateRow<COLS> (&state)[ROWS], const float4 (&k)[ROWS / 4], const float4 (&q)[ROWS / 4], const DeltaStep<COLS>& step,
                             float (&out)[COLS]) {
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
    for (int c = 0; c < COLS; c++) out[c] = column_sum<SPLIT>((read[c][0] + read[c][1]) + (read[c][2] + read[c][3]));
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
    if (slot == NO_STATE || end - first > p.tokens_max) return;

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
        ready.template store<KEY_DIM>(k, reinterpret_cast<float*>(queries[token & 1]), lane);
        return ready.step;
    };
    // The inputs of a row are read in order; behind its end the last token is read again.
    const auto load = [&](int token) { return inputs.load(min(token, end - 1)); };
    typename Head::Token first_token = load(first), odd = load(first + 1), even = load(first + 2);

    // [ROWS, value_dim] of this head, from the first row of this part and from the first of these columns.
    const size_t of_head = (size_t(head) * KEY_DIM + part * ROWS) * p.value_dim + (has_column ? column : 0);
    using Vector = typename StateVector<COLS>::Type;
    StateRow<COLS> state[ROWS];
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

    DeltaStep<COLS> next = stored(prepare<KEY_DIM>(first_token, rate, bias, lane), first);
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
            ready = prepare<KEY_DIM>(loaded, rate, bias, lane);
            loaded = load(token + 3);
        }
        float out[COLS];
        apply<SPLIT>(state, k, q, step, out);
        if (has_column && part == 0) {
#pragma unroll
            for (int c = 0; c < COLS; c++) p.out[size_t(token) * p.out_stride + head * p.value_dim + column + c] = narrow<T>(out[c]);
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

// What `delta_step` reads besides.
template <class T>
struct DeltaStepParams {
    GatedDeltaParams<T> delta;  // `qkv` are the inputs of the convolution, `states` the region behind that of the convolution
    const float* conv_weight;   // [TAPS, 2 key_width + value_width]
    float* conv_states;         // [slots, slot_numbers], from the region of the convolution
    const T* gate;              // [tokens, gates_stride], from the first column of the gates of the norm
    const float* norm;          // [value_dim]
    float eps;
};

// A layer of rows of one token each, between its projections: the convolution, the delta rule and the norm behind a gate, each with the bits of its own
// kernel. A thread block has a key head and the value heads that share it, so that no other thread block reads its part of either state. A group of eight warps
// has a value head at a time, a warp 16 columns of it.
//
// Grid [rows, key_heads], block [256 * groups]
constexpr int STEP_DIM = 128, STEP_TAPS = 4, STEP_COLS = 2, STEP_WARPS = 8, STEP_GROUPS_MAX = 2, STEP_SHARE_MAX = 4;

template <class T>
__device__ void delta_step(const DeltaStepParams<T>& all) {
    using Head = DeltaHead<T, STEP_DIM, STEP_COLS>;
    constexpr int SPLIT = Head::PER, ROWS = STEP_DIM / SPLIT, HISTORY = STEP_TAPS - 1, COLS = STEP_COLS;
    static_assert(STEP_WARPS * 32 * COLS == STEP_DIM * SPLIT, "a group has a head");
    const GatedDeltaParams<T>& p = all.delta;
    // The query and the key, then the values of each head.
    __shared__ __align__(16) T mixed[(2 + STEP_SHARE_MAX) * STEP_DIM];
    __shared__ float4 keys[STEP_DIM / 4], queries[STEP_DIM / 4];
    __shared__ T read[STEP_GROUPS_MAX][STEP_DIM];
    launch_dependents();
    const int row = blockIdx.x, key_head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = warp / STEP_WARPS, groups = blockDim.x / (32 * STEP_WARPS), share = p.value_heads / p.key_heads;
    const int part = lane / (32 / SPLIT), column = (warp % STEP_WARPS * (32 / SPLIT) + lane % (32 / SPLIT)) * COLS;
    const auto head_of = [&](int i) { return p.is_tiled ? i * p.key_heads + key_head : key_head * share + i; };
    // States are older than the kernels of this pass: their loads need not wait.
    const uint32_t slot = p.slots[row], source = p.sources[row], saved = p.saves[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE) {
        grid_dependency_wait();
        return;
    }

    StateRow<COLS> state[ROWS];
    const auto of_head = [&](int head) { return (size_t(head) * STEP_DIM + part * ROWS) * STEP_DIM + column; };
    const auto load_state = [&](int head) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float* const at = p.states + source * p.slot_numbers + of_head(head) + size_t(i) * STEP_DIM;
            state[i].vector = source == NO_STATE ? make_float2(0.0f, 0.0f) : *reinterpret_cast<const float2*>(at);
        }
    };
    load_state(head_of(min(group, share - 1)));

    const int key_width = p.key_heads * STEP_DIM, width = 2 * key_width + p.value_heads * STEP_DIM, count = (2 + share) * STEP_DIM;
    const auto column_at = [&](int i) {
        const int of = i / STEP_DIM, in = i % STEP_DIM;
        return of < 2 ? of * key_width + key_head * STEP_DIM + in : 2 * key_width + head_of(of - 2) * STEP_DIM + in;
    };
    // A thread block has at least as many threads as half of the columns.
    constexpr int OF_THREAD = 2;
    float history[OF_THREAD][HISTORY], taps[OF_THREAD][STEP_TAPS];
#pragma unroll
    for (int n = 0; n < OF_THREAD; n++) {
        const int c = column_at(min(int(threadIdx.x + n * blockDim.x), count - 1));
#pragma unroll
        for (int j = 0; j < HISTORY; j++) history[n][j] = source == NO_STATE ? 0.0f : all.conv_states[source * p.slot_numbers + size_t(j) * width + c];
#pragma unroll
        for (int j = 0; j < STEP_TAPS; j++) taps[n][j] = all.conv_weight[size_t(j) * width + c];
    }
    grid_dependency_wait();
    // What is read of the projections behind the barriers is on its way meanwhile.
    const int first_head = head_of(min(group, share - 1));
    T gates[STEP_DIM / 32];
#pragma unroll
    for (int j = 0; j < STEP_DIM / 32; j++) gates[j] = all.gate[size_t(row) * p.gates_stride + first_head * STEP_DIM + lane + 32 * j];
    const T b = p.gates[size_t(row) * p.gates_stride + first_head], a = p.gates[size_t(row) * p.gates_stride + p.value_heads + first_head];
#pragma unroll
    for (int n = 0; n < OF_THREAD; n++) {
        const int i = threadIdx.x + n * blockDim.x;
        if (i >= count) break;
        const int c = column_at(i);
        const float input = widen(p.qkv[size_t(row) * p.qkv_stride + c]);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < HISTORY; j++) sum = fmaf(taps[n][j], history[n][j], sum);
        sum = fmaf(taps[n][HISTORY], input, sum);
        mixed[i] = narrow<T>(sum / (1.0f + __expf(-sum)));
#pragma unroll
        for (int j = 0; j < HISTORY; j++) {
            const float kept = j + 1 < HISTORY ? history[n][j + 1] : input;
            all.conv_states[slot * p.slot_numbers + size_t(j) * width + c] = kept;
            if (saved != NO_STATE) all.conv_states[saved * p.slot_numbers + size_t(j) * width + c] = kept;
        }
    }
    __syncthreads();

    for (int base = 0; base < share; base += groups) {
        const bool has_head = base + group < share;
        const int i = has_head ? base + group : 0, head = head_of(i);
        if (base > 0 && has_head) load_state(head);
        // The gates of the first heads are here.
        const bool is_first = base == 0;
        const size_t of_row = size_t(row) * p.gates_stride;
        typename Head::Token token;
        token.query = Packed<T, Head::PER>::load(mixed + lane * Head::PER);
        token.key = Packed<T, Head::PER>::load(mixed + STEP_DIM + lane * Head::PER);
#pragma unroll
        for (int c = 0; c < COLS; c++) token.value[c] = mixed[(2 + i) * STEP_DIM + column + c];
        token.b = is_first ? b : p.gates[of_row + head];
        token.a = is_first ? a : p.gates[of_row + p.value_heads + head];
        token.saved = saved;
        // Each warp prepares the same key and query, of which one stores them.
        const auto ready = prepare<STEP_DIM>(token, p.decays[head], p.decays[p.value_heads + head], lane);
        if (base == 0) {
            if (warp == 0) ready.template store<STEP_DIM>(reinterpret_cast<float*>(keys), reinterpret_cast<float*>(queries), lane);
            __syncthreads();
        }
        float4 k[ROWS / 4], q[ROWS / 4];
#pragma unroll
        for (int j = 0; j < ROWS / 4; j++) k[j] = keys[part * (ROWS / 4) + j], q[j] = queries[part * (ROWS / 4) + j];
        float out[COLS];
        apply<SPLIT>(state, k, q, ready.step, out);
        if (has_head) {
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                const size_t at = of_head(head) + size_t(j) * STEP_DIM;
                *reinterpret_cast<float2*>(p.states + slot * p.slot_numbers + at) = state[j].vector;
                if (saved != NO_STATE) *reinterpret_cast<float2*>(p.states + saved * p.slot_numbers + at) = state[j].vector;
            }
        }
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if (part == 0) read[group][column + c] = narrow<T>(out[c]);
        }
        __syncthreads();
        if (has_head && warp % STEP_WARPS == 0) {
            float squares = 0.0f;
            for (int c = lane; c < STEP_DIM; c += 32) {
                const float v = widen(read[group][c]);
                squares = fmaf(v, v, squares);
            }
            const float scale = rsqrtf(warp_sum(squares) / STEP_DIM + all.eps);
#pragma unroll
            for (int j = 0; j < STEP_DIM / 32; j++) {
                const int c = lane + 32 * j;
                const float gate = widen(is_first ? gates[j] : all.gate[of_row + head * STEP_DIM + c]);
                const float v = widen(read[group][c]) * scale * all.norm[c] * (gate / (1.0f + __expf(-gate)));
                p.out[size_t(row) * p.out_stride + head * STEP_DIM + c] = narrow<T>(v);
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256 * STEP_GROUPS_MAX) nvllm_k_delta_step_bf16(const __grid_constant__ DeltaStepParams<bf16> p) {
    delta_step(p);
}
extern "C" __global__ void __launch_bounds__(256 * STEP_GROUPS_MAX) nvllm_k_delta_step_f16(const __grid_constant__ DeltaStepParams<f16> p) {
    delta_step(p);
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
