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
export CARGO_MANIFEST_DIR=$PWD RUST_BACKTRACE=0
mkdir -p "$scratch"

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== every op against its reference on the CPU"
"$programs/cuda_agree" --include-ignored --test-threads 1 | grep -v "^$"
without_reference="--skip real_shape --skip a_large_prefix"
echo "== whole models against transformers, the CPU and themselves"
if [ -e "$scratch/reference/reference.safetensors" ] ||
    { rm -rf "$scratch/reference" && python3 tests/golden/make_golden.py --large "$scratch/reference"; }; then
    export NVLLM_TEST_REFERENCE=$scratch/reference
    without_reference=
fi
"$programs/cuda_model" --include-ignored $without_reference --test-threads 1 --nocapture | grep -v "^$"
echo "== embeddings, saved prefixes, forks, weights in codes"
"$programs/cuda_state" --include-ignored $without_reference --test-threads 1 --nocapture | grep -v "^$"
"$programs/cuda_quantized" --include-ignored --test-threads 1 --nocapture | grep -v "^$"
"$programs/cuda_memory" --include-ignored --test-threads 1 --nocapture | grep -v "^$"
echo "== ceilings"
"$programs/kernels" ceiling
for shape in qwen3-0.6b qwen3-8b; do
    echo "== $shape"
    "$programs/throughput" $shape "$scratch/$shape"
done
echo "== a budget of 4 ms"
"$programs/frames" models/demo cuda
"$programs/frames" "$scratch/qwen3-0.6b" cuda
