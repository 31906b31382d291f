#!/bin/sh
# Builds the archive of a release, and checks what is in it.
#   release.sh linux|windows BUILD_DIR
#
# linux: a library and programs that need glibc 2.28 at most, by zig, which has the symbols of that version.
# windows: nanovllm.dll with import libraries for MinGW and MSVC, and programs, by MinGW.
set -eu
system=${1:?usage: release.sh linux|windows BUILD_DIR} build=${2:?}
cd "$(dirname "$0")/.."
case $system in
linux)
    glibc=2.28
    bin=$(scripts/zig.sh "$build" x86_64-linux-gnu.$glibc)
    # Zig's archives of C++ libraries lie in a cache, so that the second run takes seconds.
    cmake -B "$build/linux" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_TESTS=OFF -DNANOVLLM_BUILD_GAME=OFF -DNANOVLLM_LINK_BY_CC=ON \
        -DCMAKE_C_COMPILER="$bin/zig-cc-x86_64-linux-gnu.$glibc" -DCMAKE_CXX_COMPILER="$bin/zig-c++-x86_64-linux-gnu.$glibc" >/dev/null
    ;;
windows)
    bin=$(scripts/zig.sh "$build")
    rustup target add x86_64-pc-windows-gnu 2>/dev/null || true
    cmake -B "$build/windows" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_GAME=OFF -DNANOVLLM_DLLTOOL="$bin/zig" \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/windows-x86_64.cmake" >/dev/null
    ;;
*)
    echo "release.sh: builds linux or windows, not $system" >&2
    exit 2
    ;;
esac
cmake --build "$build/$system" -j "${JOBS:-$(nproc)}"
case $system in
linux) tests/package/glibc.sh $glibc "$build/linux/lib/libnanovllm.so" "$build/linux/examples/nanovllm" ;;
windows) ZIG=$bin/zig tests/package/dll.sh "$build/windows" ;;
esac
(cd "$build/$system" && case $system in linux) cpack -G TGZ -D CPACK_PACKAGING_INSTALL_PREFIX=/ ;; windows) cpack ;; esac)
