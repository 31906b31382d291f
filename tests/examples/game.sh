#!/bin/sh
# The game, played by a script on a screen that nobody sees: what is asked in three shops is answered there, what is bought is paid,
# Escape cuts an answer off, and frames go on while the engine works.
#   game.sh GAME MODEL_FOLDER
set -eu
game=$1 model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
driver=software
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q "$2" || { echo "game.sh: $1: no $2 in: $3" >&2; failures=$((failures + 1)); }
}
play() { # ARGUMENT... with the script on the standard input
    sed "s|PICTURE|$work/picture.bmp|" >"$work/script"
    SDL_RENDER_DRIVER=$driver xvfb-run -a -s "-screen 0 1280x800x24" "$game" --script "$work/script" "$@" "$model"
}

said=$(play <<'SCRIPT'
# The first question is typed with a mistake.
type what do you selll
key Backspace
key Return
silence
key Tab
type what do you sell?
key Return
click 400 50
type what do you sell?
key Return
silence
shot PICTURE
type heard any rumours?
key Return
silence
SCRIPT
) || failures=$((failures + 1))
[ "$(wc -c <"$work/picture.bmp")" -gt 1000000 ] || { echo "game.sh: no picture" >&2; failures=$((failures + 1)); }
wants "the first shop" "^Brenna: Iron sword 40, shield 25, helmet 18, dagger 12, horseshoe 3. Coins, no favours.$" "$said"
wants "the second shop, by Tab" "^Ilse: A healing potion for 15 coins" "$said"
wants "the third shop, by the mouse" "^Urs: Brötchen for 2 coins" "$said"
wants "a second question" "^Urs: They say the miller's new sack of flour sneezes at night" "$said"
wants "answers that end by themselves" "; 0 answers interrupted$" "$said"

# Two shopkeepers talk without end, until Escape.
said=$(play --endless <<'SCRIPT'
type hello
key Return
key Tab
type hello
key Return
tokens 100
key Escape
key Tab
key Tab
key Escape
silence
type what do you sell?
key Return
tokens 20
key Escape
silence
SCRIPT
) || failures=$((failures + 1))
wants "interruptions" "; 3 answers interrupted$" "$said"
tokens=$(printf '%s\n' "$said" | grep -c "^Brenna: \|^Ilse: ")
[ "$tokens" -ge 3 ] || { echo "game.sh: $tokens answers: $said" >&2; failures=$((failures + 1)); }
# Frames go on while the engine works. An answer in one piece would take longer than this bound even on a machine that is busy
# with other tests; what a quiet one does is in benches/record.
printf '%s\n' "$said" | awk '/frames with talk/ { sub(/.*p50 /, ""); if ($1 + 0 < 100) good = 1 } END { exit !good }' ||
    { echo "game.sh: frames are too long: $said" >&2; failures=$((failures + 1)); }
printf '%s\n' "$said" | tail -n 1

# Sales are tool calls of a model that knows nothing of tools. They follow the rules all the same: goods of the shop that the player can pay,
# for at least half of the price on the sign. A sale costs at least 2 gold, so that 30 questions are enough to spend 60.
said=$({
    printf 'key Tab\ntype a healing potion, please\nkey F1\nkey Tab\ntype xyzzy\nkey F1\nsilence\nkey Tab\n'
    for _ in $(seq 30); do printf 'type I buy that\nkey F1\nsilence\n'; done
} | play) || failures=$((failures + 1))
printf '%s\n' "$said" >"$work/sales"
awk -F '/' '
    function refuse(why) { print "game.sh: " why ": " $0 >"/dev/stderr"; wrong++ }
    FNR == NR { price[$1 ": [" $2] = $3; next }
    / gold\?\]$/ {
        offered = $0
        sub(/ for [0-9]+ gold\?\]$/, "", offered)
        if (!(offered in price) || $0 != offered " for " price[offered] " gold?]") refuse("no goods of this shop")
        next
    }
    / sold for [0-9]+ gold\]$/ {
        item = paid = $0
        sub(/ sold for .*/, "", item)
        sub(/.* sold for /, "", paid)
        if (item != offered) refuse("another item is on the counter")
        if (paid + 0 > price[item] || 2 * paid < price[item]) refuse("no price for it")
        offered = ""
        spent += paid
        sub(/.*\[/, "", item)
        items = items ", " item
        seller = $0
        sub(/:.*/, "", seller)
        sales[seller]++
        next
    }
    /^You: / { purse = $0 }
    END {
        gold = list = purse
        sub(/^You: /, "", gold)
        sub(/^You: [0-9]* gold/, "", list)
        # Items are in the order of the sales, and the report in that of the shops.
        if (gold + 0 != 60 - spent || gold + 0 < 0) refuse("the purse should have " 60 - spent " gold: " purse)
        if (length(list) != length(items)) refuse("the purse should have" items ": " purse)
        if (sales["Ilse"] != 1 || sales["Urs"] != 1 || sales["Brenna"] < 1) refuse("a shop has sold nothing")
        exit wrong
    }' - "$work/sales" <<'STOCK' || failures=$((failures + 1))
Brenna/iron sword/40
Brenna/shield/25
Brenna/helmet/18
Brenna/dagger/12
Brenna/horseshoe/3
Ilse/healing potion/15
Ilse/antidote/20
Ilse/sleeping powder/9
Ilse/mint tea/2
Ilse/lavender soap/5
Urs/Brötchen/2
Urs/rye bread/4
Urs/pretzel/3
Urs/honey cake/7
Urs/apple pie/9
STOCK
wants "a purse that is empty" "^Brenna: \[you cannot pay for anything here\]$" "$said"

# A sale that is interrupted costs nothing, and its shopkeeper still talks.
said=$(play <<'SCRIPT'
type a dagger, please
key F1
key Escape
silence
type what do you sell?
key Return
silence
SCRIPT
) || failures=$((failures + 1))
wants "a sale that is interrupted" "^Brenna: \[nothing is sold\]$" "$said"
wants "nothing is paid" "^You: 60 gold$" "$said"
wants "an answer after that" "; 1 answers interrupted$" "$said"

# OpenGL's pictures are timed. Here it draws with the CPU.
driver=opengl
said=$(play --layers 2 <<'SCRIPT'
type what do you sell?
key Return
silence
frames 10
SCRIPT
) || failures=$((failures + 1))
wants "a question with OpenGL" "^Brenna: Iron sword 40" "$said"
wants "pictures without talk" "^OpenGL drew [0-9]* pictures without talk: p50 [0-9]" "$said"
wants "pictures with talk" "^OpenGL drew [0-9]* pictures with talk: p50 [0-9]" "$said"
driver=software

if echo "dance" | play >"$work/log" 2>&1; then
    echo "game.sh: a script may say anything" >&2
    failures=$((failures + 1))
fi
wants "a wrong script" "dance is no action" "$(cat "$work/log")"
for wrong in "--layers -1" "--layers 3x" "--device gpu" "--gpu-memory"; do
    # shellcheck disable=SC2086 # an option and its value
    if "$game" $wrong >"$work/log" 2>&1; then
        echo "game.sh: $wrong is taken" >&2
        failures=$((failures + 1))
    fi
    wants "$wrong" "^usage: game" "$(cat "$work/log")"
done
if SDL_VIDEODRIVER=dummy "$game" /no/such/folder >"$work/log" 2>&1; then
    echo "game.sh: a missing model is no failure" >&2
    failures=$((failures + 1))
fi
wants "a missing model" "/no/such/folder" "$(cat "$work/log")"
# Without a display it says so. It does without one if SDL_VIDEODRIVER says so.
alone() { env -u DISPLAY -u WAYLAND_DISPLAY -u SDL_VIDEODRIVER timeout 20 "$@" >"$work/log" 2>&1; }
status=0
alone "$game" "$model" || status=$?
[ "$status" = 1 ] || { echo "game.sh: without a display it ends with $status" >&2; failures=$((failures + 1)); }
wants "no display" "^no display: .*set DISPLAY (X11) or WAYLAND_DISPLAY .* SDL_VIDEODRIVER=dummy" "$(cat "$work/log")"
printf 'type what do you sell?\nkey Return\nsilence\n' >"$work/script"
alone env SDL_VIDEODRIVER=dummy "$game" --script "$work/script" "$model" || { echo "game.sh: the dummy driver: $?" >&2; failures=$((failures + 1)); }
wants "the dummy driver" "^Brenna: Iron sword 40" "$(cat "$work/log")"
exit "$failures"
