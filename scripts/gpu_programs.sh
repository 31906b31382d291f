#!/bin/sh
# Builds the tests and benches that need a GPU, for a machine that has a GPU and no compilers, and the kernels that they read: `kernels`, and
# `kernels-delays`, in which warps pause at random where they wait for each other.
#   gpu_programs.sh FOLDER CUDA_HOME
set -eu
folder=${1:?usage: gpu_programs.sh FOLDER CUDA_HOME} nvcc=${2:?}
cd "$(dirname "$0")/.."
mkdir -p "$folder"
compile() { cargo run --release --locked --quiet --package nanovllm-kernels --bin compile_kernels -- "$1"; }
# The programs are built without nvcc, as those of make test are: they embed no kernels.
unset CUDA_HOME
CUDA_HOME=$nvcc compile "$folder/kernels"
CUDA_HOME=$nvcc NVLLM_CUDA_DELAYS=1 compile "$folder/kernels-delays"
rm -f "$folder"/kernels*/*.stamp
for program in "nanovllm-compute test cuda_agree cuda" "nanovllm test gpu" "nanovllm bench kernels" "nanovllm bench exchange" \
    "nanovllm bench throughput" "nanovllm bench frames"; do
    # shellcheck disable=SC2086 # three words, or four
    set -- $program
    built=$(cargo "$2" --profile release --locked --package "$1" ${4:+--features "$4"} "--$2" "$3" --no-run --message-format json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    strip -o "$folder/$3" "$built"
done
