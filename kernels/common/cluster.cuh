// Thread blocks of a cluster meet at a barrier and reach into each other's shared memory. Before compute capability 9.0, and launched
// without the attribute, a thread block is alone in its cluster.
#pragma once

#include <stdint.h>

__device__ inline uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

__device__ inline uint32_t cluster_size() {
    uint32_t size = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
    return size;
}

// All threads of the cluster arrive before any goes on, and see what the others wrote.
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// `cluster_sync` in two halves, between which a thread works. Orders no memory: what it announces must be fenced.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// As `cluster_arrive`, and all that wait for it see what the thread wrote before.
__device__ inline void cluster_arrive_after_stores() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Where thread block `rank` of the cluster has what this one has at `at`, in shared memory.
template <class T>
__device__ inline T* in_cluster(T* at, uint32_t rank) {
    T* there = at;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(at), "r"(rank));
#endif
    return there;
}
