#!/bin/sh
# What nanovllm.dll exports and needs, its version, and whether C and C++ programs link with both import libraries.
#   dll.sh BUILD_DIR
set -eu
build=$(cd "${1:?usage: dll.sh BUILD_DIR}" && pwd)
cd "$(dirname "$0")/../.."
dll=$build/lib/nanovllm.dll
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "dll.sh: $*" >&2
    exit 1
}

x86_64-w64-mingw32-objdump -p "$dll" >"$work/headers"
awk '/\[Ordinal\/Name Pointer\] Table/ { inside = 1; next } inside && !NF { exit } inside { print $NF }' "$work/headers" |
    LC_ALL=C sort >"$work/exported"
diff tests/capi/symbols.txt "$work/exported" >&2 || fail "exported symbols differ from tests/capi/symbols.txt"

# The system has these; a compiler's runtime library would have to be installed.
for needed in $(awk '/DLL Name:/ { print tolower($3) }' "$work/headers"); do
    case $needed in
    kernel32.dll | ntdll.dll | msvcrt.dll | ws2_32.dll | userenv.dll | bcrypt.dll | bcryptprimitives.dll | advapi32.dll) ;;
    ole32.dll | oleaut32.dll | combase.dll | dbghelp.dll | api-ms-win-*.dll) ;;
    *) fail "needs $needed" ;;
    esac
done
for flag in DYNAMIC_BASE NX_COMPAT HIGH_ENTROPY_VA; do
    grep -q "$flag" "$work/headers" || fail "is linked without $flag"
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
x86_64-w64-mingw32-windres -J rc -i "$build/nanovllm.rc" -O rc -o "$work/wanted.rc"
grep -q "\"FileVersion\", \"$version\"" "$build/nanovllm.rc" || fail "Cargo.toml has version $version, the resource another one"
grep -q '\.rsrc' "$work/headers" || x86_64-w64-mingw32-objdump -h "$dll" | grep -q '\.rsrc' || fail "has no version resource"

# Kernels for GPUs lie among the read-only data; without them these have about a million bytes. A DLL that was not
# optimized as a whole has several million bytes more: see cmake/windows.cmake.
bytes=$(wc -c <"$dll")
constants=$((0x$(x86_64-w64-mingw32-objdump -h "$dll" | awk '$2 == ".rdata" { print $3 }')))
[ $((bytes - constants)) -le 13000000 ] || fail "has $bytes bytes, $constants of them constants, but 13,000,000 beside these are allowed"

# Without a dependency on the library of either compiler: what MSVC's linker reads is read by LLVM's too.
if [ -e "$build/lib/nanovllm.lib" ] && command -v "${ZIG:-zig}" >/dev/null; then
    "${ZIG:-zig}" cc -target x86_64-windows-gnu -Iinclude -o "$work/generate.exe" examples/c/generate.c "$build/lib/nanovllm.lib"
    x86_64-w64-mingw32-objdump -p "$work/generate.exe" | grep -q "DLL Name: nanovllm.dll" || fail "nanovllm.lib imports nothing"
fi
echo "$(wc -l <"$work/exported") symbols, version $version, $bytes bytes"
