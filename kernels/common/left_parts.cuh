// What CTAs leave for each other of a (row, KV head) that they share: parts of its sums.
#pragma once

#include "numbers.cuh"
#include "softmax.cuh"

// A (row, KV head) that is split over several CTAs.
template <class T>
struct Split {
    T* out;
    unsigned long long begin;  // its first tile on the line
    uint32_t first, last;      // CTAs
    uint32_t arrived_before;   // of them; thread 0 knows
    uint32_t entry, kv_head;
    bool exists;
};

// Four numbers of a part, loaded here and used after what is between.
struct LeftPart {
    float4 value;
    float2 sum;  // maximum and sum of the softmax

    __device__ void load(const float* values, const float2* sums) {
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                     : "l"(values));
        asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(sum.x), "=f"(sum.y) : "l"(sums));
    }
};

template <class T>
__device__ inline void store_shares(T* to, const float4& sum, float total) {
    *reinterpret_cast<uint2*>(to) = make_uint2(narrow2<T>(sum.x / total, sum.y / total), narrow2<T>(sum.z / total, sum.w / total));
}
