#!/bin/sh
# Compiles the CUDA kernels and checks the backend that launches them. Needs no GPU.
#   kernels.sh BUILD_DIR
#
# nvcc is that of CUDA_HOME or PATH. Where there is none, the compiler that NVIDIA publishes on PyPI goes into BUILD_DIR;
# all five packages are pinned, or newer headers would come along and not fit. Six architectures take minutes:
# NVLLM_CUDA_ARCHS=90 names fewer.
set -eu
build=${1:?usage: kernels.sh BUILD_DIR}
cd "$(dirname "$0")/.."

if [ -z "${CUDA_HOME:-}" ] && ! command -v nvcc >/dev/null; then
    python=$(command -v python3) || { echo "kernels.sh: needs nvcc, or python3 to fetch it" >&2; exit 1; }
    if ! [ -x "$build/nvcc/bin/pip" ]; then
        mkdir -p "$build"
        "$python" -m venv "$build/nvcc" || { echo "kernels.sh: needs python3-venv" >&2; exit 1; }
    fi
    "$build/nvcc/bin/pip" install --quiet --disable-pip-version-check nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 \
        nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    CUDA_HOME=$(echo "$(cd "$build" && pwd)"/nvcc/lib/python3*/site-packages/nvidia/cu13)
    export CUDA_HOME
fi
NVLLM_CUDA=require cargo check --release --locked --features cuda
