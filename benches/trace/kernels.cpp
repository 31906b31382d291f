// A library that CUDA loads into a program (CUDA_INJECTION64_PATH), and which writes to TRACE_OUT, when the program ends, when its last kernels ran:
// start and duration in microseconds, what each adds (its end less the latest end before it), name, and grid. Built and used by trace.sh.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

// Kernels that are written: more than a step has.
constexpr size_t LAST = 2000;
constexpr size_t BUFFER_BYTES = 8 << 20;

struct Kernel {
    uint64_t start_ns, end_ns;
    std::string name;
    int grid[3], threads;
};

std::mutex guard;
std::vector<Kernel> kernels;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* records) {
    *bytes = BUFFER_BYTES;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, BUFFER_BYTES));
    *records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
    std::lock_guard<std::mutex> lock(guard);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        const auto* kernel = reinterpret_cast<const KERNEL_RECORD*>(record);
        kernels.push_back({kernel->start, kernel->end, kernel->name ? kernel->name : "unnamed",
                           {kernel->gridX, kernel->gridY, kernel->gridZ}, kernel->blockX});
    }
    std::free(buffer);
}

void write_kernels() {
    cuptiActivityFlushAll(1);
    std::lock_guard<std::mutex> lock(guard);
    const char* path = std::getenv("TRACE_OUT");
    FILE* out = path ? std::fopen(path, "w") : nullptr;
    if (!out || kernels.empty()) return;
    std::sort(kernels.begin(), kernels.end(), [](const Kernel& a, const Kernel& b) { return a.start_ns < b.start_ns; });
    const size_t first = kernels.size() > LAST ? kernels.size() - LAST : 0;
    uint64_t latest_ns = kernels[first].start_ns;
    const uint64_t origin_ns = latest_ns;
    for (size_t i = first; i < kernels.size(); i++) {
        const Kernel& k = kernels[i];
        std::fprintf(out, "%.2f %.2f %.2f %s %dx%dx%d of %d\n", (k.start_ns - origin_ns) * 1e-3, (k.end_ns - k.start_ns) * 1e-3,
                     (double(k.end_ns) - double(latest_ns)) * 1e-3, k.name.c_str(), k.grid[0], k.grid[1], k.grid[2], k.threads);
        latest_ns = std::max(latest_ns, k.end_ns);
    }
    std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    std::atexit(write_kernels);
    return 1;
}
