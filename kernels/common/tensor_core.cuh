// Tensor-core products of 16x8x16, the loads that feed them, and asynchronous copies to shared memory.
//
// In a fragment, lane l stands in row l / 4 and column pair l % 4. A (16x16): registers hold (row, k pair), (row + 8, k pair),
// (row, k pair + 8), (row + 8, k pair + 8). B (16x8): (k pair, column l / 4), (k pair + 8, column l / 4). C (16x8, f32): (row,
// column pair) and (row + 8, column pair).
#pragma once

#include "numbers.cuh"

// c += a * b
template <class T>
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void mma<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma<f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Four 8x8 matrices; lane l names row l % 8 of matrix l / 8 by a shared address.
__device__ inline void load_matrices(uint32_t (&m)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

// Transposes an 8x8 matrix that lies over the lanes.
__device__ inline uint32_t transpose_matrix(uint32_t m) {
    uint32_t t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(m));
    return t;
}

// Begins a copy of 16 bytes to shared memory, or of zeros where `bytes` is 0.
__device__ inline void copy_async(uint32_t to, const void* from, int bytes = 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Begins to bring bytes to the second-level cache: a multiple of 16.
__device__ inline void ask_ahead(const void* at, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
#endif
}

// A hint for data that nothing reads again while it is in the second-level cache: it leaves before what other kernels of the pass share.
__device__ inline uint64_t evict_first_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// As `copy_async`, with a hint.
__device__ inline void copy_async(uint32_t to, const void* from, int bytes, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `Pending` of this thread's commits are under way.
template <int Pending>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Waits for the oldest of `stages - 1` commits: 2 to 6 stages.
__device__ inline void wait_for_oldest_copy(int stages) {
    switch (stages) {
        case 2: wait_for_copies<0>(); break;
        case 3: wait_for_copies<1>(); break;
        case 4: wait_for_copies<2>(); break;
        case 5: wait_for_copies<3>(); break;
        default: wait_for_copies<4>(); break;
    }
}

// Where chunk `chunk` of row `row` lies in a tile of rows of `D` numbers of `BYTES` bytes, in chunks of 16 bytes, such that eight rows
// of one chunk lie in eight different bank groups: swizzled where a row is a multiple of 128 bytes, padded to an odd number of chunks
// elsewhere.
template <int D, int BYTES = 2>
struct Tile {
    static constexpr int CHUNKS = D * BYTES / 16;
    static constexpr bool SWIZZLED = CHUNKS % 8 == 0;
    static constexpr int STRIDE = SWIZZLED ? CHUNKS : (CHUNKS | 1);
    static __device__ int at(int row, int chunk) {
        return row * STRIDE + (SWIZZLED ? chunk ^ (row & 7) : chunk);
    }
};
