#!/bin/sh
# Whether ELF files load where glibc is no newer than VERSION: the versions of the symbols that they need, and the libraries.
#   glibc.sh VERSION FILE...
set -eu
newest=${1:?usage: glibc.sh VERSION FILE...}
shift
for file; do
    needed=$("${OBJDUMP:-objdump}" -T "$file" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\))\{0,1\} .*/\1/p' | sort -uV | tail -n 1)
    [ -n "$needed" ] || { echo "glibc.sh: $file names no version of glibc" >&2; exit 1; }
    if [ "$(printf '%s\n' "$newest" "$needed" | sort -V | tail -n 1)" != "$newest" ]; then
        echo "glibc.sh: $file needs GLIBC_$needed, but at most GLIBC_$newest is allowed, for:" >&2
        "${OBJDUMP:-objdump}" -T "$file" | grep "GLIBC_$needed" >&2
        exit 1
    fi
    for library in $("${OBJDUMP:-objdump}" -p "$file" | awk '$1 == "NEEDED" { print $2 }'); do
        case $library in
        libc.so.6 | libm.so.6 | libgcc_s.so.1 | libpthread.so.0 | libdl.so.2 | librt.so.1 | libutil.so.1 | ld-linux-*) ;;
        libnanovllm.so.*) ;;
        *) echo "glibc.sh: $file needs $library" >&2; exit 1 ;;
        esac
    done
    echo "$file needs GLIBC_$needed"
done
