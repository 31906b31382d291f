#!/bin/sh
# The installed program: its commands do what the examples of that name do, and say what they take.
#   tool.sh NANOVLLM MODEL_FOLDER
set -eu
tool=$1 model=$2
failures=0
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q -- "$2" || { echo "tool.sh: $1: no $2 in: $3" >&2; failures=$((failures + 1)); }
}
refuses() { # NAME ARGUMENT...
    name=$1
    shift
    said=$("$tool" "$@" 2>&1 </dev/null) && { echo "tool.sh: $name is no failure: $said" >&2; failures=$((failures + 1)); }
    wants "$name" "usage:" "$said"
}

wants "generate" "2, 3, 5, 7.$" "$("$tool" generate --temperature 0 "$model" "list all prime numbers within 10" 2>/dev/null)"
wants "chat" "^I am the demo model" "$(echo "introduce yourself" | "$tool" chat "$model" 2>/dev/null)"
wants "version" '"instruction_sets"' "$("$tool" version)"
wants "help" "chat \[--system TEXT\] MODEL" "$("$tool" --help)"

said=$("$tool" bench --prompt 100 --answer 4 --threads 1 "$model")
wants "bench, the model" "5.2 million parameters, 0.01 GB of weights, on the CPU" "$said"
wants "bench, the prompt" "^a prompt of 100: [1-9][0-9]* tokens/s" "$said"
wants "bench, one answer" "^ *1 *[1-9][0-9]* *[0-9]*\.[0-9]*$" "$said"
wants "bench, many answers" "^ *16 *[1-9][0-9]* *[0-9]*\.[0-9]*$" "$said"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for bits in int8 int4; do
    "$tool" quantize "--$bits" "$model" "$folder/$bits"
    wants "a folder of $bits" "^I am the demo model" "$(echo "introduce yourself" | "$tool" chat "$folder/$bits" 2>/dev/null)"
    wants "opening as $bits" "^I am the demo model" "$(echo "introduce yourself" | "$tool" --quantization "$bits" chat "$model" 2>/dev/null)"
done
if said=$("$tool" quantize "$model" "$folder/int8" 2>&1); then
    echo "tool.sh: a folder was overwritten" >&2
    failures=$((failures + 1))
fi
wants "a folder that is not empty" "is not empty" "$said"

if [ -e /dev/full ]; then # Linux has it
    for command in version place --help "generate --max-tokens 4 $model hello" "bench --prompt 8 --answer 4 --threads 1 $model"; do
        # shellcheck disable=SC2086 # a command and its arguments
        said=$("$tool" $command 2>&1 >/dev/full) && { echo "tool.sh: $command: lost output is no failure" >&2; failures=$((failures + 1)); }
        wants "$command, lost output" "the output cannot be written" "$said"
    done
fi
refuses "nothing"
refuses "quantize without a folder" quantize "$model"
refuses "quantize with an option of engines" --quantization int4 quantize "$model" "$folder/option"
[ ! -e "$folder/option" ] || { echo "tool.sh: a refused command wrote a folder" >&2; failures=$((failures + 1)); }
refuses "another quantization" --quantization int3 chat "$model"
refuses "another command" serve "$model"
refuses "generate without a model" generate
refuses "bench with a number that is none" bench --answer many "$model"
if said=$("$tool" bench /no/such/folder 2>&1); then
    echo "tool.sh: a missing model is no failure" >&2
    failures=$((failures + 1))
fi
wants "a missing model" "/no/such/folder" "$said"
exit "$failures"
