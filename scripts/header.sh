#!/bin/sh
# Writes include/nanovllm.h from src/ffi, docs/reference.md from that and the limits of docs/security.md from src/limits.rs, or
# with --check only compares.
#
# cbindgen would put all constants first, then all types, then all functions. A C programmer reads by topic, so each section
# is generated from its own file, under the title that the file's own first lines give it.
set -eu
cd "$(dirname "$0")/.."
header=include/nanovllm.h
reference=docs/reference.md
sections="status version limits logging engine requests stepping generate state text stats"

wanted="cbindgen 0.29.4"
found=$(cbindgen --version 2>/dev/null || echo "no cbindgen")
if [ "$found" != "$wanted" ]; then
    echo "header.sh: needs $wanted, found $found: cargo install cbindgen --version 0.29.4 --locked" >&2
    exit 1
fi

# The title of a section and its introduction: the first lines of the file that begin with //!.
introduction() {
    sed -n '/^\/\/!/!q; s/^\/\/! \{0,1\}//p' "$1" | awk '
        NR == 1 { sub(/\.$/, ""); line = "/* ---- " $0 " "; while (length(line) < 76) line = line "-"; title = line; next }
        $0 == "" && !text { next }
        { text = text "\n" ($0 == "" ? " *" : " * " $0) }
        END { if (text) print title text "\n */"; else print title " */" }'
}

# cbindgen says "struct x" wherever it knows x to be one, and cannot know across sections: the typedef serves everywhere.
# It also gives every attribute a line of its own.
tidy() {
    awk '
        /^NVLLM_API$/ { held = $0; next }
        held != "" { print (/^NVLLM_MUST_USE$/ ? held " " $0 : held "\n" $0); held = ""; next }
        !/^typedef struct/ { gsub(/struct nvllm_/, "nvllm_") }
        { print }'
}

write_header() {
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    IFS=. read -r major minor patch <<VERSION
$version
VERSION
    sed -e "s/@MAJOR@/$major/" -e "s/@MINOR@/$minor/" -e "s/@PATCH@/$patch/" src/ffi/header_begin.h
    for section in $sections; do
        echo
        introduction "src/ffi/$section.rs"
        echo
        cbindgen --quiet --config cbindgen.toml "src/ffi/$section.rs" | tidy
    done
    cat src/ffi/header_end.h
}

# docs/security.md with the table of limits as src/limits.rs has it.
write_security() {
    sed '/^<!-- limits:/q' docs/security.md
    echo
    echo "| limit | |"
    echo "|---|---|"
    awk '/^\/\/\/ / { sub(/^\/\/\/ /, ""); text = text (text ? " " : "") $0; next }
        /^pub const/ { sub(/;$/, ""); split($0, parts, " = "); print parts[2] "\t" text }
        { text = "" }' src/limits.rs | while IFS="$(printf '\t')" read -r value text; do
        printf '| %s | %s |\n' "$(echo $(($(echo "$value" | tr -d _))) | sed -e :a -e 's/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/;ta')" "$text"
    done
    echo
    sed -n '/^<!-- end of limits/,$p' docs/security.md
}

write_reference() { awk -f scripts/reference.awk "$1" "$1" | cat -s; }

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
write_header >"$new/nanovllm.h"
write_reference "$new/nanovllm.h" >"$new/reference.md"
write_security >"$new/security.md"
if [ "${1:-}" = --check ]; then
    diff -u "$header" "$new/nanovllm.h" && diff -u "$reference" "$new/reference.md" &&
        diff -u docs/security.md "$new/security.md" || {
        echo "header.sh: $header, $reference and docs/security.md are not what src says: run make header" >&2
        exit 2
    }
    echo "$header, $reference and docs/security.md are up to date"
else
    cp "$new/nanovllm.h" "$header"
    cp "$new/reference.md" "$reference"
    cp "$new/security.md" docs/security.md
fi
