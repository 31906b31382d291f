#!/bin/sh
# Builds the library for Linux on ARM64, and tests it with QEMU as several processors.
#   arm64.sh check|all BUILD_DIR
#
# check: the ops whose kernels differ between instruction sets, with dependencies that are compiled without optimization. Some minutes.
# all: the library, the programs, Debian packages and an archive for older systems, with all tests of ops, the golden files and the C tests.
# Half an hour and more.
#
# The cross compiler and QEMU are installed with apt (Debian, Ubuntu), the standard library of the target with rustup.
set -eu
what=${1:?usage: arm64.sh check|all BUILD_DIR} build=${2:?}
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
libraries=/usr/aarch64-linux-gnu
# NEON alone; dot products of bytes besides; everything that QEMU has, bf16 among it.
processors="cortex-a53 neoverse-n1 max"

if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    command -v apt-get >/dev/null || { echo "arm64.sh: needs aarch64-linux-gnu-g++ and qemu-aarch64" >&2; exit 1; }
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -q -y --no-install-recommends g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
fi
if command -v rustup >/dev/null; then
    rustup target add $target
fi

# Without nvcc, which is looked for there alone, the library is built for the CPU: CUDA on ARM64 has not been tried.
export CUDA_HOME=/none
unset NVLLM_CUDA
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $libraries"
as_processors() {
    for processor in $processors; do
        echo "== $processor: $*"
        QEMU_CPU=$processor cargo test --release --locked --target $target "$@"
    done
}

case $what in
check)
    processors="cortex-a53 max"
    as_processors --config 'profile.release.package."*".opt-level=0' --config profile.release.debug=false \
        --target-dir "${CARGO_TARGET_DIR:-target}/arm64-check" --package nanovllm-compute --test ops_agree -- \
        activate sigmoid_mul norm:: rope_and_cache attention::attention_agrees linear::linear_agrees coded::products_with_coded_weights_have integers::
    ;;
all)
    cmake -B "$build/arm64" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_GAME=OFF \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/linux-aarch64.cmake" >/dev/null
    programs="generate layout without_model asked bad_arguments bad_requests ranks stepping batches state threads handover lifecycle model_files"
    # shellcheck disable=SC2086 # a list of words
    cmake --build "$build/arm64" -j "${JOBS:-$(nproc)}" --target $programs nanovllm_tool
    OBJDUMP=aarch64-linux-gnu-objdump tests/package/glibc.sh 2.34 "$build/arm64/lib/libnanovllm.so"
    ctest --test-dir "$build/arm64" --output-on-failure --no-tests=error -j "${JOBS:-$(nproc)}" \
        -R "^(example.generate|capi.($(echo "${programs#generate }" | tr ' ' '|')))$"
    as_processors --package nanovllm-compute --test ops_agree -- --skip distribution
    as_processors --package nanovllm --test library -- golden::
    scripts/deb.sh "$build/arm64" "$build/arm64" -DCMAKE_INSTALL_LIBDIR=lib/aarch64-linux-gnu \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/linux-aarch64.cmake"
    scripts/release.sh linux-arm64 "$build"
    qemu-aarch64 -L $libraries "$build/linux-arm64/examples/generate" --temperature 0 models/demo "list all prime numbers within 100" |
        grep "83.*89.*97"
    ;;
*)
    echo "arm64.sh: check or all, not $what" >&2
    exit 2
    ;;
esac
