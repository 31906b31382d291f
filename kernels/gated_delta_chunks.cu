// The gated delta rule of prompts, in chunks of 64 tokens (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024, section 3.3). Contract:
// src/compute/ops/gated_delta.rs. Reference: src/compute/cpu/gated_delta.rs. Rows of few tokens are those of gated_delta.cu.
//
// With g the sum of the logarithms of the decays of a chunk up to a token, and S the state before the chunk:
//
//   A[i][j] = beta[i] exp(g[i] - g[j]) k[i] k[j]^T for j < i
//   (1 + A) U = beta (V - exp(g) K S)
//   out = exp(g) Q S + P U, P[i][j] = exp(g[i] - g[j]) q[i] k[j]^T for j <= i
//   S = exp(g[last]) S + sum over i of exp(g[last] - g[i]) k[i]^T U[i]
//
// Products are those of tensor cores over numbers of type T; sums, the state and the solution of the triangular system are f32. So results round as a
// prompt is cut into chunks, which batch-invariant passes do without.
//
// Bound by the chain from chunk to chunk: a thread block computes a value head of a row, and the state stays in its registers.
#include "common/dependent_launch.cuh"
#include "common/fragments.cuh"
#include "common/gated_delta.cuh"
#include "common/states.cuh"

constexpr int CHUNK = 64, DIM = 128, THREADS = 256, TOKENS_OF_WARP = CHUNK / (THREADS / 32);
// Numbers from one row to the next, such that what a warp stores lies in different banks.
constexpr int RIGHT_STRIDE = DIM + 8, BELOW_STRIDE = CHUNK + 4;

using Wide = Tile<DIM>;      // rows of 128 numbers
using Narrow = Tile<CHUNK>;  // rows of 64

// What lies in shared memory.
template <class T>
struct Shared {
    T keys[CHUNK * DIM];
    T queries[CHUNK * DIM];
    T values[CHUNK * DIM];      // V, then U
    T scaled[CHUNK * DIM];      // exp(g[last] - g) U
    T state[DIM * DIM];
    T scores[CHUNK * CHUNK];    // P
    float right[CHUNK * RIGHT_STRIDE];   // beta (V - exp(g) K S)
    float below[CHUNK * BELOW_STRIDE]; // A, transposed: a row for each column
    float g[CHUNK], beta[CHUNK], total_of_first;
};

// Grid [value_heads, rows], block [THREADS], shared [Shared].
template <class T>
__device__ void gated_delta_chunks(const GatedDeltaParams<T>& p) {
    extern __shared__ __align__(128) uint8_t raw[];
    Shared<T>& shared = *reinterpret_cast<Shared<T>*>(raw);
    launch_dependents();
    const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int key_head = p.is_tiled ? head % p.key_heads : head / (p.value_heads / p.key_heads);
    const float rate = p.decays[head], bias = p.decays[p.value_heads + head];
    grid_dependency_wait();
    const int first = p.row_starts[row], end = p.row_starts[row + 1];
    const uint32_t slot = p.slots[row], source = p.sources[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE || end - first <= p.tokens_max) return;

    const int key_width = p.key_heads * DIM;
    const T* const query = p.qkv + key_head * DIM;
    const T* const key = query + key_width;
    const T* const value = p.qkv + 2 * key_width + head * DIM;

    // Rows 16 warp + lane / 4 and 8 more of the state, columns 8 n + 2 (lane % 4) and one more: the fragments of products.
    float state[DIM / 8][4];
    const auto state_at = [&](uint32_t of, int n, int half) {
        return p.states + of * p.slot_numbers + (size_t(head) * DIM + warp * 16 + lane / 4 + half * 8) * DIM + n * 8 + lane % 4 * 2;
    };
    const auto store_state = [&](uint32_t to) {
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) *reinterpret_cast<float2*>(state_at(to, n, h)) = make_float2(state[n][2 * h], state[n][2 * h + 1]);
        }
    };
    const auto share_state = [&] {
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                store_pair<Wide>(shared.state, warp * 16 + lane / 4 + h * 8, n * 8 + lane % 4 * 2, narrow2<T>(state[n][2 * h], state[n][2 * h + 1]));
            }
        }
    };
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float2 v = source == NO_STATE ? make_float2(0.0f, 0.0f) : *reinterpret_cast<const float2*>(state_at(source, n, h));
            state[n][2 * h] = v.x, state[n][2 * h + 1] = v.y;
        }
    }
    share_state();

    for (int start = first; start < end;) {
        // All that a chunk reads is on its way at once. A lane has four numbers of the queries, keys and values of some tokens.
        uint2 loaded[TOKENS_OF_WARP][3];
#pragma unroll
        for (int i = 0; i < TOKENS_OF_WARP; i++) {
            const int token = start + warp * TOKENS_OF_WARP + i;
            const size_t of = size_t(min(token, end - 1)) * p.qkv_stride + lane * 4;
            loaded[i][0] = *reinterpret_cast<const uint2*>(query + of);
            loaded[i][1] = *reinterpret_cast<const uint2*>(key + of);
            loaded[i][2] = *reinterpret_cast<const uint2*>(value + of);
        }
        const int own = min(start + int(threadIdx.x), end - 1);
        const bool has_own = start + int(threadIdx.x) < end && threadIdx.x < CHUNK;
        const T* const gate = p.gates + size_t(own) * p.gates_stride + head;
        const T b = gate[0], a = gate[p.value_heads];
        const uint32_t own_saved = p.saves[own];

        // The chunk ends where the row does, or behind a token after which the state is kept.
        __shared__ int behind;
        if (threadIdx.x == 0) behind = min(CHUNK, end - start);
        __syncthreads();
        if (has_own && own_saved != NO_STATE) atomicMin(&behind, int(threadIdx.x) + 1);

        // Gates, by the first two warps.
        if (threadIdx.x < CHUNK) {
            float decay = 0.0f, beta = 0.0f;
            if (has_own) {
                beta = 1.0f / (1.0f + __expf(-widen(b)));
                const float x = widen(a) + bias;
                decay = -rate * (x > 20.0f ? x : log1pf(__expf(x)));
            }
#pragma unroll
            for (int lanes = 1; lanes < 32; lanes <<= 1) {
                const float before = __shfl_up_sync(0xffffffffu, decay, lanes);
                if (lane >= lanes) decay += before;
            }
            shared.g[threadIdx.x] = decay;
            shared.beta[threadIdx.x] = beta;
            if (threadIdx.x == 31) shared.total_of_first = decay;
        }
        __syncthreads();
        const int count = behind;
        if (threadIdx.x >= 32 && threadIdx.x < CHUNK) shared.g[threadIdx.x] += shared.total_of_first;
        // Keys and queries become unit vectors.
#pragma unroll
        for (int i = 0; i < TOKENS_OF_WARP; i++) {
            const int of = warp * TOKENS_OF_WARP + i;
#pragma unroll
            for (int part = 0; part < 3; part++) {
                uint2 pairs = loaded[i][part];
                if (part < 2) {
                    const float2 a = widen2<T>(pairs.x), b = widen2<T>(pairs.y);
                    const float squares = warp_sum(fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(b.x, b.x, b.y * b.y))));
                    const float scale = rsqrtf(squares + 1e-6f) * (part == 0 ? rsqrtf(float(DIM)) : 1.0f);
                    pairs = make_uint2(narrow2<T>(a.x * scale, a.y * scale), narrow2<T>(b.x * scale, b.y * scale));
                }
                // Nothing comes of tokens behind the chunk.
                if (of >= count) pairs = make_uint2(0, 0);
                T* const to = part == 0 ? shared.queries : part == 1 ? shared.keys : shared.values;
                *reinterpret_cast<uint2*>(reinterpret_cast<uint8_t*>(to) + Wide::at(of, lane / 2) * 16 + lane % 2 * 8) = pairs;
            }
        }
        __syncthreads();
        // Tokens behind the chunk neither decay nor change anything.
        if (threadIdx.x >= count && threadIdx.x < CHUNK) {
            shared.g[threadIdx.x] = shared.g[count - 1];
            shared.beta[threadIdx.x] = 0.0f;
        }
        __syncthreads();

        // A warp has 16 tokens: 32 columns of A and of P, and 64 of K S and of Q S.
        const int of_row = warp % 4 * 16, half = warp / 4;
        float out[8][4] = {};
        {
            float kk[4][4] = {}, qk[4][4] = {}, ks[8][4] = {};
            const bool is_below = half * 32 <= of_row + 15;
            for (int step = 0; step < DIM / 16; step++) {
                uint32_t k[4], q[4];
                load_a<Wide>(k, shared.keys, of_row, step);
                load_a<Wide>(q, shared.queries, of_row, step);
                if (is_below) {
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        uint32_t b[4];
                        load_b<Wide>(b, shared.keys, half * 32 + n * 16, step);
                        mma<T>(kk[2 * n], k, b[0], b[1]);
                        mma<T>(kk[2 * n + 1], k, b[2], b[3]);
                        mma<T>(qk[2 * n], q, b[0], b[1]);
                        mma<T>(qk[2 * n + 1], q, b[2], b[3]);
                    }
                }
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    uint32_t b[4];
                    load_b_of_rows<Wide>(b, shared.state, step, half * 64 + n * 16);
                    mma<T>(ks[2 * n], k, b[0], b[1]);
                    mma<T>(ks[2 * n + 1], k, b[2], b[3]);
                    mma<T>(out[2 * n], q, b[0], b[1]);
                    mma<T>(out[2 * n + 1], q, b[2], b[3]);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = of_row + lane / 4 + h * 8;
                const float g = shared.g[i], beta = shared.beta[i], decayed = __expf(g);
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float score[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int j = half * 32 + n * 8 + lane % 4 * 2 + e;
                        const float factor = j <= i ? __expf(g - shared.g[j]) : 0.0f;
                        shared.below[j * BELOW_STRIDE + i] = j < i ? beta * factor * kk[n][2 * h + e] : 0.0f;
                        score[e] = factor * qk[n][2 * h + e];
                    }
                    store_pair<Narrow>(shared.scores, i, half * 32 + n * 8 + lane % 4 * 2, narrow2<T>(score[0], score[1]));
                }
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const int column = half * 64 + n * 8 + lane % 4 * 2;
                    const float2 pair = widen2<T>(pair_at<Wide>(shared.values, i, column));
                    const float2 right = make_float2(beta * (pair.x - decayed * ks[n][2 * h]), beta * (pair.y - decayed * ks[n][2 * h + 1]));
                    *reinterpret_cast<float2*>(shared.right + i * RIGHT_STRIDE + column) = right;
                    out[n][2 * h] *= decayed, out[n][2 * h + 1] *= decayed;
                }
            }
        }
        __syncthreads();

        // The first four warps solve the system, a thread a column.
        if (threadIdx.x < DIM) {
            const int column = threadIdx.x;
            float u[CHUNK];
#pragma unroll
            for (int i = 0; i < CHUNK; i++) u[i] = shared.right[i * RIGHT_STRIDE + column];
#pragma unroll
            for (int j = 0; j < CHUNK - 1; j++) {
                const float4* const a = reinterpret_cast<const float4*>(shared.below + j * BELOW_STRIDE);
#pragma unroll
                for (int i = (j + 1) / 4; i < CHUNK / 4; i++) {
                    const float4 v = a[i];
                    // Rows up to j have zeros.
                    if (4 * i > j) u[4 * i] = fmaf(-v.x, u[j], u[4 * i]);
                    if (4 * i + 1 > j) u[4 * i + 1] = fmaf(-v.y, u[j], u[4 * i + 1]);
                    if (4 * i + 2 > j) u[4 * i + 2] = fmaf(-v.z, u[j], u[4 * i + 2]);
                    if (4 * i + 3 > j) u[4 * i + 3] = fmaf(-v.w, u[j], u[4 * i + 3]);
                }
            }
            const float last = shared.g[CHUNK - 1];
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                const int place = Wide::at(i, column / 8) * 8 + column % 8;
                shared.values[place] = narrow<T>(u[i]);
                shared.scaled[place] = narrow<T>(u[i] * __expf(last - shared.g[i]));
            }
        }
        __syncthreads();

        const float decay = __expf(shared.g[CHUNK - 1]);
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) state[n][e] *= decay;
        }
#pragma unroll
        for (int step = 0; step < CHUNK / 16; step++) {
            uint32_t k[4];
            load_a_of_columns<Wide>(k, shared.keys, warp * 16, step);
#pragma unroll
            for (int n = 0; n < DIM / 16; n++) {
                uint32_t b[4];
                load_b_of_rows<Wide>(b, shared.scaled, step, n * 16);
                mma<T>(state[2 * n], k, b[0], b[1]);
                mma<T>(state[2 * n + 1], k, b[2], b[3]);
            }
            if (step * 16 > of_row) continue;
            uint32_t a[4];
            load_a<Narrow>(a, shared.scores, of_row, step);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t b[4];
                load_b_of_rows<Wide>(b, shared.values, step, half * 64 + n * 16);
                mma<T>(out[2 * n], a, b[0], b[1]);
                mma<T>(out[2 * n + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = of_row + lane / 4 + h * 8;
            if (i >= count) continue;
            T* const to = p.out + size_t(start + i) * p.out_stride + head * DIM + half * 64 + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < 8; n++) *reinterpret_cast<uint32_t*>(to + n * 8) = narrow2<T>(out[n][2 * h], out[n][2 * h + 1]);
        }
        share_state();
        const uint32_t saved = p.saves[start + count - 1];
        if (saved != NO_STATE) store_state(saved);
        start += count;
    }
    store_state(slot);
}

extern "C" __global__ void __launch_bounds__(THREADS) nvllm_k_gated_delta_chunks_bf16(const __grid_constant__ GatedDeltaParams<bf16> p) {
    gated_delta_chunks(p);
}
extern "C" __global__ void __launch_bounds__(THREADS) nvllm_k_gated_delta_chunks_f16(const __grid_constant__ GatedDeltaParams<f16> p) {
    gated_delta_chunks(p);
}
