// Powers of two for running softmaxes, which keep their maxima in units of log2.
#pragma once

__device__ inline float power_of_two(float v) {
    float p;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
    return p;
}
