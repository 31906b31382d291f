#!/bin/bash
# Checks that each kernel that a committed plan names (tests/plans) is one that kernels/*.cu defines. It needs a C preprocessor, no nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
defined=$(mktemp)
trap 'rm -f "$defined"' EXIT
# Kernels for one compute capability stand behind a macro; headers define none. A plan leaves out the number type, and of some kernels the
# activation, the format or the group.
for source in kernels/*.cu; do
    sed 's/^ *#\(include\|pragma\).*//; s/__CUDA_ARCH_FEAT_SM90_ALL/IS_HOPPER/' "$source" | cpp -P -undef -DIS_HOPPER - |
        grep -o 'nvllm_k_[a-zA-Z0-9_]*' | sed -E 's/^nvllm_k_//; s/_b?f16(_[a-z0-9]+)?$//'
done | sed -E 'p; s/^(gemm_gated|attention_units_d[0-9]+|dequantize_weights|rope_and_cache)_(silu_|gelu_tanh_|g[0-9]+$|[a-z0-9]+$)/\1_/; s/_$//' | sort -u >"$defined"
unknown=$(grep -ohE '\b(attention|dequantize|gemm|gemv|rope)_[a-z0-9_]+' tests/plans/*.txt | sort -u | comm -23 - "$defined")
[ -z "$unknown" ] || { echo "tests/plans names kernels that kernels/*.cu does not define: $(tr '\n' ' ' <<<"$unknown")" >&2 && exit 1; }
