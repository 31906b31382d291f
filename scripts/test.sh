#!/bin/sh
# Runs all tests of cargo and ctest, shows their summary lines, and prints the counts.
#   test.sh BUILD_DIR
#
# NVLLM_TESTS=quick leaves out what repeats other tests slowly: C programs under valgrind, and the campaign of random and hostile inputs.
set -u
build=${1:?usage: test.sh BUILD_DIR}
cd "$(dirname "$0")/.."
mkdir -p "$build"
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
failed=
quick=${NVLLM_TESTS:-}

# Shows the output of a command and appends it to the log. Returns the command's own status.
logged() {
    { "$@" 2>&1; echo "status $?" >>"$log.status"; } | tee -a "$log"
    status=$(sed -n 's/^status //p' "$log.status")
    rm -f "$log.status"
    return "$status"
}

# Everything is built first, so that a mistake in C does not wait for the tests in Rust. C comes first: cargo writes the library of tests/capi with
# hooks over the one without, and compiles the latter again, with all that links it.
cmake -B "$build" -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_TESTS=ON >"$log.configured" && cmake --build "$build" -j "$(nproc)" || exit 1
cargo test --workspace --release --locked --no-run || exit 1

[ "$quick" != quick ] || export NVLLM_CAMPAIGN_SECONDS=0 # the corpus alone
logged cargo test --workspace --release --locked --no-fail-fast || failed="$failed, cargo test"
rust_passed=$(awk '/^test result:/ { sum += $4 } END { print sum + 0 }' "$log")
rust_failed=$(awk '/^test result:/ { sum += $6 } END { print sum + 0 }' "$log")
rust_ignored=$(awk '/^test result:/ { sum += $8 } END { print sum + 0 }' "$log")
tests/examples/rust.sh "${CARGO_TARGET_DIR:-target}/release/examples" models/demo || failed="$failed, tests/examples/rust.sh"
# The driver of tests/fake_gpu, whose memory is that of the host, is enough to check that weights arrive.
if [ -e "$build/fake_gpu/libcuda.so" ]; then
    fake_gpu=$(cd "$build/fake_gpu" && pwd)
    LD_LIBRARY_PATH=$fake_gpu NVLLM_KERNELS_DIR=$fake_gpu/kernels \
        cargo test --workspace --release --locked --lib -- --ignored a_matrix_arrives || failed="$failed, tests/fake_gpu"
fi

: >"$log"
if [ "$quick" = quick ]; then
    logged ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" --label-exclude slow || failed="$failed, ctest"
else
    logged ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" || failed="$failed, ctest"
fi
# One line for each part that is left out because the machine lacks a prerequisite.
grep '^-- No ' "$log.configured"
c_total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -n 1)
c_failed=$(sed -n 's/.* \([0-9]*\) tests failed out of [0-9]*$/\1/p' "$log" | tail -n 1)
c_total=${c_total:-0} c_failed=${c_failed:-0}

echo
echo "Rust: $rust_passed passed, $rust_failed failed, $rust_ignored ignored (they need a GPU: make gpu)"
echo "C, C++: $((c_total - c_failed)) passed, $c_failed failed"
echo "left out: the bindings for Go, Python, C# and Godot, and other systems: .ci/tier2 all"
if [ -n "$failed" ]; then
    echo "there were failures in ${failed#, }"
    exit 1
fi
echo "all $((rust_passed + c_total)) tests passed"
