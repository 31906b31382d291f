#!/bin/sh
# Compiles nanovllm.hpp in every standard of C++ that it is for, with and without exceptions, by all compilers found.
#   header.sh INCLUDE_DIR BINDING_DIR CXX_COMPILER
set -eu
include=$1 binding=$2 compilers=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/use.cpp" <<'CODE'
#include <nanovllm.hpp>
#include <nanovllm.hpp>
CODE
for other in g++ clang++; do
    path=$(command -v "$other") || continue
    # c++ may be g++ by another name.
    [ "$(readlink -f "$path")" = "$(readlink -f "$compilers")" ] || compilers="$compilers $path"
done
compiled=0
for compiler in $compilers; do
    for standard in c++17 c++20 c++2b; do
        for mode in -fexceptions "-fno-exceptions -fno-rtti -DNVLLM_CPP_NO_EXCEPTIONS"; do
            # shellcheck disable=SC2086 # a list of words
            "$compiler" "-std=$standard" $mode -Wall -Wextra -Wshadow -pedantic -Werror -fsyntax-only \
                -I"$include" -I"$binding" "$work/use.cpp"
            compiled=$((compiled + 1))
        done
    done
done
echo "nanovllm.hpp compiled $compiled times, with: $compilers"
