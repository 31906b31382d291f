// Brings a batch from pinned memory of the host to the device. Layout: src/compute/cuda/device_batch.rs.
//
// A few kilobytes, bound by the way to the host and back: all are asked for at once. The copy engine would take as long, and the device waits
// when work passes from a kernel to the engine and back.
#include "common/numbers.cuh"

struct UploadParams {
    uint4* to;
    const uint4* from;  // on the host
    int count;          // of 16 bytes each
};

// Grid [any number], block [256]. Neither waits nor lets the next kernel begin early: a pass begins when its batch is there.
extern "C" __global__ void nvllm_k_upload(const __grid_constant__ UploadParams p) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
        p.to[i] = __ldcv(p.from + i);
    }
}
