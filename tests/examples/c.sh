#!/bin/sh
# The C examples, as a user runs them.
#   c.sh FOLDER_OF_EXAMPLES MODEL_FOLDER
set -eu
examples=$1 model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q "$2" || { echo "c.sh: $1: no $2 in: $3" >&2; failures=$((failures + 1)); }
}

said=$(printf '%s\n' "list all prime numbers within 10" "" "introduce yourself" | "$examples/stream" "$model")
wants "stream, first" "^Prime numbers within 10: 2, 3, 5, 7\.$" "$said"
wants "stream, second" "^I " "$said"

# Ctrl-C in the middle of an answer, and the next line is read.
mkfifo "$work/lines"
# The program opens it after the lines, so that it may not be there when the lines are.
: >"$work/said"
"$examples/stream" --endless "$model" <"$work/lines" >"$work/said" &
stream=$!
exec 3>"$work/lines"
for answer in 1 2; do
    size=$(wc -c <"$work/said")
    echo hello >&3
    for _ in $(seq 200); do
        [ "$(wc -c <"$work/said")" -gt "$((size + 10))" ] && break
        sleep 0.05
    done
    kill -INT "$stream"
    for _ in $(seq 200); do
        [ "$(grep -c '\[cancelled\]' "$work/said")" = "$answer" ] && break
        sleep 0.05
    done
done
exec 3>&-
wait "$stream" || { echo "c.sh: stream ended with $?" >&2; failures=$((failures + 1)); }
[ "$(grep -c '\[cancelled\]' "$work/said")" = 2 ] || { echo "c.sh: Ctrl-C did not cancel twice: $(cat "$work/said")" >&2; exit 1; }

said=$(printf '%s\n' "list all prime numbers within 50" "list all prime numbers within 10" | "$examples/poll_loop" "$model")
wants "poll_loop, first" "^1: Prime numbers within 50: .*, 43, 47\.$" "$said"
wants "poll_loop, second" "^2: Prime numbers within 10: 2, 3, 5, 7\.$" "$said"
[ "$(printf '%s\n' "$said" | head -n 1 | cut -c 1)" = 2 ] || { echo "c.sh: the short answer did not come first: $said" >&2; exit 1; }

# Lines that are refused: the others are answered.
prime="list all prime numbers within 10"
printf '%s\n\377\nhello\000world\n%s' "$prime" "$prime" >"$work/lines.txt"
said=$("$examples/stream" "$model" <"$work/lines.txt" 2>"$work/refused") || failures=$((failures + 1))
[ "$(printf '%s\n' "$said" | grep -c "2, 3, 5, 7\.$")" = 2 ] || { echo "c.sh: stream answers '$said'" >&2; failures=$((failures + 1)); }
[ "$(printf '%s\n' "$said" | wc -l)" = 2 ] || { echo "c.sh: stream answers refused lines: '$said'" >&2; failures=$((failures + 1)); }
wants "stream, UTF-8" "UTF-8" "$(cat "$work/refused")"
wants "stream, NUL" "NUL" "$(cat "$work/refused")"

# A line of 5000 bytes arrives in two parts. The last one has no newline.
{
    printf '%s\n\377\nhello\000world\n' "$prime"
    awk 'BEGIN { for (i = 0; i < 1000; i++) printf "hello"; print "" }'
    printf '%s' "$prime"
} >"$work/lines.txt"
said=$("$examples/poll_loop" "$model" <"$work/lines.txt" 2>"$work/refused") || failures=$((failures + 1))
wants "poll_loop, before" "^1: .* 2, 3, 5, 7\.$" "$said"
wants "poll_loop, last" "^5: .* 2, 3, 5, 7\.$" "$said"
[ "$(printf '%s\n' "$said" | wc -l)" = 2 ] || { echo "c.sh: poll_loop answers refused lines: '$said'" >&2; failures=$((failures + 1)); }
wants "poll_loop, UTF-8" "^2: .*UTF-8" "$(cat "$work/refused")"
wants "poll_loop, NUL" "^3: .*NUL" "$(cat "$work/refused")"
wants "poll_loop, long" "^4: the line has more than 4094 bytes$" "$(cat "$work/refused")"

said=$("$examples/tokenizer" "$model" "<|im_end|>" "grüß dich")
wants "tokenizer, count" "^1 tokens: <|im_end|>$" "$said"
wants "tokenizer, token" '2045  "<|im_end|>"' "$said"
wants "tokenizer, text" '"g"$' "$said"

schema='{"type": "object", "properties": {"prime": {"type": "boolean"}, "kind": {"enum": ["small", "large"]}},
         "required": ["prime", "kind"], "additionalProperties": false}'
said=$("$examples/json" "$model" "$schema" "list all prime numbers within 10" "introduce yourself" | tr -d ' \n')
wants "json" '^{"prime":[a-z]*,"kind":"[a-z]*"}{"prime":[a-z]*,"kind":"[a-z]*"}$' "$said"
if said=$("$examples/json" "$model" '{"type": "objekt"}' "introduce yourself" 2>&1); then
    echo "c.sh: json: a bad schema is no failure" >&2
    failures=$((failures + 1))
fi
wants "json, refusal" "Invalid type: objekt (NVLLM_ERR_INVALID_ARGUMENT)" "$said"

said=$("$examples/embed" "$model" "hello" "hello" "list all prime numbers within 10")
wants "embed, itself" "^1\.000  hello$" "$said"
wants "embed, another" "^-*0\.[0-9]*  list all" "$said"

said=$("$examples/save_prefix" "$model" "$work/state" "list all prime numbers within 50" 2>&1)
wants "save_prefix, first" "^Prime numbers within 50: .*, 43, 47" "$said"
wants "save_prefix, first" "^0 of [0-9]* prompt tokens were there already$" "$said"
said=$("$examples/save_prefix" "$model" "$work/state" "introduce yourself" 2>&1)
wants "save_prefix, second" "^restored [0-9]* of [0-9]* tokens$" "$said"
wants "save_prefix, second" "^[1-9][0-9]* of [0-9]* prompt tokens were there already$" "$said"
printf x | dd of="$work/state" bs=1 seek=2000 conv=notrunc 2>/dev/null
if said=$("$examples/save_prefix" "$model" "$work/state" "introduce yourself" 2>&1); then
    echo "c.sh: save_prefix: a damaged file is no failure" >&2
    failures=$((failures + 1))
fi
wants "save_prefix, damaged" "checksum" "$said"

# A state that cannot be written leaves the earlier one. The limit, in blocks of 512 bytes, cuts off its end.
"$examples/save_prefix" "$model" "$work/kept" "introduce yourself" >"$work/said" 2>&1
cp "$work/kept" "$work/copy"
# shellcheck disable=SC3045 # dash and bash have it
if said=$(trap '' XFSZ && ulimit -f "$(($(wc -c <"$work/kept") / 512))" &&
    "$examples/save_prefix" "$model" "$work/kept" "introduce yourself" 2>&1); then
    echo "c.sh: save_prefix: a state that is not written is no failure" >&2
    failures=$((failures + 1))
fi
wants "save_prefix, no room" "kept: cannot be written" "$said"
cmp "$work/kept" "$work/copy" || failures=$((failures + 1))
[ ! -e "$work/kept.new" ] || { echo "c.sh: save_prefix: left a file behind" >&2; failures=$((failures + 1)); }

# Output that is lost is a failure.
loses() { # NAME COMMAND... with its input on the standard input
    name=$1
    shift
    if "$@" 2>"$work/said" >/dev/full; then
        echo "c.sh: $name: lost output is no failure" >&2
        failures=$((failures + 1))
    fi
    wants "$name, lost output" "the output cannot be written" "$(cat "$work/said")"
}
if [ -e /dev/full ]; then # Linux has it
    echo hello >"$work/line"
    loses generate "$examples/generate" --max-tokens 4 "$model" hello
    loses json "$examples/json" "$model" '{"enum": ["yes", "no"]}' hello
    loses embed "$examples/embed" "$model" hello hello
    loses tokenizer "$examples/tokenizer" "$model" hello
    loses save_prefix "$examples/save_prefix" "$model" "$work/kept" hello
    loses stream "$examples/stream" "$model" <"$work/line"
    loses poll_loop "$examples/poll_loop" "$model" <"$work/line"
fi
cmp "$work/kept" "$work/copy" || failures=$((failures + 1))
if "$examples/generate" --max-tokens 4 "$model" hello >&- 2>/dev/null; then
    echo "c.sh: generate: a closed output is no failure" >&2
    failures=$((failures + 1))
fi

for program in stream poll_loop tokenizer embed; do
    if "$examples/$program" /no/such/folder x y </dev/null 2>/dev/null; then
        echo "c.sh: $program: a missing model is no failure" >&2
        failures=$((failures + 1))
    fi
done
exit "$failures"
