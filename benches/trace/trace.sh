#!/bin/bash
# Which kernels of a pass take how long? Prints a line for each kernel of the last whole pass of a program: how many there are, what each adds on average (its
# end less the latest end before it), how long it runs, and what all add together, in microseconds. Kernels of a graph overlap, so that the sum of their times
# says little.
#   BENCH_BATCHES=1 trace.sh PROGRAM [ARGUMENT]...
#
# PROGRAM is one that `make gpu` built, such as build/gpu/throughput. Needs CUPTI, which the CUDA toolkit has: CUDA_HOME, or /usr/local/cuda.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: trace.sh PROGRAM [ARGUMENT]..." >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
cuda=${CUDA_HOME:-/usr/local/cuda}
header=$(find -L "$cuda" -name cupti.h -print -quit)
library=$(find -L "$cuda" -name 'libcupti.so*' -print -quit)
[ -n "$header" ] && [ -n "$library" ] || { echo "no CUPTI in $cuda: set CUDA_HOME" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The record has the number of the newest form that the header knows.
record=$(grep -o 'CUpti_ActivityKernel[0-9]*' "$(dirname "$header")/cupti_activity.h" | sort -uV | tail -1)
c++ -O1 -shared -fPIC -DKERNEL_RECORD="$record" -I"$(dirname "$header")" -I"$cuda/include" "$here/kernels.cpp" -o "$work/trace.so" "$library" \
    -Wl,-rpath,"$(dirname "$library")"
TRACE_OUT=$work/kernels CUDA_INJECTION64_PATH=$work/trace.so "$@"
# A pass begins with the embedding.
awk '
    $4 ~ /embedding/ { before = begin; begin = NR }
    { line[NR] = $0 }
    END {
        if (!before) { before = 1; begin = NR + 1 }
        for (i = before; i < begin; i++) {
            split(line[i], field, " ")
            name = field[4] " " field[5]
            count[name]++; runs[name] += field[2]; adds[name] += field[3]; all += field[3]
        }
        for (name in count) printf "%5d  adds %8.2f  runs %8.2f  all %9.1f  %s\n", count[name], adds[name] / count[name], runs[name] / count[name], adds[name], name | "sort -k 7,7nr"
        close("sort -k 7,7nr")
        printf "pass of %.1f us\n", all
    }' "$work/kernels"
