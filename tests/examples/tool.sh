#!/bin/bash
# The program: what its commands print, where, and what it says of a wrong command line.
#   tool.sh NANOVLLM MODEL_FOLDER
set -eu
tool=$1 model=$2
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails() {
    echo "tool.sh: $1" >&2
    failures=$((failures + 1))
}
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q -- "$2" || fails "$1: no $2 in: $3"
}
lacks() { # NAME PATTERN TEXT
    ! printf '%s\n' "$3" | grep -q -- "$2" || fails "$1: $2 in: $3"
}
is() { # NAME WANTED FOUND
    [ "$2" = "$3" ] || fails "$1 is '$3', but '$2' is wanted"
}
# Runs the program, and leaves $status, $out and $err.
run() { # ARGUMENT...
    status=0
    "$tool" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    out=$(cat "$work/out") err=$(cat "$work/err")
}
refuses() { # STATUS PATTERN ARGUMENT...
    wanted=$1 pattern=$2
    shift 2
    run "$@"
    is "the status of: $*" "$wanted" "$status"
    is "what stdout has of: $*" "" "$out"
    wants "$*" "$pattern" "$err"
}
field() { # NAME: the field of the JSON objects in $out, one per line
    printf '%s\n' "$out" | sed -n "s/.*\"$1\":\(\"[^\"]*\"\|[0-9][0-9]*\|\[[^]]*\]\).*/\1/p"
}

# ---- help and versions ----
version=$("$tool" --version)
wants "the version" "^nanovllm [0-9]*\.[0-9]*\.[0-9]*$" "$version"
for command in generate chat embed bench info quantize worker place version; do
    for help in "$command --help" "help $command"; do
        # shellcheck disable=SC2086 # a command and its argument
        run $help
        is "the status of $help" 0 "$status"
        wants "$help" "^Usage: nanovllm $command" "$out"
    done
    run "$command" -h
    wants "$command -h" "^Usage: nanovllm $command" "$out"
    run "$command" --version
    wants "$command --version" "^nanovllm.* ${version#nanovllm }$" "$out"
    run --help
    wants "the list of commands" "^  $command " "$out"
done
run -V
is "-V" "$version" "$out"
run chat --help
wants "options of engines" "--kv-cache-dtype" "$out"
lacks "colours in a pipe" "$(printf '\033')" "$out"
run quantize --help
lacks "options of engines that have no effect" "--kv-cache-dtype" "$out"

# ---- wrong command lines ----
refuses 2 "Usage: nanovllm"
refuses 2 "unrecognized subcommand 'serve'" serve "$model"
refuses 2 "similar subcommand.*'generate'" generat "$model"
refuses 2 "'--max-token'" generate "$model" --max-token 5 hello
refuses 2 "similar argument.*'--max-tokens'" generate "$model" --max-token 5 hello
refuses 2 "'abc' for '--max-tokens <N>': a whole number of at least 1 is wanted" generate --max-tokens abc "$model" hello
refuses 2 "'0' for '--max-tokens <N>'" generate --max-tokens=0 "$model" hello
refuses 2 "'1.5' for '--xtc-probability <P>': a number from 0 to 1 is wanted" generate --xtc-probability 1.5 "$model" hello
refuses 2 "'0.5' for '--dry-base <X>': a number of at least 1 is wanted" generate --dry-base 0.5 "$model" hello
refuses 2 "<MODEL>" generate
refuses 2 "<NEW_FOLDER>" quantize "$model"
refuses 2 "'quantize' does not take '--quantization'" --quantization int4 quantize "$model" "$work/option"
[ ! -e "$work/option" ] || fails "a refused command wrote a folder"
refuses 2 "'int3' for '--quantization.*" --quantization int3 chat "$model"
refuses 2 "none, int8, int4" --quantization int3 chat "$model"
refuses 2 "'many' for '--answer" bench --answer many "$model"
refuses 2 "cannot be used with" generate "$model" --regex a --schema b hello
refuses 1 "/no/such/folder" bench /no/such/folder
refuses 1 "hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B" chat Qwen/Qwen3-0.6B
refuses 1 "/no/such/file" generate "$model" --file /no/such/file
refuses 1 "the standard input is empty" generate "$model"

# ---- generate ----
primes="list all prime numbers within 10"
answer="Prime numbers within 10: 2, 3, 5, 7."
run generate --temperature 0 "$model" "$primes"
is "an answer" "$answer" "$out"
is "what is said beside it" "" "$err"
run generate "$model" --temperature=0 "$primes" --max-tokens 4
is "an answer of 4 tokens" 1 "$(printf '%s\n' "$out" | wc -l)"
[ "${answer#"$out"}" != "$answer" ] || fails "4 tokens are '$out'"
# The answer repeats words of the question, which a breaker ends.
run generate "$model" --temperature 0 --dry-multiplier 100 --dry-allowed-length 3 --dry-sequence-breaker none "$primes"
[ "$out" != "$answer" ] || fails "DRY changes nothing"
run generate "$model" --temperature 0 --dry-multiplier 100 --dry-allowed-length 3 --dry-sequence-breaker , --dry-sequence-breaker 1 "$primes"
is "an answer whose repetitions end at a 1" "$answer" "$out"
run generate "$model" --temperature 1 --top-n-sigma 0.001 --xtc-probability 0 "$primes"
is "an answer of the most likely tokens" "$answer" "$out"
run generate "$model" --temperature 0 --threads 1 "$primes" "introduce yourself"
is "two answers" "$answer" "$(printf '%s\n' "$out" | head -n 1)"
wants "the second answer" "^I am the demo model" "$(printf '%s\n' "$out" | tail -n 1)"
is "a prompt from a pipe" "$answer" "$(echo "$primes" | "$tool" generate "$model" --temperature 0)"
is "a prompt for -" "$answer" "$(echo "$primes" | "$tool" generate --temperature 0 "$model" -)"
echo "$primes" >"$work/prompt"
printf '%s\n\n%s\n' "$primes" "introduce yourself" >"$work/lines"
run generate "$model" --temperature 0 --file "$work/prompt" --lines "$work/lines"
is "answers to files" 3 "$(printf '%s\n' "$out" | wc -l)"
is "the answer to a file" "$answer" "$(printf '%s\n' "$out" | head -n 1)"
is "lines from a pipe" 2 "$("$tool" generate "$model" --temperature 0 --lines - <"$work/lines" | wc -l)"

run generate "$model" --temperature 0 --json "$primes" "introduce yourself"
is "objects" 2 "$(printf '%s\n' "$out" | grep -c '^{"prompt":".*}$')"
is "the prompts" "\"$primes\"" "$(field prompt | head -n 1)"
is "the text" "\"$answer\"" "$(field text | head -n 1)"
is "the reasons" '"stop" "stop"' "$(field finish_reason | tr '\n' ' ' | sed 's/ $//')"
wants "tokens" '^\[[0-9,]*\]$' "$(field token_ids | head -n 1)"
is "the number of tokens" "$(field token_ids | head -n 1 | tr ',' '\n' | wc -l)" "$(field completion_tokens | head -n 1)"
wants "tokens of the prompt" '^[1-9][0-9]*$' "$(field prompt_tokens | head -n 1)"
run generate "$model" --temperature 0 --json --max-tokens 3 "$primes"
is "the reason" '"length"' "$(field finish_reason)"

# What the model says after a text is not what it answers.
run generate "$model" --raw --temperature 0 --max-tokens 8 "Prime numbers within 10: 2, 3,"
wants "a text that goes on" "5, 7" "$out"
run generate "$model" --system "You are Brenna, the blacksmith." "who are you?"
wants "a part" "Brenna\|forge\|smith\|blade\|steel\|iron" "$out"
printf '{"enum": ["yes", "no"]}' >"$work/schema"
run generate "$model" --schema "$work/schema" "are you an engine?"
wants "an answer by a schema" '^"\(yes\|no\)"$' "$out"
run generate "$model" --regex "[0-9]{3}" "a number"
wants "an answer by an expression" '^[0-9][0-9][0-9]$' "$out"
printf 'start: "left" | "right"' >"$work/grammar"
run generate "$model" --grammar "$work/grammar" "which way?"
wants "an answer by a grammar" '^\(left\|right\)$' "$out"
printf '{"type": 7}' >"$work/schema"
refuses 1 "error: " generate "$model" --schema "$work/schema" hello
first=$("$tool" generate "$model" --temperature 1 --seed 7 "hello")
is "a seed" "$first" "$("$tool" generate "$model" --seed=7 "hello" --temperature=1)"

# One prompt that cannot run is no reason to lose the other.
long=$(awk 'BEGIN { for (i = 0; i < 9000; i++) printf "prime " }')
run generate "$model" --temperature 0 "$long" "$primes"
is "the status with a prompt that is too long" 1 "$status"
is "the answer beside it" "$answer" "$out"
wants "what is wrong with it" "prompt 1 (\"prime prime.*…\"): prompt has [0-9]* tokens, but max_model_len is 4096" "$err"
run generate "$model" --temperature 0 --json "$long" "$primes"
is "objects, one of an error" '"error" "stop"' "$(field finish_reason | tr '\n' ' ' | sed 's/ $//')"
wants "the error" '"status":"NVLLM_ERR_CONTEXT_LENGTH"' "$out"

# Progress moves with tokens, while no prompt has ended yet.
run generate "$model" --temperature 0 --progress "introduce yourself"
is "answers beside progress" 1 "$(printf '%s\n' "$out" | wc -l)"
wants "progress in a pipe" "^generating [0-9]*% 0 of 1, [1-9][0-9]* tokens" "$err"
wants "the speed" "prompt and [1-9][0-9]* answer tokens in" "$err"

# ---- chat ----
is "chat" "I am the demo model" "$(echo "introduce yourself" | "$tool" chat "$model" --temperature 0 2>/dev/null | cut -c 1-19)"
said=$(printf '%s\n' "$primes" "introduce yourself" /quit "never read" | "$tool" chat --temperature 0 "$model" 2>/dev/null)
is "answers" 2 "$(printf '%s\n' "$said" | wc -l)"
is "the first of them" "$answer" "$(printf '%s\n' "$said" | head -n 1)"
said=$(printf '%s\n' hello /reset hello | "$tool" chat "$model" --max-tokens 8 2>&1 >/dev/null)
wants "speed" "tokens/s" "$said"
wants "reset" "a new conversation" "$said"
is "prompts after /reset" 1 "$(printf '%s\n' "$said" | sed -n 's/.* of \([0-9]*\) prompt tokens.*/\1/p' | sort -u | wc -l)"
said=$(printf '%s\n' "$(printf '%s' "$long" | cut -c 1-30000)" "$primes" | "$tool" chat --temperature 0 "$model" 2>&1)
wants "too long" "/reset begins a new conversation" "$said"
wants "after too long" "2, 3, 5, 7" "$said"
said=$(printf '%s\n' /foo /rest /help | "$tool" chat "$model" 2>"$work/err")
is "what the model says of commands" "" "$said"
wants "an unknown command" "/foo is no command; /help lists them" "$(cat "$work/err")"
wants "a misspelled command" "did you mean /reset?" "$(cat "$work/err")"
wants "/help" "/save FILE " "$(cat "$work/err")"
is "several lines" "$answer" "$(printf '%s\n' "list all prime \\" "numbers within 10" | "$tool" chat --temperature 0 "$model" 2>/dev/null | tr -d '\n' | grep -o "$answer" || echo "none")"
wants "a part" "Brenna\|forge\|smith\|blade\|steel\|iron" "$(echo "who are you?" | "$tool" chat --system "You are Brenna, the blacksmith." "$model" 2>/dev/null)"
wants "another part" "Brenna\|forge\|smith\|blade\|steel\|iron" "$(printf '%s\n' "/system You are Brenna, the blacksmith." "who are you?" | "$tool" chat "$model" 2>/dev/null)"

# A saved conversation continues as if it had never ended, from its keys and values.
printf '%s\n' "introduce yourself" "$primes" "introduce yourself" | "$tool" chat --temperature 0 "$model" >"$work/whole" 2>"$work/err"
whole=$(tail -n 1 "$work/err")
printf '%s\n' "introduce yourself" "$primes" "/save $work/saved" | "$tool" chat --temperature 0 "$model" >"$work/part" 2>"$work/err"
wants "/save" "saved to $work/saved" "$(cat "$work/err")"
wants "the messages of the file" "\"content\":\"$primes\"" "$(head -n 1 "$work/saved")"
printf '%s\n' "/load $work/saved" "introduce yourself" | "$tool" chat --temperature 0 "$model" >>"$work/part" 2>"$work/err"
cmp -s "$work/whole" "$work/part" || fails "a loaded conversation says $(cat "$work/part"), and one that never ended $(cat "$work/whole")"
wants "/load" "2 questions from .*; [1-9][0-9]* tokens need not be computed again" "$(cat "$work/err")"
cached=$(sed -n 's/.*; \([0-9]*\) of [0-9]* prompt tokens were cached.*/\1/p' "$work/err")
[ "${cached:-0}" -gt 0 ] || fails "no tokens of a loaded conversation were cached: $(cat "$work/err"), beside $whole"
is "--load" "$(tail -n 1 "$work/whole")" "$(echo "introduce yourself" | "$tool" chat --load "$work/saved" --temperature 0 "$model" 2>/dev/null)"
refuses 1 "is no conversation" chat "$model" --load "$work/prompt"
wants "a conversation that cannot be loaded" "No such file" "$(echo "/load /no/such/file" | "$tool" chat "$model" 2>&1)"

# ---- bench, info, embed, version ----
run bench --prompt 100 --answer 4 --threads 1 "$model"
wants "bench, the model" "5.2 million parameters, 0.01 GB of weights, on the CPU" "$out"
wants "bench, the prompt" "^| a prompt of 100 tokens *| *[1-9][0-9]* | *[0-9]*\.[0-9]* |$" "$out"
wants "bench, one answer" "^| 1 answer *| *[1-9][0-9]* | *[0-9]*\.[0-9]* a step |$" "$out"
wants "bench, many answers" "^| 16 answers at once *| *[1-9][0-9]* |" "$out"
run bench --prompt 100 --answer 4 --json "$model"
wants "bench --json" '"decode":\[{"requests":1,"answer_tokens":4,"tokens_per_s":[0-9.]*,' "$out"
run info "$model" --context 1000
wants "info, the class" "^class *Qwen3ForCausalLM$" "$out"
wants "info, the layers" "^layers *6, 256 wide$" "$out"
wants "info, the weights" "^attention *bf16, " "$out"
wants "info, the memory" "^memory .* for the keys and values of 1000 tokens (3.0 KiB each)$" "$out"
run info "$model" --json
is "info --json, the bytes of a token" 3072 "$(field kv_token_bytes)"
is "info --json, the context" 4096 "$(field context)"
refuses 1 "at most 4096 tokens" info "$model" --context 5000
mkdir "$work/other"
sed 's/Qwen3ForCausalLM/PhimoeForCausalLM/; s/"qwen3"/"phimoe"/' "$model/config.json" >"$work/other/config.json"
refuses 1 "architecture PhimoeForCausalLM is not supported" info "$work/other"

run embed "$model" "a text" "another text" --pooling mean
is "vectors" 2 "$(printf '%s\n' "$out" | wc -l)"
is "their width" 256 "$(printf '%s\n' "$out" | head -n 1 | wc -w)"
is "their length" 1.0000 "$(printf '%s\n' "$out" | awk 'NR == 1 { for (i = 1; i <= NF; i++) sum += $i * $i; printf "%.4f", sqrt(sum) }')"
run embed "$model" "a text" --no-normalize
[ "$(printf '%s\n' "$out" | awk '{ for (i = 1; i <= NF; i++) sum += $i * $i; printf "%.4f", sqrt(sum) }')" != 1.0000 ] ||
    fails "--no-normalize has no effect"
run embed "$model" --json "a text"
wants "embed --json" '^{"text":"a text","embedding":\[-\{0,1\}[0-9.e-]*,.*\],"usage":{"prompt_tokens":[1-9][0-9]*}}$' "$out"
run version
wants "version" '"instruction_sets"' "$out"

for bits in int8 int4; do
    run quantize "--$bits" "$model" "$work/$bits"
    is "the status of quantize --$bits" 0 "$status"
    wants "a folder of $bits" "^I am the demo model" "$(echo "introduce yourself" | "$tool" chat "$work/$bits" 2>/dev/null)"
    wants "opening as $bits" "^I am the demo model" "$(echo "introduce yourself" | "$tool" --quantization "$bits" chat "$model" 2>/dev/null)"
    run info "$work/$bits"
    wants "info of $bits" "^attention *$bits, " "$out"
done
refuses 1 "is not empty" quantize "$model" "$work/int8"

# ---- output that is lost, and output that nobody reads ----
if [ -e /dev/full ]; then # Linux has it
    for command in version place --help --version "generate --max-tokens 4 $model hello" "info $model" "embed $model hello" \
        "bench --prompt 8 --answer 4 --threads 1 $model"; do
        status=0
        # shellcheck disable=SC2086 # a command and its arguments
        said=$("$tool" $command 2>&1 >/dev/full) || status=$?
        is "the status of $command, whose output is lost" 1 "$status"
        wants "$command, lost output" "the output cannot be written" "$said"
    done
    status=0
    said=$(echo hello | "$tool" chat "$model" 2>&1 >/dev/full) || status=$?
    is "the status of chat, whose output is lost" 1 "$status"
    wants "chat, lost output" "the output cannot be written" "$said"
fi
"$tool" generate --json --lines <(yes hello | head -n 300) --max-tokens 2 "$model" 2>"$work/err" | head -n 1 >/dev/null
is "what is said to nobody" "" "$(cat "$work/err")"
exit "$failures"
