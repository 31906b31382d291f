#!/bin/sh
# Compiles the kernels for the GPUs that CI's library has no kernels for, to check that they compile: with few optimizations, into nothing.
#   other_gpus.sh CUDA_HOME
#
# The kernels differ by `__CUDA_ARCH__ >= 900` alone, so that two passes of the compiler serve all assemblers. What is compiled for which GPUs
# stands in kernels/compile.rs; its files for compute capability 9.0 alone have no other form.
set -eu
nvcc=${1:?usage: other_gpus.sh CUDA_HOME}/bin/nvcc
cd "$(dirname "$0")/.."
archs=$(sed -n 's/^const ARCHS: &str = "\(.*\)";$/\1/p' kernels/compile.rs | tr ',' ' ')
only=$(sed -n '/^const HOPPER: /,/];$/p' kernels/compile.rs | sed 's/.*= \[//' | tr ',' '\n' | sed -n 's/.*"\(.*\)".*/\1/p')
[ -n "$archs" ] && [ -n "$only" ] || { echo "other_gpus.sh: kernels/compile.rs has no ARCHS or no HOPPER" >&2; exit 1; }
before= after=
for arch in $archs; do
    case $arch in
    90) ;;
    8?) before=$before,sm_$arch ;;
    *) after=$after,sm_$arch ;;
    esac
done
# The largest first.
# shellcheck disable=SC2012 # names of this folder, without spaces
ls -S kernels/*.cu | while read -r file; do
    name=$(basename "$file" .cu)
    printf '%s\n' "$only" | grep -qx "$name" || echo "$file"
done | xargs -P "$(nproc)" -I FILE "$nvcc" -std=c++17 -Ofc=max -w -fatbin -o /dev/null \
    -gencode=arch=compute_80,code="[${before#,}]" -gencode=arch=compute_90,code="[${after#,}]" FILE
echo "the kernels compile for${before#,}${after}" | tr ',' ' ' | sed 's/forsm/for sm/'
