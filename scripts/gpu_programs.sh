#!/bin/sh
# Builds the tests and benches that need a GPU, for a machine that has a GPU and no compilers.
#   gpu_programs.sh FOLDER
set -eu
folder=${1:?usage: gpu_programs.sh FOLDER}
cd "$(dirname "$0")/.."
mkdir -p "$folder"
for program in "test cuda_agree" "test cuda_model" "test cuda_state" "test cuda_quantized" "test cuda_memory" "test cuda_parallel" "test cuda_processes" "bench kernels" "bench exchange" "bench throughput" "bench frames"; do
    kind=${program% *} name=${program#* }
    built=$(NVLLM_CUDA=require cargo "$kind" --profile release --locked --"$kind" "$name" --no-run --message-format json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    strip -o "$folder/$name" "$built"
done
