#!/bin/sh
# Counts the instructions of linear layers on ARM64 with QEMU, for each instruction set, coding and number of tokens, as a table.
#   count.sh PROGRAM [TOKENS]...
#
# PROGRAM is the bench `instructions`, built for aarch64-unknown-linux-gnu. Instructions are not time: they say how much a kernel does, and
# nothing about how fast a processor does it.
set -eu
program=${1:?usage: count.sh PROGRAM [TOKENS]...}
shift
[ $# -gt 0 ] || set -- 1 4 16
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -shared -fPIC -o "$work/count.so" "$here/count.c"

instructions() { qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -plugin "$work/count.so" "$program" "$@" 2>&1 >/dev/null; }
# Of one call, after one that has warmed up.
of_a_call() { echo $(($(instructions "$@" 2) - $(instructions "$@" 1))); }

echo "coding,tokens,portable,neon,dotprod,i8mm,bf16,portable / neon,portable / dotprod,portable / i8mm,portable / bf16"
for coding in f32 f16 bf16 q8_0 q4_0 q4_k q6_k int8 int4 fp8; do
    for tokens; do
        counts=
        for isa in portable neon dotprod i8mm bf16; do
            counts="$counts $(of_a_call $isa $coding "$tokens")"
        done
        # shellcheck disable=SC2086 # five numbers
        printf '%s %s %s %s %s %s %s\n' $coding "$tokens" $counts |
            awk '{ printf "%s,%d,%d,%d,%d,%d,%d,%.2f,%.2f,%.2f,%.2f\n", $1, $2, $3, $4, $5, $6, $7, $3 / $4, $3 / $5, $3 / $6, $3 / $7 }'
    done
done
