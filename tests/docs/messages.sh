#!/bin/sh
# docs/troubleshooting.md quotes messages: those that a wrong model folder or prompt brings are still what the library says.
#   messages.sh NANOVLLM MODEL_FOLDER SOURCE_DIR
set -eu
tool=$1 model=$2 page=$3/docs/troubleshooting.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
quoted() { # QUOTED... what the page says, with the library's own message on the standard input
    said=$(cat)
    for part in "$@"; do
        printf '%s\n' "$said" | grep -qF -- "$part" || { echo "messages.sh: no $part in: $said" >&2; failures=$((failures + 1)); }
        grep -qF -- "$part" "$page" || { echo "messages.sh: docs/troubleshooting.md does not say $part" >&2; failures=$((failures + 1)); }
    done
}
says() { "$tool" generate "$1" "${2:-hello}" 2>&1 || true; }

says "$work" | quoted "/config.json: is missing from the model folder"
cp "$model"/*.json "$work"
printf 'version of a pointer\n' >"$work/model.safetensors"
says "$work" | quoted "/model.safetensors: is not a whole safetensors file"
cp "$model/model.safetensors" "$work"
rm "$work/tokenizer.json"
says "$work" | quoted "the model folder has no tokenizer.json, so text is not supported"
sed -i 's/Qwen3ForCausalLM/PhimoeForCausalLM/; s/"qwen3"/"phimoe"/' "$work/config.json"
says "$work" | quoted "architecture PhimoeForCausalLM is not supported"
says "$model" "$(awk 'BEGIN { for (i = 0; i < 9000; i++) printf "prime " }')" | tail -n 3 |
    quoted "prompt has " ", but max_model_len is 4096"

# The others, as the source spells them.
for part in "but the whole KV cache holds" "completions are queued and this request adds"; do
    grep -qF "$part" "$page" && grep -qF "$part" "$3/src/base/error.rs" || { echo "messages.sh: $part" >&2; failures=$((failures + 1)); }
done
exit "$failures"
