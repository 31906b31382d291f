#!/bin/sh
# Builds the archive of a release, and checks what is in it.
#   release.sh linux|linux-arm64|windows BUILD_DIR
#
# linux, linux-arm64: a library and programs that need glibc 2.28 at most, by zig, which has the symbols of that version. For ARM64 the code
# is compiled with the tools that scripts/arm64.sh installs, without kernels for GPUs.
# windows: nanovllm.dll with import libraries for MinGW and MSVC, and programs, by MinGW.
set -eu
system=${1:?usage: release.sh linux|linux-arm64|windows BUILD_DIR} build=${2:?}
cd "$(dirname "$0")/.."
case $system in
linux | linux-arm64)
    glibc=2.28
    case $system in
    linux) processor=x86_64 cross= ;;
    linux-arm64)
        processor=aarch64
        command -v aarch64-linux-gnu-gcc >/dev/null || { echo "release.sh: needs the tools that scripts/arm64.sh installs" >&2; exit 1; }
        rustup target add aarch64-unknown-linux-gnu 2>/dev/null || true
        cross="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_STRIP=$(command -v aarch64-linux-gnu-strip)
            -DCMAKE_OBJCOPY=$(command -v aarch64-linux-gnu-objcopy)"
        export OBJDUMP=aarch64-linux-gnu-objdump CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        # No nvcc is looked for elsewhere then.
        export CUDA_HOME=/none
        unset NVLLM_CUDA
        ;;
    esac
    bin=$(scripts/zig.sh "$build" $processor-linux-gnu.$glibc)
    # Zig's archives of C++ libraries lie in a cache, so that the second run takes seconds.
    # shellcheck disable=SC2086 # options of a cross build, or none
    cmake -B "$build/$system" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_TESTS=OFF -DNANOVLLM_BUILD_GAME=OFF -DNANOVLLM_LINK_BY_CC=ON \
        -DCMAKE_C_COMPILER="$bin/zig-cc-$processor-linux-gnu.$glibc" -DCMAKE_CXX_COMPILER="$bin/zig-c++-$processor-linux-gnu.$glibc" \
        $cross >/dev/null
    ;;
windows)
    bin=$(scripts/zig.sh "$build")
    rustup target add x86_64-pc-windows-gnu 2>/dev/null || true
    cmake -B "$build/windows" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_GAME=OFF -DNANOVLLM_DLLTOOL="$bin/zig" \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/windows-x86_64.cmake" >/dev/null
    ;;
*)
    echo "release.sh: builds linux, linux-arm64 or windows, not $system" >&2
    exit 2
    ;;
esac
cmake --build "$build/$system" -j "${JOBS:-$(nproc)}"
case $system in
linux*) tests/package/glibc.sh $glibc "$build/$system/lib/libnanovllm.so" "$build/$system/bin/nanovllm" ;;
windows) ZIG=$bin/zig tests/package/dll.sh "$build/windows" ;;
esac
case $system in
linux*)
    # What debuggers need, in an archive of its own that is unpacked over the other one.
    debug=$(mktemp -d)
    trap 'rm -rf "$debug"' EXIT
    name=$(sed -n 's/^set(CPACK_PACKAGE_FILE_NAME "\(.*\)")$/\1/p' "$build/$system/CPackConfig.cmake")
    cmake --install "$build/$system" --prefix "$debug/$name" --component debug >/dev/null
    tar czf "$build/$system/$name-debug.tar.gz" -C "$debug" "$name"
    ;;
esac
(cd "$build/$system" && case $system in linux*) cpack -G TGZ -D CPACK_PACKAGING_INSTALL_PREFIX=/ ;; windows) cpack ;; esac)
