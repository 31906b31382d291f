// Tensor-core products of a warpgroup (compute capability 9.0 alone), the bulk copies by tensor map that feed them, and the barriers
// that such copies signal.
//
// A and B lie in shared memory in rows of 64 numbers (128 bytes), swizzled as the copies write them: the 16-byte chunk c of row r lies
// at chunk c ^ (r % 8), and eight rows begin at a multiple of 1,024 bytes. The accumulator of 64 x N: thread t of the warpgroup holds rows
// 16 (t / 32) + (t % 32) / 4 and that plus 8; d[4 j], d[4 j + 1] are columns 8 j + 2 (t % 4) and the next of the first row, d[4 j + 2],
// d[4 j + 3] those of the second.
#pragma once

#include "tensor_core.cuh"

// Of three dimensions: 64 columns, rows, and the 64s of columns. Of two halves of rows, five: 64 columns, 8 rows, the halves, the eights of
// a half, and the 64s of columns.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

// What a product needs to know of a matrix of rows of 64 numbers that begins at this shared address, where k is along the rows.
__device__ inline uint64_t matrix_descriptor(uint32_t at) {
    const uint64_t swizzle_128_bytes = 1ull << 62, between_eights = 1024 >> 4, unused = 1;
    return swizzle_128_bytes | between_eights << 32 | unused << 16 | (at & 0x3ffff) >> 4;
}

// The same where k is down the rows, 16 of them. `columns_bytes`: from the first 64 columns of N to the next.
__device__ inline uint64_t transposed_descriptor(uint32_t at, uint32_t columns_bytes) {
    const uint64_t swizzle_128_bytes = 1ull << 62, between_eights = 1024 >> 4;
    return swizzle_128_bytes | between_eights << 32 | uint64_t(columns_bytes >> 4) << 16 | (at & 0x3ffff) >> 4;
}

__device__ inline void warpgroup_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void warpgroup_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `Pending` of this warpgroup's groups of products are under way.
template <int Pending>
__device__ inline void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// d += a b^T: 64 x 16 of A, N x 16 of B.
template <class T, int N>
__device__ void warpgroup_mma(float (&d)[N / 2], uint64_t a, uint64_t b);
// d = a b^T
template <class T, int N>
__device__ void warpgroup_mma_first(float (&d)[N / 2], uint64_t a, uint64_t b);
// d += a b: A is in registers, as a fragment of `mma` that each warp holds of its 16 rows, and B is 16 x N, of a transposed descriptor.
template <class T, int N>
__device__ void warpgroup_mma_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define R1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define R2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define R3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define R4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define R5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define R6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define R7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define R8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define R9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define R10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define R11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define R12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define R13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define R14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define R15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define WARPGROUP_MMA_FIRST(n, dtype, name, registers, a_at, b_at, ...)                                                      \
    template <>                                                                                                                    \
    __device__ inline void warpgroup_mma_first<dtype, n>(float (&d)[n / 2], uint64_t a, uint64_t b) {                              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" registers "}, " a_at ", " b_at ", 0, 1, 1, 0, 0;" \
                     : __VA_ARGS__                                                                                                 \
                     : "l"(a), "l"(b));                                                                                            \
    }
#define WARPGROUP_MMA_REGISTERS(n, dtype, name, registers, a_at, b_at, ...)                                                  \
    template <>                                                                                                                    \
    __device__ inline void warpgroup_mma_registers<dtype, n>(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b) {              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" registers "}, {" a_at "}, " b_at ", 1, 1, 1, 1;" \
                     : __VA_ARGS__                                                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                        \
    }
#define WARPGROUP_MMA(n, dtype, name, registers, a_at, b_at, ...)                                                            \
    template <>                                                                                                                    \
    __device__ inline void warpgroup_mma<dtype, n>(float (&d)[n / 2], uint64_t a, uint64_t b) {                                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" registers "}, " a_at ", " b_at ", 1, 1, 1, 0, 0;" \
                     : __VA_ARGS__                                                                                                 \
                     : "l"(a), "l"(b));                                                                                            \
    }
WARPGROUP_MMA(16, bf16, "bf16", R0, "%8", "%9", D8(0))
WARPGROUP_MMA(16, f16, "f16", R0, "%8", "%9", D8(0))
WARPGROUP_MMA(32, bf16, "bf16", R0 R1, "%16", "%17", D8(0), D8(8))
WARPGROUP_MMA(32, f16, "f16", R0 R1, "%16", "%17", D8(0), D8(8))
WARPGROUP_MMA(64, bf16, "bf16", R0 R1 R2 R3, "%32", "%33", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA(64, f16, "f16", R0 R1 R2 R3, "%32", "%33", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA(96, bf16, "bf16", R0 R1 R2 R3 R4 R5, "%48", "%49", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40))
WARPGROUP_MMA(96, f16, "f16", R0 R1 R2 R3 R4 R5, "%48", "%49", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40))
WARPGROUP_MMA(128, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7, "%64", "%65", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA(128, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7, "%64", "%65", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA(192, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11, "%96", "%97", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88))
WARPGROUP_MMA(192, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11, "%96", "%97", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88))
WARPGROUP_MMA(256, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128", "%129", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA(256, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128", "%129", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA_FIRST(32, bf16, "bf16", R0 R1, "%16", "%17", D8(0), D8(8))
WARPGROUP_MMA_FIRST(32, f16, "f16", R0 R1, "%16", "%17", D8(0), D8(8))
WARPGROUP_MMA_FIRST(64, bf16, "bf16", R0 R1 R2 R3, "%32", "%33", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA_REGISTERS(64, bf16, "bf16", R0 R1 R2 R3, "%32,%33,%34,%35", "%36", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA_FIRST(64, f16, "f16", R0 R1 R2 R3, "%32", "%33", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA_REGISTERS(64, f16, "f16", R0 R1 R2 R3, "%32,%33,%34,%35", "%36", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA_FIRST(128, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7, "%64", "%65", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA_REGISTERS(128, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7, "%64,%65,%66,%67", "%68", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA_FIRST(128, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7, "%64", "%65", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA_FIRST(192, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11, "%96", "%97", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88))
WARPGROUP_MMA_FIRST(192, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11, "%96", "%97", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88))
WARPGROUP_MMA_FIRST(256, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128", "%129", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA_FIRST(256, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128", "%129", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA_REGISTERS(128, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7, "%64,%65,%66,%67", "%68", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA_REGISTERS(256, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128,%129,%130,%131", "%132", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA_REGISTERS(256, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128,%129,%130,%131", "%132", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
#undef WARPGROUP_MMA_FIRST
#undef WARPGROUP_MMA_REGISTERS
#undef WARPGROUP_MMA

// d += a b^T: A is in registers as above, and B is N x 16.
template <class T, int N>
__device__ void warpgroup_mma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);
#define WARPGROUP_MMA(n, dtype, name, registers, a_at, b_at, ...)                                                                  \
    template <>                                                                                                                    \
    __device__ inline void warpgroup_mma<dtype, n>(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b) {                        \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" registers "}, {" a_at "}, " b_at ", 1, 1, 1, 0;" \
                     : __VA_ARGS__                                                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                        \
    }
WARPGROUP_MMA(16, bf16, "bf16", R0, "%8,%9,%10,%11", "%12", D8(0))
WARPGROUP_MMA(16, f16, "f16", R0, "%8,%9,%10,%11", "%12", D8(0))
WARPGROUP_MMA(32, bf16, "bf16", R0 R1, "%16,%17,%18,%19", "%20", D8(0), D8(8))
WARPGROUP_MMA(32, f16, "f16", R0 R1, "%16,%17,%18,%19", "%20", D8(0), D8(8))
WARPGROUP_MMA(64, bf16, "bf16", R0 R1 R2 R3, "%32,%33,%34,%35", "%36", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA(64, f16, "f16", R0 R1 R2 R3, "%32,%33,%34,%35", "%36", D8(0), D8(8), D8(16), D8(24))
WARPGROUP_MMA(128, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7, "%64,%65,%66,%67", "%68", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA(128, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7, "%64,%65,%66,%67", "%68", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56))
WARPGROUP_MMA(256, bf16, "bf16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128,%129,%130,%131", "%132", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
WARPGROUP_MMA(256, f16, "f16", R0 R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R14 R15, "%128,%129,%130,%131", "%132", D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120))
#undef WARPGROUP_MMA
#undef D8

// The warps of a warpgroup hand registers back, or get more of them: to V for each thread, a multiple of 8. All four call it.
template <int V>
__device__ inline void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(V));
}
template <int V>
__device__ inline void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(V));
}

// True in one lane of the warp, and known to the compiler to be.
__device__ inline bool elect_lane() {
    uint32_t is_elected;
    asm volatile("{\n.reg .pred is;\nelect.sync _|is, 0xffffffff;\nselp.u32 %0, 1, 0, is;\n}" : "=r"(is_elected));
    return is_elected;
}
__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// What this thread has stored in shared memory, the copy engine and the tensor cores see.
__device__ inline void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// What this thread sees in global memory, the copies that it begins see.
__device__ inline void fence_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
// The cluster and the copy engine see the barriers that this thread has initialized.
__device__ inline void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async_shared();
}
// Arrives, and expects that copies of `bytes` complete in this phase.
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of the phase of this parity.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_over;
    do {
        asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!is_over);
}
__device__ inline void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Begins a copy of the map's box at (`row`, 64 * `chunk`) to shared memory; its bytes complete at `barrier`. `policy`: of the
// second-level cache.
__device__ inline void copy_box(uint32_t to, const TensorMap* map, int row, int chunk, uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
            to),
        "l"(map), "r"(0), "r"(row), "r"(chunk), "r"(barrier), "l"(policy)
        : "memory");
}

// The same of a matrix that is two halves of rows, one over the other: the box has eight rows of the first half, the same eight of the
// second, the next eight of the first. `eight`: where it begins in each half.
__device__ inline void copy_box_of_halves(uint32_t to, const TensorMap* map, int eight, int chunk, uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(
            to),
        "l"(map), "r"(0), "r"(eight), "r"(chunk), "r"(barrier), "l"(policy)
        : "memory");
}

// The same of a map of two dimensions, at (`column`, `row`).
__device__ inline void copy_flat_box(uint32_t to, const TensorMap* map, int column, int row, uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
        : "memory");
}

// Begins a copy of a box from shared memory to the map's matrix at (`column`, `row`); what lies beyond the matrix is not stored.
__device__ inline void store_box(const TensorMap* map, int column, int row, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column), "r"(row), "r"(from)
                 : "memory");
}
// Ends a group of this thread's copies to a matrix.
__device__ inline void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until this thread's groups have read shared memory.
__device__ inline void stores_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until they are done.
__device__ inline void stores_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Begins a copy from this thread block's shared memory to that of thread block `rank` of the cluster; its bytes complete at the barrier
// that lies there where `barrier` lies here.
__device__ inline void copy_to_rank(uint32_t rank, uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "{\n.reg .b32 there, its_barrier;\nmapa.shared::cluster.u32 there, %1, %0;\nmapa.shared::cluster.u32 its_barrier, %4, %0;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%2], %3, [its_barrier];\n}" ::"r"(rank),
        "r"(to), "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

constexpr uint64_t EVICT_FIRST = 0x12F0000000000000ull, EVICT_NORMAL = 0x1000000000000000ull;

// Begins a copy to shared memory, whose bytes complete at `barrier`: a multiple of 16.
__device__ inline void copy_row(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}
