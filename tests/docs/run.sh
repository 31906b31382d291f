#!/bin/sh
# What README.md and the pages of docs show works: programs in C and C++ and commands run with an installed library, fragments of C compile.
#   run.sh CMAKE BUILD_DIR SOURCE_DIR MODEL_FOLDER
#
# The blocks of a page share a folder, in which models/demo is the model. Those of other languages are run by the tests of their binding,
# which read the same list. The last lines say how many blocks ran, and why others did not.
set -eu
cmake=$1 build=$2 source=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
. tests/docs/pages.sh
mkdir "$work/blocks"
# shellcheck disable=SC2086 # a list of paths
awk -v out="$work/blocks" -f tests/docs/blocks.awk $pages >"$work/list"

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
libdir=$(dirname "$(find "$work/prefix" -name libnanovllm.so)")
export PATH="$work/prefix/bin:$PATH" PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir" CMAKE_PREFIX_PATH="$work/prefix"
flags=$(pkg-config --cflags --libs nanovllm)

failures=0 ran=0 compiled=0
# Runs a command in the folder of a page. A block that fails is named with its output.
in_folder() { # PAGE:LINE COMMAND...
    block=$1
    shift
    (cd "$folder" && "$@") >"$work/log" 2>&1 </dev/null && return
    { echo "run.sh: $block failed:"; cat "$work/log"; } >&2
    failures=$((failures + 1))
    return 1
}
# A program answers: it prints something.
answers() { # PAGE:LINE PROGRAM
    in_folder "$1" "$2" models/demo || return 0
    [ -s "$work/log" ] || { echo "run.sh: $1 printed nothing" >&2; failures=$((failures + 1)); }
}
tab=$(printf '\t')
while IFS="$tab" read -r page line language how name file; do
    folder=$work/pages/$(printf %s "$page" | tr / -)
    [ -d "$folder" ] || { mkdir -p "$folder/models"; ln -s "$model" "$folder/models/demo"; }
    [ "$name" = - ] || cp "$file" "$folder/$name"
    case "$language $how" in
    "c run")
        cp "$file" "$work/program.c"
        # shellcheck disable=SC2086 # words
        in_folder "$page:$line" cc -Wall -Wextra -Werror "$work/program.c" -o "$work/program" $flags && answers "$page:$line" "$work/program"
        ;;
    "cpp run")
        # shellcheck disable=SC2086
        in_folder "$page:$line" c++ -std=c++20 -Wall -Wextra -Werror "$file" -o "$work/program" $flags && answers "$page:$line" "$work/program"
        ;;
    "sh run") in_folder "$page:$line" sh -eu "$file" || true ;;
    "c fragment")
        {
            echo '#include "tests/docs/fragment.h"'
            echo 'int fragment(void);'
            echo 'int fragment(void) {'
            echo "#line $((line + 1)) \"$page\""
            cat "$file"
            echo 'return 0; }'
        } >"$work/fragment.c"
        in_folder "$page:$line" cc -std=c11 -Wall -Werror -Wno-unused -Wno-unused-result -I"$source" -I"$source/include" -c "$work/fragment.c" -o "$work/fragment.o" || true
        compiled=$((compiled + 1))
        continue
        ;;
    *) continue ;;
    esac
    ran=$((ran + 1))
done <"$work/list"

elsewhere() { awk -F '\t' "$1 { n++ } END { print n + 0 }" "$work/list"; }
echo "docs: $(wc -l <"$work/list") blocks"
echo "  $ran run here, $compiled are compiled"
echo "  $(elsewhere '$3 == "go" && $4 == "run" || $4 ~ /^with (main.go|the)/') run by make go, \
$(elsewhere '$3 == "python" && $4 == "run"') by make python, $(elsewhere '$3 == "csharp" && $4 == "run" || $4 == "with Hello.cs"') by make csharp, \
$(elsewhere '$3 == "rust" && $4 == "run"') by cargo test --doc"
echo "  $(elsewhere '$3 == "cmake" || $4 == "data"') are files of others, or no code"
echo "  $(elsewhere '$4 ~ /^not run/') are not run:"
awk -F '\t' '$4 ~ /^not run/ { sub(/^not run: /, "", $4); print "    " $1 ":" $2 ": " $4 }' "$work/list"
[ "$ran" -ge 10 ] && [ "$compiled" -ge 5 ] || { echo "run.sh: hardly any blocks" >&2; exit 1; }
exit "$failures"
