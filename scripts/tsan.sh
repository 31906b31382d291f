#!/bin/sh
# Runs the C tests that use threads under ThreadSanitizer: any race in the library that they reach is a failure.
#   tsan.sh BUILD_DIR
#
# Library and crates are compiled with ThreadSanitizer; tests/tsan/std_order.c stands in for the standard library, which is not.
# It first checks ThreadSanitizer itself: if locks establish no order, it must report the data that they guard.
set -eu
build=${1:?usage: tsan.sh BUILD_DIR}
cd "$(dirname "$0")/.."
mkdir -p "$build/tsan"
work=$(cd "$build/tsan" && pwd)
target=$(rustc -vV | sed -n 's/^host: //p')
fail() {
    echo "tsan.sh: $*" >&2
    exit 1
}

runtime=$(find "$(rustc --print sysroot)/lib/rustlib/$target/lib" -name 'librustc*tsan.a' | head -n 1)
[ -n "$runtime" ] || fail "rustc has no ThreadSanitizer for $target"
# ThreadSanitizer needs addresses that are not randomized, if the system lets a program request that.
run=
setarch -R true 2>/dev/null && run="setarch -R"

# Sanitizers are unstable: RUSTC_BOOTSTRAP allows them. `cargo rustc` builds no shared object, which would lack the runtime.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" CARGO_PROFILE_DEV_DEBUG=line-tables-only \
    cargo rustc --locked --package nanovllm-capi --lib --crate-type staticlib --no-default-features --target "$target" --target-dir "$work/target"
library="$work/target/$target/debug/libnanovllm_capi.a"

# The functions of the standard library, by the ends of their names.
nm "$library" 2>/dev/null >"$work/symbols"
wrap="-Wl,--wrap=__tsan_atomic64_fetch_sub" names=
for function in LOCK:mutex5futexNtB2_5Mutex14lock_contended WAIT:condvar5futexNtB2_7Condvar4wait \
    WAIT_TIMEOUT:condvar5futexNtB2_7Condvar12wait_timeout ONCE:once5futexNtB5_4Once4call; do
    name=$(sed -n "s/.* \(_RN[^ ]*${function#*:}\)\$/\1/p" "$work/symbols" | sort -u)
    [ "$(printf '%s' "$name" | wc -w)" = 1 ] || fail "this compiler's ${function#*:} has another name: tests/tsan/std_order.c needs it"
    wrap="$wrap,--wrap=$name"
    names="$names -DREAL_${function%%:*}=__real_$name -DWRAP_${function%%:*}=__wrap_$name"
done

# Links program $1 as $2, with further arguments for std_order.c and for the linker.
link_program() {
    cc -std=c11 -g -O1 -Wall -Wextra -Werror -Iinclude -fsanitize=thread -c "tests/capi/$1.c" -o "$work/$2.o"
    # shellcheck disable=SC2086
    cc -std=c11 -g -O2 -Wall -Wextra -Werror -fexceptions $names ${3:-} -c tests/tsan/std_order.c -o "$work/std_order.o"
    # shellcheck disable=SC2086
    cc -no-pie -o "$work/$2" "$work/$2.o" "$work/std_order.o" "$wrap${4:-}" "$library" \
        -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive -Wl,--export-dynamic -lpthread -ldl -lm -lrt
}

export TSAN_OPTIONS="exitcode=66 atexit_sleep_ms=0 suppressions=$PWD/tests/tsan/suppressions"

# The data that locks guard: the inbox, the log, and the output that was polled last, in the engine's handle.
unseen() {
    for guarded in engine::inbox base::log nanovllm_capi::stepping::Shown; do
        grep -q "^SUMMARY.*$guarded" "$work/forgotten.log" || echo "$guarded"
    done
}

link_program handover forgotten -DFORGET_LOCKS \
    ,--wrap=__tsan_atomic8_compare_exchange_val,--wrap=__tsan_atomic32_compare_exchange_val
: >"$work/forgotten.log"
timeout 120 $run "$work/forgotten" models/demo >"$work/forgotten.log" 2>&1 &
forgotten=$!
# There are hundreds of reports, so their number is limited.
while [ -n "$(unseen)" ] && kill -0 "$forgotten" 2>/dev/null; do sleep 1; done
[ -z "$(unseen)" ] || fail "locks order nothing, but no race is reported on" $(unseen)
kill "$forgotten" 2>/dev/null || true
wait "$forgotten" 2>/dev/null || true
echo "handover, locks forgotten: races are reported, as they must be"

failed=0
for program in threads wait handover batches lifecycle stepping asked state ranks; do
    link_program "$program" "$program"
    if timeout 120 $run "$work/$program" models/demo >"$work/$program.log" 2>&1; then
        echo "$program: $(tail -n 1 "$work/$program.log"), no race"
    else
        echo "$program: failed, $(grep -c '^WARNING: ThreadSanitizer' "$work/$program.log") reports: see $work/$program.log"
        failed=1
    fi
done
exit "$failed"
