// Programmatic dependent launch: a kernel may begin while the one before it ends.
//
// Every kernel calls `wait_for_previous` before it touches memory that another kernel of the step writes, and on every
// path: then the end of a kernel implies the end of all before it. Launched without the attribute, both are no-ops.
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
