#!/bin/sh
# Checks what can be checked of README.md and docs without building anything: links, names, flags, and that each block has somebody who runs it.
set -eu
cd "$(dirname "$0")/.."
. tests/docs/pages.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "docs_check.sh: $*" >&2; failures=$((failures + 1)); }

# Each block has a language that somebody runs, or a reason.
# shellcheck disable=SC2086 # a list of paths
awk -f tests/docs/blocks.awk $pages >"$work/blocks" || failures=$((failures + 1))

# Each link leads to a file of this repository, and to a heading of it.
# shellcheck disable=SC2046 # a list of paths
awk -f tests/docs/links.awk $(printf '%s\n' $pages; ls ./*.md docs/*.md docs/decisions/*.md | sed 's/^\.\///') | sort -u >"$work/links"
while read -r place target; do
    path=${target%%#*} anchor=
    case $target in *"#"*) anchor=${target#*#} ;; esac
    if [ "$path" != . ] && [ ! -e "$path" ]; then
        complain "$place links to $path, which does not exist"
    elif [ -n "$anchor" ] && ! awk -v only="$anchor" -f tests/docs/anchors.awk "$path"; then
        complain "$place links to $path#$anchor, and no heading is called that"
    fi
done <"$work/links"
[ "$(wc -l <"$work/links")" -ge 100 ] || complain "hardly any links"

# Each page is in the site.
for page in docs/*.md docs/decisions/*.md; do
    case $page in docs/SUMMARY.md) continue ;; esac
    grep -qF "(${page#docs/})" docs/SUMMARY.md || complain "docs/SUMMARY.md does not list $page"
done

# Each name of docs/languages.md is a word in the code of its binding.
code_of() {
    case $1 in
    C) cat include/nanovllm.h ;;
    C++) cat bindings/cpp/nanovllm.hpp bindings/cpp/nanovllm/*.hpp ;;
    Rust) cat docs/rust-api.txt ;; # scripts/rust_api.sh writes it from the source
    Go) find bindings/go -name '*.go' ! -name '*_test.go' -exec cat {} + ;;
    Python) cat bindings/python/src/nanovllm/*.py ;;
    C#) cat bindings/csharp/Runtime/*.cs ;;
    Godot) find bindings/godot -name '*.cpp' -exec cat {} + -o -name '*.gd' -exec cat {} + ;;
    *) return 1 ;;
    esac
}
awk -F ' *[|] *' '
    /^\| \| C \|/ { for (i = 3; i < NF; i++) language[i] = $i; next }
    /^\| [a-z]/ { for (i = 3; i < NF; i++) { count = split($i, part, "`"); for (p = 2; p <= count; p += 2) print language[i], part[p] } }' docs/languages.md >"$work/names"
[ "$(wc -l <"$work/names")" -ge 100 ] || complain "docs/languages.md has hardly any names"
for language in $(cut -d ' ' -f 1 "$work/names" | sort -u); do
    # Words of the code, without comments.
    code_of "$language" | sed -e 's/^ *\(\/\/\|\*\|\/\*\|# \).*//' -e 's/ \/\/ .*//' | tr -cs 'A-Za-z0-9_' '\n' | sort -u >"$work/words" ||
        complain "nobody knows where the code of $language is"
    sed -n "s/^$language //p" "$work/names" | tr -cs 'A-Za-z0-9_' '\n' | sed '/^$/d' | sort -u | comm -23 - "$work/words" >"$work/missing"
    while read -r name; do complain "docs/languages.md: $language has no $name"; done <"$work/missing"
done

# Each flag of the server is in its page, and each of the page is one.
sed -n 's/^[[:space:]]*\(pooling := \)\{0,1\}flags\.[A-Za-z0-9]*(\(&[a-zA-Z.]*, \)\{0,1\}"\([a-z-]*\)".*/-\3/p' examples/go/server/flags.go examples/go/server/engine_flags.go | sort -u >"$work/flags"
sed -n '/^## Flags/,/^## /s/^| `\(-[a-z-]*\)`.*/\1/p' docs/server.md | sort -u >"$work/told"
[ "$(wc -l <"$work/flags")" -ge 20 ] || complain "examples/go/server/flags.go and engine_flags.go have hardly any flags"
for flag in $(comm -23 "$work/flags" "$work/told"); do complain "docs/server.md does not have the flag $flag"; done
for flag in $(comm -13 "$work/flags" "$work/told"); do complain "docs/server.md has the flag $flag, which the server does not"; done

[ "$failures" = 0 ] || exit 1
echo "docs: $(wc -l <"$work/links") links, $(wc -l <"$work/blocks") blocks, $(wc -l <"$work/names") names, $(wc -l <"$work/flags") flags of the server"
