// Brings a batch from pinned memory of the host to the device. Layout: src/compute/cuda/device_batch.rs.
//
// A few kilobytes, bound by the way to the host and back: all are asked for at once. The copy engine would take as long, and the device waits
// when work passes from a kernel to the engine and back.
#include "common/numbers.cuh"

struct UploadParams {
    uint4* to;
    const uint4* from;  // on the host
    int count;          // of 16 bytes each, from the beginning
    int behind;         // where parts besides begin
    int stride;         // from one part to the next
    int behind_count;   // in a part
    int parts;
};

// Grid [any number], block [256]. Neither waits nor lets the next kernel begin early: a pass begins when its batch is there.
extern "C" __global__ void nvllm_k_upload(const __grid_constant__ UploadParams p) {
    const int all = p.count + p.parts * p.behind_count;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
        int at = i;
        if (i >= p.count) {
            const int part = (i - p.count) / p.behind_count;
            at = p.behind + part * p.stride + (i - p.count) % p.behind_count;
        }
        p.to[at] = __ldcv(p.from + at);
    }
}
