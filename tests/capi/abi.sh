#!/bin/sh
# scripts/abi.awk refuses to write down a break of the ABI, and takes a field at the end of a struct.
#   abi.sh SOURCE_DIR
set -eu
cd "${1:?usage: abi.sh SOURCE_DIR}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
baseline=tests/capi/abi.h

# The baseline that a header with one change of sed's would get.
baseline_of() {
    sed "$1" include/nanovllm.h >"$work/nanovllm.h"
    awk -v baseline="$baseline" -f scripts/header_model.awk -f scripts/abi.awk "$work/nanovllm.h" 2>"$work/message"
}
refused() {
    if baseline_of "$2" >/dev/null || ! grep -q "$3" "$work/message"; then
        echo "abi.sh: $1: $(cat "$work/message")" >&2
        failures=$((failures + 1))
    fi
}
refused "a field of another type" 's/^  float top_p;/  double top_p;/' 'FIELD(nvllm_request_options, top_p, 28)'
refused "a field that is gone" '/^  float top_p;/d' 'nvllm_request_options shrank'
refused "another parameter" 's/uint64_t budget_us/uint32_t budget_us/' 'nvllm_step(nvllm_engine \*, uint64_t,'
refused "a function that is gone" 's/nvllm_status nvllm_cancel(/nvllm_status nvllm_stop(/' 'nvllm_cancel(nvllm_engine'
refused "another value" 's/NVLLM_ERR_BUSY = -3/NVLLM_ERR_BUSY = -30/' 'VALUE(NVLLM_ERR_BUSY, -3)'
# A struct whose last field leaves padding, then one that has a field there.
baseline_of 's/^} nvllm_output;/  uint32_t added;\n&/' >"$work/older.h"
baseline=$work/older.h
refused "a field in the padding of an older struct" 's/^} nvllm_output;/  uint32_t added;\n  uint32_t more;\n&/' 'in the padding'
baseline=tests/capi/abi.h
added=$(baseline_of 's/^} nvllm_request_options;/  uint64_t added;\n&/' | diff tests/capi/abi.h - | grep -c '^> .*(nvllm_request_options, ' || true)
[ "$added" = 2 ] || { echo "abi.sh: a new field: $added lines" >&2; failures=$((failures + 1)); }
exit "$failures"
