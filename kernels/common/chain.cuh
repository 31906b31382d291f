// Programmatic dependent launch: a kernel may begin while those before it run.
//
// Every grid calls `wait_for_previous` in at least one thread block, in each thread that touches memory which an earlier kernel of the
// step reads or writes. As a grid has ended only when all its thread blocks have, whoever was let through knows that all kernels
// before it have ended, not only the last one. `let_next_begin` comes first: the next kernel may then load what is
// older than the step (weights, the plan, earlier keys) and waits by itself. Only `embedding`, which begins a step, waits first, and
// so does `copy_blocks`: no kernel of a step begins before all that came before the step has ended. Launched without the
// attribute, both are no-ops.
#pragma once

__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
