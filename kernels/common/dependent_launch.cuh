// Programmatic dependent launch: a kernel may begin while those before it run.
//
// Every grid calls `grid_dependency_wait` in at least one CTA, in each thread that touches memory which an earlier kernel of the
// pass reads or writes. As a grid has ended only when all its CTAs have, a thread that passes the wait knows that all kernels
// before it have ended, not only the last one. `launch_dependents` comes first: the next kernel may then load what is
// older than the pass (weights, the plan, earlier keys) and waits by itself. Only `embedding`, which begins a pass, waits first, and
// so does `copy_blocks`: no kernel of a pass begins before all that came before the pass has ended. Launched without the
// attribute, both are no-ops.
#pragma once

__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
