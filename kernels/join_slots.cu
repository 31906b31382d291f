// Brings the rows together that ranks computed for the slots of their own experts. Contract: src/compute/ops/join_slots.rs. Reference:
// src/compute/cpu/join_slots.rs.
//
// Bound by the link, as join_columns.cu. Which rank sends a row is known from the choice of experts, which is equal on all ranks and stays on the device: a
// graph that is replayed sends other rows than those when it was recorded.
//
// A rank may have none of the slots. So that every rank hears from each other one in every exchange, as common/exchange.cuh requires, one group of columns
// follows the rows, which says nothing.
#include "common/columns.cuh"
#include "common/dependent_launch.cuh"
#include "common/exchange.cuh"

struct JoinSlotsParams {
    Exchange exchange;
    uint16_t* out;          // [slots, out_stride]: the columns of this rank
    const uint16_t* x;      // [slots, x_stride]: all columns, where this rank has the expert
    const int* experts_of;  // [slots]
    int slots;              // (slots * units + 1) * 16 bytes fit sender_bytes
    int units;              // groups of eight columns of the widest share
    int out_stride;         // numbers from row to row of out
    int x_stride;           // numbers from row to row of x
    int starts[8];          // first column that each rank gets
    int lengths[8];         // and how many
    int experts_end[8];     // the expert after the last one of each rank
};

// The rank that has an expert.
__device__ inline int owner_of(int expert, const int (&experts_end)[8], int ranks) {
    int owner = 0;
    while (owner + 1 < ranks && expert >= experts_end[owner]) owner++;
    return owner;
}

// Grid [one wave at most], block [any].
extern "C" __global__ void __launch_bounds__(512) nvllm_k_join_slots(const __grid_constant__ JoinSlotsParams p) {
    launch_dependents();
    const Exchange& e = p.exchange;
    const uint32_t parity = parity_of(e);
    const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const size_t behind = size_t(p.slots) * p.units * sizeof(Eight);
    grid_dependency_wait();

    if (first < e.ranks && first != e.rank) {
        push(slot_of(e, parity, first, e.rank) + behind, Eight{{NOT_EMPTY, NOT_EMPTY, NOT_EMPTY, NOT_EMPTY}});
    }
    for (int unit = first; unit < p.slots * p.units; unit += threads) {
        const int slot = unit / p.units, group = unit % p.units;
        if (owner_of(p.experts_of[slot], p.experts_end, e.ranks) != e.rank) continue;
        const uint16_t* const row = p.x + size_t(slot) * p.x_stride + group * 8;
        for (int to = 0; to < e.ranks; to++) {
            const int left = p.lengths[to] - group * 8;
            if (left <= 0) continue;
            const Eight v = not_empty(load_columns(row + p.starts[to], left));
            if (to == e.rank) {
                store_columns(p.out + size_t(slot) * p.out_stride + group * 8, left, v);
            } else {
                push(slot_of(e, parity, to, e.rank) + unit * sizeof(Eight), v);
            }
        }
    }
    Wait wait;
    const int own_units = (p.lengths[e.rank] + 7) / 8;
    for (int unit = first; unit < p.slots * own_units; unit += threads) {
        const int slot = unit / own_units, group = unit % own_units;
        const int owner = owner_of(p.experts_of[slot], p.experts_end, e.ranks);
        if (owner == e.rank) continue;
        const size_t at = (size_t(slot) * p.units + group) * sizeof(Eight);
        const Eight v = take(slot_of(e, parity, e.rank, owner) + at, e, wait);
        store_columns(p.out + size_t(slot) * p.out_stride + group * 8, p.lengths[e.rank] - group * 8, v);
    }
    if (first < e.ranks && first != e.rank) take(slot_of(e, parity, e.rank, first) + behind, e, wait);
}

// The same where NCCL carries whole rows: one kernel packs those of this rank's experts, NCCL gathers the packs of all ranks, and another kernel takes the
// columns that this rank gets.
struct GatheredSlotsParams {
    uint16_t* out;          // [slots, out_stride]: the columns of this rank
    const uint16_t* x;      // [slots, x_stride]
    uint16_t* gathered;     // [ranks][slots][units][8]
    uint32_t* ended;        // exchanges that have ended, in host memory
    const int* experts_of;  // [slots]
    int slots;
    int units;              // groups of eight columns of a whole row
    int out_stride;         // numbers from row to row of out
    int x_stride;           // numbers from row to row of x
    int first;              // column that this rank gets first
    int columns;            // and how many
    int rank;
    int ranks;
    int experts_end[8];     // the expert after the last one of each rank
};

// Grid [any], block [any]. Rows begin at multiples of 16 bytes and are as long.
extern "C" __global__ void __launch_bounds__(512) nvllm_k_pack_slots(const __grid_constant__ GatheredSlotsParams p) {
    grid_dependency_wait();
    uint16_t* const pack = p.gathered + size_t(p.rank) * p.slots * p.units * 8;
    for (int unit = blockIdx.x * blockDim.x + threadIdx.x; unit < p.slots * p.units; unit += gridDim.x * blockDim.x) {
        const int slot = unit / p.units, group = unit % p.units;
        if (owner_of(p.experts_of[slot], p.experts_end, p.ranks) != p.rank) continue;
        store_eight(pack + size_t(unit) * 8, load_eight(p.x + size_t(slot) * p.x_stride + group * 8));
    }
}

// Grid [any], block [any].
extern "C" __global__ void __launch_bounds__(512) nvllm_k_place_slots(const __grid_constant__ GatheredSlotsParams p) {
    grid_dependency_wait();
    const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    if (first == 0) *reinterpret_cast<volatile uint32_t*>(p.ended) += 1;
    const int units = (p.columns + 7) / 8;
    for (int unit = first; unit < p.slots * units; unit += threads) {
        const int slot = unit / units, group = unit % units, left = p.columns - group * 8;
        const int owner = owner_of(p.experts_of[slot], p.experts_end, p.ranks);
        const uint16_t* const row = p.gathered + (size_t(owner) * p.slots + slot) * p.units * 8;
        store_columns(p.out + size_t(slot) * p.out_stride + group * 8, left, load_columns(row + p.first + group * 8, left));
    }
}
