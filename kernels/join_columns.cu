// Brings the columns together that ranks computed apart. Contract: src/compute/ops/join_columns.rs. Reference: src/compute/cpu/join_columns.rs.
//
// Bound by the latency of the link in decode and by its throughput in prefill. It moves numbers of two bytes as they are; a pair whose
// bits are all set, which is two NaNs, becomes another pair of NaNs, on all ranks.
#include "common/columns.cuh"
#include "common/dependent_launch.cuh"
#include "common/exchange.cuh"

struct JoinColumnsParams {
    Exchange exchange;
    uint16_t* out;         // [rows, out_stride]
    const uint16_t* part;  // [rows, part_stride], from the rank's first column on
    int rows;              // rows * units * 16 bytes fit sender_bytes
    int units;             // groups of eight columns of the widest share
    int out_stride;        // numbers from row to row of out
    int part_stride;       // numbers from row to row of part
    int is_in_place;       // 1: part lies in out
    int starts[8];         // first column of each rank's share
    int lengths[8];        // its columns
};

// Grid [one wave at most], block [any].
extern "C" __global__ void __launch_bounds__(512) nvllm_k_join_columns(const __grid_constant__ JoinColumnsParams p) {
    launch_dependents();
    const Exchange& e = p.exchange;
    const uint32_t parity = parity_of(e);
    const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    grid_dependency_wait();

    const int own = p.lengths[e.rank], own_units = (own + 7) / 8;
    for (int unit = first; unit < p.rows * own_units; unit += threads) {
        const int row = unit / own_units, group = unit % own_units, left = own - group * 8;
        const Eight raw = load_columns(p.part + size_t(row) * p.part_stride + group * 8, left), v = not_empty(raw);
        const size_t at = (size_t(row) * p.units + group) * sizeof(Eight);
        for (int to = 0; to < e.ranks; to++) {
            if (to != e.rank) push(slot_of(e, parity, to, e.rank) + at, v);
        }
        bool is_changed = false;
#pragma unroll
        for (int j = 0; j < 4; j++) is_changed |= v.pair[j] != raw.pair[j];
        if (!p.is_in_place || is_changed) store_columns(p.out + size_t(row) * p.out_stride + p.starts[e.rank] + group * 8, left, v);
    }
    Wait wait;
    for (int from = 0; from < e.ranks; from++) {
        if (from == e.rank) continue;
        const int length = p.lengths[from], units = (length + 7) / 8;
        for (int unit = first; unit < p.rows * units; unit += threads) {
            const int row = unit / units, group = unit % units;
            const size_t at = (size_t(row) * p.units + group) * sizeof(Eight);
            const Eight v = take(slot_of(e, parity, e.rank, from) + at, e, wait);
            store_columns(p.out + size_t(row) * p.out_stride + p.starts[from] + group * 8, length - group * 8, v);
        }
    }
}

// The same where NCCL carries the columns: one kernel packs those of this rank, NCCL gathers the packs of all ranks, and another kernel
// puts them into their places.
struct GatheredColumnsParams {
    uint16_t* out;         // [rows, out_stride]
    const uint16_t* part;  // [rows, part_stride], from the rank's first column on
    uint16_t* gathered;    // [ranks][rows][units][8]
    uint32_t* ended;       // exchanges that have ended, in host memory
    int rows;
    int units;             // groups of eight columns of the widest share
    int out_stride;        // numbers from row to row of out
    int part_stride;       // numbers from row to row of part
    int is_in_place;       // 1: part lies in out
    int rank;
    int ranks;
    int starts[8];         // first column of each rank's share
    int lengths[8];        // its columns
};

// Grid [any], block [any].
extern "C" __global__ void __launch_bounds__(512) nvllm_k_pack_columns(const __grid_constant__ GatheredColumnsParams p) {
    grid_dependency_wait();
    const int own = p.lengths[p.rank], own_units = (own + 7) / 8;
    uint16_t* pack = p.gathered + size_t(p.rank) * p.rows * p.units * 8;
    for (int unit = blockIdx.x * blockDim.x + threadIdx.x; unit < p.rows * own_units; unit += gridDim.x * blockDim.x) {
        const int row = unit / own_units, group = unit % own_units;
        const Eight v = load_columns(p.part + size_t(row) * p.part_stride + group * 8, own - group * 8);
        store_eight(pack + (size_t(row) * p.units + group) * 8, v);
    }
}

// Grid [any], block [any].
extern "C" __global__ void __launch_bounds__(512) nvllm_k_place_columns(const __grid_constant__ GatheredColumnsParams p) {
    grid_dependency_wait();
    const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    if (first == 0) *reinterpret_cast<volatile uint32_t*>(p.ended) += 1;
    for (int from = 0; from < p.ranks; from++) {
        if (from == p.rank && p.is_in_place) continue;
        const int length = p.lengths[from], units = (length + 7) / 8;
        const uint16_t* pack = p.gathered + size_t(from) * p.rows * p.units * 8;
        for (int unit = first; unit < p.rows * units; unit += threads) {
            const int row = unit / units, group = unit % units;
            const Eight v = load_eight(pack + (size_t(row) * p.units + group) * 8);
            store_columns(p.out + size_t(row) * p.out_stride + p.starts[from] + group * 8, length - group * 8, v);
        }
    }
}
