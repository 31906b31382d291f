#!/bin/sh
# Compiles the header, alone and in two translation units, in every standard of C and C++ that it is for.
#   header.sh INCLUDE_DIR C_COMPILER [CXX_COMPILER]
set -eu
include=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >first.c <<'CODE'
#include <nanovllm.h>
#include <nanovllm.h>
int second(void);
int second(void) { return NVLLM_OK; }
CODE
cat >second.c <<'CODE'
#include <nanovllm.h>
int second(void);
int main(void) {
  nvllm_status status = NVLLM_ERR_BUSY;
  nvllm_engine_config config;
  config.device = NVLLM_DEVICE_CPU;
  config.dtype = NVLLM_DTYPE_AUTO;
  return second() + (status == NVLLM_OK) + config.dtype;
}
CODE
cp first.c first.cpp
cp second.c second.cpp

compiled=0
compile() {
    "$1" "-std=$2" -Wall -Wextra -pedantic -Werror -Wstrict-prototypes -I"$include" -o program "$3" "$4"
    compiled=$((compiled + 1))
}
compile_cpp() {
    "$1" "-std=$2" -Wall -Wextra -pedantic -Werror -I"$include" -o program "$3" "$4"
    compiled=$((compiled + 1))
}

compilers_c="$2"
compilers_cpp="${3:-}"
for other in gcc clang; do
    case " $compilers_c " in *"/$other "*) ;; *) command -v "$other" >/dev/null && compilers_c="$compilers_c $other" ;; esac
done
for other in g++ clang++; do
    case " $compilers_cpp " in *"/$other "*) ;; *) command -v "$other" >/dev/null && compilers_cpp="$compilers_cpp $other" ;; esac
done

for compiler in $compilers_c; do
    for standard in c99 c11 c17 c2x; do compile "$compiler" "$standard" first.c second.c; done
done
# c++2b is C++23 by the name that compilers from before 2023 know too.
for compiler in $compilers_cpp; do
    for standard in c++11 c++14 c++17 c++20 c++2b; do compile_cpp "$compiler" "$standard" first.cpp second.cpp; done
done
echo "the header compiled $compiled times, with:$(printf ' %s' $compilers_c $compilers_cpp)"
