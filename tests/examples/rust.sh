#!/bin/sh
# Runs the examples in Rust: a conversation, a batch, and a server with several clients at once.
#   rust.sh PROGRAMS MODEL
set -eu
programs=${1:?usage: rust.sh PROGRAMS MODEL} model=${2:?}
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
fail() {
    echo "rust.sh: $*" >&2
    exit 1
}

printf 'introduce yourself\nthanks\n' | "$programs/chat" "$model" >"$work/chat"
grep -q "demo model of libnanovllm" "$work/chat" && grep -q "You are welcome" "$work/chat" || fail "chat said: $(cat "$work/chat")"

seq 1 20 | sed 's/^/count from 1 to /' | "$programs/batch" "$model" >"$work/batch" 2>"$work/progress"
[ "$(grep -c '"error":null' "$work/batch")" = 20 ] || fail "batch said: $(cat "$work/batch")"
grep -q "20 of 20" "$work/progress" || fail "batch told no progress: $(cat "$work/progress")"

"$programs/server" "$model" 127.0.0.1:0 >"$work/log" &
server=$!
for _ in $(seq 100); do
    url=$(sed -n 's/^listening at //p' "$work/log")
    [ -z "$url" ] || break
    sleep 0.1
done
[ -n "$url" ] || fail "the server did not start"
clients=
# Greedy: a sampled answer may end before its limit.
for client in 1 2 3 4; do
    curl -sS -N "$url/completions" -d '{"prompt": "introduce yourself", "max_tokens": 8, "temperature": 0}' >"$work/client$client" &
    clients="$clients $!"
done
# A client that goes away at once holds nobody up.
curl -s -m 0.05 -N "$url/completions" -d '{"prompt": "introduce yourself", "max_tokens": 100000}' >/dev/null || true
for client in $clients; do wait "$client" || fail "a client failed"; done
for client in 1 2 3 4; do
    grep -q 'data: {"finish":"length"}' "$work/client$client" || fail "client $client got: $(cat "$work/client$client")"
done
[ "$(curl -s -o /dev/null -w '%{http_code}' "$url/completions" -d '{"prompt": 3}')" = 400 ] || fail "a bad request is accepted"
echo "the examples in Rust: all passed"
