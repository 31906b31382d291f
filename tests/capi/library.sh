#!/bin/sh
# What the shared object exports, needs, and is called, and whether all versions agree.
#   library.sh LIBRARY PC_FILE
set -eu
library=$1
pc_file=$2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "library.sh: $*" >&2
    failures=$((failures + 1))
}

nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$work/exported"
diff tests/capi/symbols.txt "$work/exported" >&2 || fail "exported symbols differ from tests/capi/symbols.txt"

grep -o 'nvllm_[a-z_]*(' include/nanovllm.h | tr -d '(' | LC_ALL=C sort -u >"$work/named"
while read -r symbol; do
    grep -qx "$symbol" "$work/named" || fail "$symbol is exported but not in the header"
done <"$work/exported"

for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $needed in
    libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-*) ;;
    *) fail "needs $needed" ;;
    esac
done
readelf -d "$library" | grep -q NODELETE || fail "is not marked nodelete"

strip -o "$work/stripped" "$library"
# Kernels for GPUs lie among the constants, so that their size depends on the architectures that were asked for.
bytes=$(wc -c <"$work/stripped")
constants=$((0x$(readelf -SW "$library" | awk '{ sub(/^ *\[ *[0-9]+\] */, "") } $1 == ".rodata" { print $5 }')))
[ $((bytes - constants)) -lt $((17 * 1024 * 1024)) ] || fail "$bytes bytes stripped, $constants of them constants, but 17 MiB beside these are allowed"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/^#define NVLLM_ABI_VERSION //p' include/nanovllm.h)
header=$(sed -n 's/^#define NVLLM_VERSION_[MP][A-Z]* //p' include/nanovllm.h | paste -sd .)
pc=$(sed -n 's/^Version: //p' "$pc_file")
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$header" = "$version" ] || fail "Cargo.toml has version $version, the header $header"
[ "$pc" = "$version" ] || fail "Cargo.toml has version $version, the .pc file $pc"
[ "${library##*.so.}" = "$version" ] || fail "Cargo.toml has version $version, the file is $library"
[ "$soname" = "libnanovllm.so.$abi" ] || fail "the soname is $soname, the header's ABI version $abi"
grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section $version"

[ "$failures" = 0 ] || exit 1
echo "$(wc -l <"$work/exported") symbols, soname $soname, version $version, $bytes bytes stripped"
