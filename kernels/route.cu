// The choice of experts. Contract: src/compute/ops/route.rs. Reference: src/compute/cpu/route.rs.
//
// At the launch floor in decode: one warp per token. What experts are chosen by becomes a key of 32 bits that grows with it. The greatest key left is found by
// one reduction, and the first of the experts that have it by another.
//
// `sort_routes` groups the slots by expert for kernels that compute many: one thread block, because the products cannot begin before.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

// As EXPERTS_MAX in src/compute/experts.rs.
constexpr int EXPERTS_MAX = 1024;

template <class T>
struct RouteParams {
    const T* logits;    // [tokens, stride]
    const float* bias;  // [experts], or null
    int* experts_of;    // [tokens, chosen]
    float* weights;     // [tokens, chosen]
    int stride;
    int experts;
    int chosen;         // at most 32
    int is_sigmoid;     // else a softmax
    int by_logits;      // whether logits say what is chosen, else scores and the bias
    int groups;         // at most 64; 1 if there are none
    int kept;           // groups
    int best;           // experts whose sum is the score of a group: 1 or 2
    int is_normed;
    float norm;         // added to the sum of weights
    float scale;
    const float* scales;  // [experts], or null: factors of the weights besides
};

using Key = unsigned long long;

__device__ inline uint32_t growing(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);
    return isnan(value) ? 0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline Key key_of(float value, int index) { return Key(growing(value)) << 32 | (0xffffffffu - uint32_t(index)); }

__device__ inline int index_of(Key key) { return int(0xffffffffu - uint32_t(key)); }

__device__ inline Key warp_max(Key key) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        const Key other = __shfl_xor_sync(0xffffffffu, key, lanes);
        key = other > key ? other : key;
    }
    return key;
}

// The groups to choose from: a bit for each. A lane scores two groups.
__device__ inline uint64_t best_groups(const float* by, int experts, int groups, int kept, int best) {
    const int lane = threadIdx.x % 32, size = experts / groups;
    Key keys[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int group = lane + 32 * i;
        if (group >= groups) continue;
        float first = -INFINITY, second = -INFINITY;
        for (int e = group * size; e < (group + 1) * size; e++) {
            const float v = by[e];
            if (v > first) {
                second = first;
                first = v;
            } else if (v > second) {
                second = v;
            }
        }
        keys[i] = key_of(best == 2 ? first + second : first, group);
    }
    uint64_t bits = 0;
    Key last = ~Key(0);
    for (int n = 0; n < kept; n++) {
        Key next = keys[0] < last ? keys[0] : 0;
        if (keys[1] < last && keys[1] > next) next = keys[1];
        last = warp_max(next);
        bits |= uint64_t(1) << index_of(last);
    }
    return bits;
}

// Grid [tokens], block [32].
template <class T>
__device__ void route(const RouteParams<T>& p) {
    __shared__ float scores[EXPERTS_MAX], by[EXPERTS_MAX];
    const int lane = threadIdx.x;
    launch_dependents();
    grid_dependency_wait();
    const T* const row = p.logits + size_t(blockIdx.x) * p.stride;
    float greatest = -INFINITY;
    for (int e = lane; e < p.experts; e += 32) {
        scores[e] = widen(row[e]);
        greatest = fmaxf(greatest, scores[e]);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, lanes));
    float sum = 0.0f;
    for (int e = lane; e < p.experts; e += 32) {
        const float logit = scores[e];
        by[e] = logit;
        scores[e] = p.is_sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - greatest);
        sum += scores[e];
    }
    sum = p.is_sigmoid ? 1.0f : warp_sum(sum);
    for (int e = lane; e < p.experts; e += 32) {
        scores[e] /= sum;
        if (!p.by_logits) by[e] = scores[e] + (p.bias ? p.bias[e] : 0.0f);
    }
    __syncwarp();

    const uint64_t kept = p.groups > 1 ? best_groups(by, p.experts, p.groups, p.kept, p.best) : ~uint64_t(0);
    const int size = p.experts / p.groups;
    // This lane's experts that may be chosen, a bit for each 32.
    uint32_t left = 0;
    for (int e = lane, i = 0; e < p.experts; e += 32, i++) {
        if (p.groups == 1 || kept >> (e / size) & 1) left |= 1u << i;
        by[e] = __uint_as_float(growing(by[e]));
    }
    float own = 0.0f, factor = 1.0f, total = 0.0f;
    for (int n = 0; n < p.chosen; n++) {
        // Of equal experts the first: that of the lowest index.
        uint32_t greatest_key = 0;
        int index = EXPERTS_MAX;
        for (int e = lane, i = 0; e < p.experts; e += 32, i++) {
            const uint32_t key = __float_as_uint(by[e]);
            if ((left >> i & 1) && (index == EXPERTS_MAX || key > greatest_key)) greatest_key = key, index = e;
        }
        const uint32_t best_key = __reduce_max_sync(0xffffffffu, greatest_key);
        const int best = __reduce_min_sync(0xffffffffu, greatest_key == best_key ? index : EXPERTS_MAX);
        if (best % 32 == lane) left &= ~(1u << best / 32);
        const float score = scores[best];
        total += score;
        if (lane == n) {
            own = score;
            factor = p.scales ? p.scales[best] : 1.0f;
            p.experts_of[blockIdx.x * p.chosen + n] = best;
        }
    }
    if (lane < p.chosen) p.weights[blockIdx.x * p.chosen + lane] = own / (p.is_normed ? total + p.norm : 1.0f) * p.scale * factor;
}

extern "C" __global__ void nvllm_k_route_bf16(const __grid_constant__ RouteParams<bf16> p) { route(p); }
extern "C" __global__ void nvllm_k_route_f16(const __grid_constant__ RouteParams<f16> p) { route(p); }

struct SortRoutesParams {
    const int* experts_of;  // [slots]
    int* order;             // [slots], grouped by expert
    int* tiles;             // [tiles, 4]: expert, first of `order`, how many, nothing
    int* tile_count;
    int slots;
    int experts;
    int rows;               // slots of a tile, at most
};

// Grid [1], block [EXPERTS_MAX]. Which slot of an expert comes first depends on the run, and no result on that.
extern "C" __global__ void __launch_bounds__(EXPERTS_MAX) nvllm_k_sort_routes(const __grid_constant__ SortRoutesParams p) {
    // Of each expert: slots, its next place in `order`, and its first tile.
    __shared__ int counts[EXPERTS_MAX], places[EXPERTS_MAX], first_tiles[EXPERTS_MAX];
    __shared__ uint64_t of_warp[32];
    const int expert = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    launch_dependents();
    counts[expert] = 0;
    __syncthreads();
    grid_dependency_wait();
    for (int slot = threadIdx.x; slot < p.slots; slot += blockDim.x) atomicAdd(&counts[p.experts_of[slot]], 1);
    __syncthreads();
    // Sums over all experts up to this one, of slots below tiles.
    const int count = counts[expert];
    const uint64_t own = uint64_t((count + p.rows - 1) / p.rows) << 32 | uint64_t(count);
    uint64_t upto = own;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes <<= 1) {
        const uint64_t before = __shfl_up_sync(0xffffffffu, (unsigned long long)upto, lanes);
        if (lane >= lanes) upto += before;
    }
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    uint64_t total = 0;
    for (int w = 0; w < 32; w++) {
        if (w < warp) upto += of_warp[w];
        total += of_warp[w];
    }
    const int tiles = int(total >> 32);
    places[expert] = int(uint32_t(upto - own));
    first_tiles[expert] = int((upto - own) >> 32);
    __syncthreads();
    for (int tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
        // The last expert whose tiles begin here or before, which has some.
        int low = 0, high = EXPERTS_MAX;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (first_tiles[middle] <= tile) low = middle; else high = middle;
        }
        const int first = (tile - first_tiles[low]) * p.rows;
        reinterpret_cast<int4*>(p.tiles)[tile] = make_int4(low, places[low] + first, min(p.rows, counts[low] - first), 0);
    }
    if (threadIdx.x == 0) *p.tile_count = tiles;
    __syncthreads();
    for (int slot = threadIdx.x; slot < p.slots; slot += blockDim.x) p.order[atomicAdd(&places[p.experts_of[slot]], 1)] = slot;
}
