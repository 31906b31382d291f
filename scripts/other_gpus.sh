#!/bin/sh
# Compiles the kernels for the GPUs that CI's library has no kernels for, to check that they compile: with few optimizations, into nothing.
#   other_gpus.sh CUDA_HOME
#
# The kernels differ by `__CUDA_ARCH__ >= 900` alone, so that two passes of the compiler serve all assemblers. Files for compute capability
# 9.0 alone, which build_kernels.rs lists, have no other form.
set -eu
nvcc=${1:?usage: other_gpus.sh CUDA_HOME}/bin/nvcc
cd "$(dirname "$0")/.."
only=$(sed -n 's/^const HOPPER: .* = \[\(.*\)\];$/\1/p' build_kernels.rs | tr -d '" ' | tr ',' '\n')
[ -n "$only" ] || { echo "other_gpus.sh: build_kernels.rs has no list of files for compute capability 9.0" >&2; exit 1; }
# The largest first.
# shellcheck disable=SC2012 # names of this folder, without spaces
ls -S kernels/*.cu | while read -r file; do
    name=$(basename "$file" .cu)
    printf '%s\n' "$only" | grep -qx "$name" || echo "$file"
done | xargs -P "$(nproc)" -I FILE "$nvcc" -std=c++17 -Ofc=max -w -fatbin -o /dev/null \
    -gencode=arch=compute_80,code='[sm_80,sm_86,sm_89]' -gencode=arch=compute_90,code='[sm_100,sm_120]' FILE
echo "the kernels compile for compute capabilities 8.0, 8.6, 8.9, 10.0 and 12.0"
