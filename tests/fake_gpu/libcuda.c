/* A driver without a GPU: device memory is the host's, kernels do nothing, and any call can be made to fail.
 *
 * It has the functions that src/compute/cuda calls, with arguments as wide as the driver's. What is created is counted, so that a
 * test sees whether all of it was released. */
#define _DEFAULT_SOURCE
#include "fake_gpu.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CALLS_MAX = 100000 };
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

static long calls, fail_at, live;
static unsigned long long mapped, left = ~0ull >> 1;
static int maps_in_pieces = 1;
static int fail_code, fail_for_ever, is_capturing;
static const char *failed, *names[CALLS_MAX];

void fake_gpu_fail(long call, int code, int for_ever) {
  calls = 0;
  fail_at = call;
  fail_code = code;
  fail_for_ever = for_ever;
  failed = NULL;
}
long fake_gpu_calls(void) { return calls; }
long fake_gpu_live(void) { return live; }
unsigned long long fake_gpu_mapped(void) { return mapped; }
void fake_gpu_leave(unsigned long long bytes) { left = bytes; }
void fake_gpu_map_in_pieces(int can) { maps_in_pieces = can; }
const char *fake_gpu_failed(void) { return failed; }
const char *fake_gpu_name(long call) { return call < CALLS_MAX ? names[call] : ""; }

static int fails(const char *function) {
  calls++;
  if (fail_at == 0 && calls < CALLS_MAX) names[calls] = function;
  if (fail_at == 0 || (fail_for_ever ? calls < fail_at : calls != fail_at)) return SUCCESS;
  if (failed == NULL) failed = function;
  return fail_code;
}

/* A call that makes something: not where it fails. */
#define MAKE(to, what)                   \
  do {                                   \
    int code = fails(__func__);          \
    if (code != SUCCESS) return code;    \
    void *made = (what);                 \
    if (made == NULL) return OUT_OF_MEMORY; \
    live++;                              \
    memcpy((to), &made, sizeof made);    \
    return SUCCESS;                      \
  } while (0)
/* A call that releases something does so even where it fails: that is what a lost device does. */
#define RELEASE(what)    \
  do {                   \
    live--;              \
    free(what);          \
    return fails(__func__); \
  } while (0)
#define ANSWER(statement)                       \
  do {                                          \
    int code = fails(__func__);                 \
    if (code == SUCCESS) { statement; }         \
    return code;                                \
  } while (0)

int cuDriverGetVersion(int *version) { ANSWER(*version = 13000); }
int cuInit(unsigned flags) { (void)flags; ANSWER(); }
int cuDeviceGetCount(int *count) { ANSWER(*count = 1); }
int cuDeviceGet(int *device, int ordinal) { ANSWER(*device = ordinal); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  int number = 1;
  switch (attribute) {
    case 16: number = 2; break;            /* multiprocessors */
    case 75: number = 9; break;            /* compute capability, major */
    case 76: number = 0; break;            /* and minor */
    case 81: number = 233472; break;       /* shared memory of a multiprocessor */
    case 102: number = maps_in_pieces; break;
    case 97: number = 232448; break;       /* shared memory that a thread block may take */
  }
  ANSWER(*value = number);
}
int cuDeviceGetPCIBusId(char *text, int len, int device) { ANSWER(snprintf(text, (size_t)len, "0000:0%d:00.0", device + 1)); }
int cuDeviceGetUuid_v2(void *uuid, int device) { ANSWER(memset(uuid, device + 1, 16)); }

static char primary;
static void *current;
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
  (void)device;
  ANSWER(*flags = 0; *is_active = 0);
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; MAKE(context, &primary); }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; RELEASE(NULL); }
int cuCtxSetCurrent(void *context) { ANSWER(current = context); }
int cuCtxGetCurrent(void **context) { ANSWER(*context = current); }

int cuCtxGetStreamPriorityRange(int *lowest, int *highest) { ANSWER(*lowest = 0; *highest = -5); }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  (void)flags;
  (void)priority;
  MAKE(stream, malloc(1));
}
int cuStreamDestroy_v2(void *stream) { RELEASE(stream); }
int cuStreamSynchronize(void *stream) { (void)stream; ANSWER(); }
int cuStreamIsCapturing(void *stream, int *status) { (void)stream; ANSWER(*status = is_capturing); }
int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream; (void)mode; ANSWER(is_capturing = 1); }
int cuStreamEndCapture(void *stream, void **graph) {
  (void)stream;
  if (!is_capturing) return INVALID_VALUE;
  is_capturing = 0;
  MAKE(graph, malloc(1));
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  (void)graph;
  (void)flags;
  MAKE(executable, malloc(1));
}
int cuGraphLaunch(void *executable, void *stream) { (void)executable; (void)stream; ANSWER(); }
int cuGraphDestroy(void *graph) { RELEASE(graph); }
int cuGraphExecDestroy(void *executable) { RELEASE(executable); }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { ANSWER(*free_bytes = (size_t)1 << 30; *total = (size_t)2 << 30); }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { MAKE(address, calloc(bytes, 1)); }
int cuMemFree_v2(uint64_t address) { RELEASE((void *)(uintptr_t)address); }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { (void)flags; MAKE(memory, malloc(bytes)); }
int cuMemFreeHost(void *memory) { RELEASE(memory); }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void *stream) {
  (void)stream;
  ANSWER(memset((void *)(uintptr_t)address, value, bytes));
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  (void)stream;
  ANSWER(memcpy((void *)(uintptr_t)to, from, bytes));
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  (void)stream;
  ANSWER(memcpy(to, (const void *)(uintptr_t)from, bytes));
}

/* Memory in pieces: reserved addresses cannot be touched before something is mapped there. */
enum { PIECE = 2 << 20 };
int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
  (void)properties;
  (void)option;
  ANSWER(*granularity = PIECE);
}
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, unsigned long long flags) {
  (void)alignment;
  (void)wanted;
  (void)flags;
  int code = fails(__func__);
  if (code != SUCCESS) return code;
  if (bytes == 0 || bytes % PIECE != 0) return INVALID_VALUE;
  void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return OUT_OF_MEMORY;
  live++;
  *address = (uint64_t)(uintptr_t)start;
  return SUCCESS;
}
int cuMemAddressFree(uint64_t address, size_t bytes) {
  live--;
  munmap((void *)(uintptr_t)address, bytes);
  return fails(__func__);
}
int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, unsigned long long flags) {
  (void)properties;
  (void)flags;
  int code = fails(__func__);
  if (code != SUCCESS) return code;
  if (bytes == 0 || bytes % PIECE != 0) return INVALID_VALUE;
  if (bytes > left) return OUT_OF_MEMORY;
  live++;
  *handle = bytes;
  return SUCCESS;
}
int cuMemRelease(uint64_t handle) {
  (void)handle;
  live--;
  return fails(__func__);
}
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
  (void)offset;
  (void)flags;
  int code = fails(__func__);
  if (code != SUCCESS) return code;
  if (handle != bytes || bytes > left) return INVALID_VALUE;
  live++;
  mapped += bytes;
  left -= bytes;
  (void)address;
  return SUCCESS;
}
int cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count) {
  (void)access;
  (void)count;
  ANSWER(mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE));
}
int cuMemUnmap(uint64_t address, size_t bytes) {
  live--;
  mapped -= bytes;
  madvise((void *)(uintptr_t)address, bytes, MADV_DONTNEED);
  mprotect((void *)(uintptr_t)address, bytes, PROT_NONE);
  return fails(__func__);
}

int cuModuleLoadData(void **module, const void *image) { (void)image; MAKE(module, malloc(1)); }
int cuModuleUnload(void *module) { RELEASE(module); }
int cuModuleGetFunction(void **function, void *module, const char *name) { (void)name; ANSWER(*function = module); }
int cuFuncSetAttribute(void *function, int attribute, int value) { (void)function; (void)attribute; (void)value; ANSWER(); }
int cuFuncGetAttribute(int *value, int attribute, void *function) { (void)attribute; (void)function; *value = 90; ANSWER(); }
int cuFuncLoad(void *function) { (void)function; ANSWER(); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared_bytes) {
  (void)function;
  (void)threads;
  (void)shared_bytes;
  ANSWER(*blocks = 1);
}
int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *config) {
  (void)function;
  (void)config;
  ANSWER(*clusters = 1);
}
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  (void)stream;
  int code = fails(__func__);
  if (code == SUCCESS && !is_capturing) function(argument);
  return code;
}
int cuLaunchKernelEx(const void *config, void *function, void **arguments, void **extra) {
  (void)config;
  (void)function;
  (void)arguments;
  (void)extra;
  ANSWER();
}

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *dimensions, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
  (void)type;
  (void)rank;
  (void)at;
  (void)dimensions;
  (void)strides;
  (void)box;
  (void)steps;
  (void)interleave;
  (void)swizzle;
  (void)promotion;
  (void)fill;
  ANSWER(memset(map, 0, 128));
}

int cuEventCreate(void **event, unsigned flags) { (void)flags; MAKE(event, malloc(1)); }
int cuEventDestroy_v2(void *event) { RELEASE(event); }
int cuEventRecord(void *event, void *stream) { (void)event; (void)stream; ANSWER(); }
int cuEventSynchronize(void *event) { (void)event; ANSWER(); }
int cuEventQuery(void *event) { (void)event; ANSWER(); }
int cuEventElapsedTime_v2(float *milliseconds, void *first, void *second) {
  (void)first;
  (void)second;
  ANSWER(*milliseconds = 0.1f);
}
