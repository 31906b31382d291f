#!/bin/bash
# Checks and measures the engine on a machine with an NVIDIA GPU, which needs neither Rust nor nvcc: only a driver, and
# Python with torch and transformers for the comparison with them. Run it in the root of a checkout.
#   gpu.sh PROGRAMS SCRATCH
#
# PROGRAMS is the folder that `make gpu` filled. Random checkpoints of 20 GB in total are written to SCRATCH and kept there. Prints the
# checks and one table.
set -euo pipefail
programs=$(realpath "${1:?usage: gpu.sh PROGRAMS SCRATCH}")
scratch=${2:?usage: gpu.sh PROGRAMS SCRATCH}
export CARGO_MANIFEST_DIR=$PWD NVLLM_KERNELS_DIR=$programs/kernels RUST_BACKTRACE=0
mkdir -p "$scratch"

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== every op against its reference on the CPU"
tests() {
    program=$1
    shift
    "$programs/$program" --include-ignored --test-threads 1 "$@" | grep -v "^$"
}
tests cuda_agree
without_reference="--skip real_shape --skip a_large_prefix"
if [ -e "$scratch/reference/reference.safetensors" ] ||
    { rm -rf "$scratch/reference" && python3 tests/golden/make_golden.py --large "$scratch/reference"; }; then
    export NVLLM_TEST_REFERENCE=$scratch/reference
    without_reference=
fi
echo "== whole models against transformers, the CPU and themselves; embeddings, saved prefixes, forks, quantized weights, memory"
# shellcheck disable=SC2086 # some words, or none
tests gpu $without_reference --nocapture model:: state:: quantized:: memory::
echo "== with warps that pause at random where they wait for each other"
NVLLM_KERNELS_DIR=$programs/kernels-delays tests gpu delays::
if [ "$(nvidia-smi --list-gpus | wc -l)" -gt 1 ]; then
    echo "== several GPUs: threads and processes that compute one model together"
    tests gpu parallel:: processes::
fi
echo "== ceilings"
"$programs/kernels" ceiling
for shape in qwen3-0.6b qwen3-8b; do
    echo "== $shape"
    "$programs/throughput" $shape "$scratch/$shape"
done
echo "== a budget of 4 ms"
"$programs/frames" models/demo cuda
"$programs/frames" "$scratch/qwen3-0.6b" cuda
