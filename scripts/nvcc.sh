#!/bin/sh
# Prints the CUDA_HOME of an nvcc: that of CUDA_HOME or PATH, or else of the compiler that NVIDIA publishes on PyPI, which is installed
# into BUILD_DIR. All five packages are pinned, because newer headers would be installed otherwise, which are not compatible.
#   nvcc.sh BUILD_DIR
set -eu
build=${1:?usage: nvcc.sh BUILD_DIR}

if [ -n "${CUDA_HOME:-}" ]; then
    echo "$CUDA_HOME"
    exit
fi
if nvcc=$(command -v nvcc); then
    dirname "$(dirname "$nvcc")"
    exit
fi
cd "$(dirname "$0")/.."
python=$(command -v python3) || { echo "nvcc.sh: needs nvcc, or python3 to fetch it" >&2; exit 1; }
if ! [ -x "$build/nvcc/bin/pip" ]; then
    mkdir -p "$build"
    "$python" -m venv "$build/nvcc" >&2 || { echo "nvcc.sh: needs python3-venv" >&2; exit 1; }
fi
"$build/nvcc/bin/pip" install --quiet --disable-pip-version-check nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 >&2
echo "$(cd "$build" && pwd)"/nvcc/lib/python3*/site-packages/nvidia/cu13
