#!/bin/sh
# A conversation as a person has it, on a terminal that tmux imitates: Ctrl-C, history, several lines, another width.
#   chat_terminal.sh NANOVLLM MODEL_FOLDER
set -eu
tool=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") model=$2
command -v tmux >/dev/null || { echo "chat_terminal.sh: tmux is not found (Debian: tmux): left out"; exit 0; }
work=$(mktemp -d)
# The server of tmux stays between two sessions.
echo "set -g exit-empty off" >"$work/tmux.conf"
terminal() { tmux -S "$work/socket" -f "$work/tmux.conf" "$@"; }
trap 'terminal kill-server 2>/dev/null; rm -rf "$work"' EXIT
screen() { terminal capture-pane -p -t chat; }
fail() {
    echo "chat_terminal.sh: $1; the screen:" >&2
    screen >&2 || true
    exit 1
}
press() { terminal send-keys -t chat "$@"; }
type_text() { terminal send-keys -t chat -l "$1"; }
# Waits until the screen has a pattern, for at most 30 seconds.
shows() { # NAME PATTERN
    attempts=600
    until screen | grep -q -- "$2"; do
        attempts=$((attempts - 1))
        [ "$attempts" -gt 0 ] || fail "$1: no $2"
        sleep 0.05
    done
}
# Without its end token the model talks until its context is full, or until it is stopped.
start() { # OPTION...
    terminal new-session -d -s chat -x 100 -y 30 "env -u NO_COLOR XDG_STATE_HOME='$work' TERM=screen-256color LC_ALL=C.UTF-8 '$tool' chat '$model' --threads 1 $*; echo \"it ended with \$?\"; sleep 60"
}
# The line of the prompt, which is the last one that is not empty.
prompt_line() { screen | grep -v '^$' | tail -n 1; }
prompt_is() { # NAME WANTED
    attempts=600
    until [ "$(prompt_line)" = "$2" ]; do
        attempts=$((attempts - 1))
        [ "$attempts" -gt 0 ] || fail "$1: the prompt is '$(prompt_line)', but '$2' is wanted"
        sleep 0.05
    done
}

start --ignore-eos
shows "a greeting" "/help lists the commands"
shows "the commands" "/help /reset /system /save /load /quit"
prompt_is "an empty prompt" ">"

type_text "list all prime numbers within 100"
press Enter
shows "an answer" "2, 3, 5, 7"
press C-c
shows "Ctrl-C in an answer" "\[stopped; [0-9]* tokens"
prompt_is "the chat goes on" ">"

press Up
prompt_is "arrow-up" "> list all prime numbers within 100"
press C-c
prompt_is "Ctrl-C takes back what is typed" ">"

type_text "/rest"
press Enter
shows "an unknown command" "did you mean /reset?"
type_text "/re"
press Tab
prompt_is "Tab completes a command" "> /reset"
press Enter
shows "/reset" "a new conversation"

# Several lines: a backslash continues one. Both are sent as one question.
type_text "count \\"
press Enter
type_text "to three"
press Enter
shows "an answer to two lines" "one\|1\|three\|3"
press C-c
prompt_is "the second answer is stopped" ">"

# A text that is longer than the terminal is wide, while it gets narrower.
type_text "introduce yourself, please, and say what you can do for somebody who has never met you"
prompt_is "a long text" "> introduce yourself, please, and say what you can do for somebody who has never met you"
terminal resize-window -t chat -x 50 -y 30
sleep 0.5
press BSpace
press BSpace
press BSpace
shows "a narrower terminal" "ebody who has never met$"
press C-c
prompt_is "what was typed is taken back" ">"
press C-c
shows "Ctrl-C at an empty prompt" "it ended with 0"
terminal kill-session -t chat

# The history outlives the program. Ctrl-D ends it.
start --max-tokens 8
prompt_is "an empty prompt" ">"
# One for each line, of which the newest text has two.
for _ in 1 2 3 4 5; do press Up; done
prompt_is "history of the last time" "> list all prime numbers within 100"
press C-c
type_text "hello"
press Enter
shows "an answer of 8 tokens" "ended by --max-tokens"
prompt_is "the prompt after it" ">"
press C-d
shows "Ctrl-D" "it ended with 0"
terminal kill-session -t chat

# Colours, and none.
colours() { screen_with_colours=$(terminal capture-pane -e -p -t chat); printf '%s' "$screen_with_colours" | grep -c "$(printf '\033')\[[0-9;]*32m" || true; }
start
prompt_is "an empty prompt" ">"
[ "$(colours)" -gt 0 ] || fail "the prompt has no colour"
terminal kill-session -t chat
terminal new-session -d -s chat -x 100 -y 30 "env NO_COLOR=1 XDG_STATE_HOME='$work' '$tool' chat '$model'; sleep 60"
prompt_is "an empty prompt" ">"
[ "$(colours)" = 0 ] || fail "the prompt has colours in spite of NO_COLOR"
