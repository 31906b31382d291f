/* What a test tells the driver of libcuda.c, and asks it. */
#ifndef NANOVLLM_FAKE_GPU_H
#define NANOVLLM_FAKE_GPU_H

/* Counts calls from 1 again and lets one of them fail with a CUresult, or all from it on; 0 lets none fail. */
void fake_gpu_fail(long call, int code, int for_ever);
/* Calls since. */
long fake_gpu_calls(void);
/* The name of such a call, as it was in the last run in which none failed. */
const char *fake_gpu_name(long call);
/* The function that failed first; NULL while none did. */
const char *fake_gpu_failed(void);
/* Allocations, streams, events, modules, graphs and contexts that were not released. */
long fake_gpu_live(void);
/* Bytes of memory that is mapped in pieces. */
unsigned long long fake_gpu_mapped(void);
/* Bytes that may be mapped in pieces besides; memory that is unmapped counts as taken by others. Without a call, as many as wanted. */
void fake_gpu_leave(unsigned long long bytes);
/* Whether devices map memory in pieces; they do without a call. */
void fake_gpu_map_in_pieces(int can);

#endif
