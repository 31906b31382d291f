// Programmatic dependent launch: a kernel may begin while those before it run.
//
// Every grid calls `grid_dependency_wait` in at least one CTA, in each thread that touches memory which an earlier kernel of the
// pass reads or writes. As a grid has ended only when all its CTAs have, a thread that passes the wait knows that all kernels
// before it have ended, not only the last one. `launch_dependents` comes first: the next kernel may then load what is
// older than the pass (weights, the plan, earlier keys) and waits by itself. Only `embedding`, which begins a pass, waits first, and
// so does `copy_blocks`: no kernel of a pass begins before all that came before the pass has ended. Launched without the
// attribute, both are no-ops.
//
// With `NVLLM_RANDOM_DELAYS` (`NVLLM_CUDA_DELAYS=1` when the library is built) warps pause at random before and after both, so that
// kernels meet in orders that they rarely have: see tests/gpu/delays.rs.
#pragma once

// Every fourth call of a warp pauses for up to 4 us.
__device__ inline void random_delay() {
#ifdef NVLLM_RANDOM_DELAYS
    unsigned word = static_cast<unsigned>(clock64()) + 0x9E3779B9u * (blockIdx.x + 977u * blockIdx.y + threadIdx.x / 32 * 31u);
    word = (word ^ (word >> 16)) * 0x85EBCA6Bu;
    word = (word ^ (word >> 13)) * 0xC2B2AE35u;
    if ((word & 3) == 0) {
        __nanosleep(word >> 20);
    }
#endif
}

__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    random_delay();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    random_delay();
#endif
}

__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    random_delay();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    random_delay();
#endif
}
