// Programmatic dependent launch: a kernel may begin while the one before it ends.
//
// Every kernel calls `wait_for_previous` on every path, before it touches memory that the kernel before it reads or writes, and
// `let_next_begin` only after that. So a kernel that has begun knows that all kernels but the one just before it have ended. Launched
// without the attribute, both are no-ops.
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
