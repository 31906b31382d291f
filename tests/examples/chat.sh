#!/bin/sh
# A conversation with the chat example: it remembers, forgets on /reset, plays a part, and survives a prompt without end.
#   chat.sh CHAT MODEL_FOLDER FAILING_CHAT
# FAILING_CHAT is the chat with an error at the end of its first answer: see failing_output.c.
set -eu
chat=$1 model=$2 failing_chat=$3
failures=0
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q "$2" || { echo "chat.sh: $1: no $2 in: $3" >&2; failures=$((failures + 1)); }
}

said=$(printf '%s\n' "list all prime numbers within 10" "introduce yourself" /quit "never read" | "$chat" "$model" 2>/dev/null)
wants "first turn" "^Prime numbers within 10: 2, 3, 5, 7\.$" "$said"
wants "second turn" "^I am " "$said"
[ "$(printf '%s\n' "$said" | wc -l)" = 2 ] || { echo "chat.sh: more than two answers: $said" >&2; exit 1; }

said=$(printf '%s\n' hello /reset hello | "$chat" "$model" 2>&1 >/dev/null)
wants "speed" "tokens/s" "$said"
wants "reset" "a new conversation" "$said"
prompts=$(printf '%s\n' "$said" | sed -n 's/.* of \([0-9]*\) prompt tokens.*/\1/p' | sort -u | wc -l)
[ "$prompts" = 1 ] || { echo "chat.sh: the prompt after /reset is not as long as the first one: $said" >&2; exit 1; }

long=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "prime " }')
said=$(printf '%s\n' "$long" "list all prime numbers within 10" | "$chat" "$model" 2>&1)
wants "too long" "/reset begins anew" "$said"
wants "after too long" "2, 3, 5, 7" "$said"

# An answer that ends with an error is no part of the conversation.
said=$(printf '%s\n' hello "introduce yourself" | "$failing_chat" "$model" 2>&1 >/dev/null)
wants "an error" "^an error of the test$" "$said"
alone=$(echo "introduce yourself" | "$chat" "$model" 2>&1 >/dev/null | sed -n 's/.*\( of [0-9]* prompt tokens\).*/\1/p')
wants "after an error" "${alone:-speed}" "$said"

wants "a part" "Brenna\|forge\|smith\|blade\|steel\|iron" "$(echo "who are you?" | "$chat" --system "You are Brenna, the blacksmith." "$model" 2>/dev/null)"
if [ -e /dev/full ]; then # Linux has it
    if said=$(echo hello | "$chat" "$model" 2>&1 >/dev/full); then
        echo "chat.sh: lost output is no failure" >&2
        failures=$((failures + 1))
    fi
    wants "lost output" "the output cannot be written" "$said"
fi
if "$chat" /no/such/folder </dev/null 2>/dev/null; then
    echo "chat.sh: a missing model is no failure" >&2
    failures=$((failures + 1))
fi
exit "$failures"
