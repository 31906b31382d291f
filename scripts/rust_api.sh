#!/bin/sh
# Writes docs/rust-api.txt: what the crate nanovllm makes public, so that a change of it is seen. With --check it only compares.
#
# The items of src/lib.rs and src/api, and of the files whose types they hand on: signatures, fields and variants, without comments.
set -eu
cd "$(dirname "$0")/.."
files="src/lib.rs src/api/engine.rs src/api/handle.rs src/api/log.rs src/runner/options.rs src/engine/api/sampling_params.rs src/engine/results/output.rs
    src/engine/results/logprobs.rs src/text/structure/mod.rs src/text/answer/mod.rs src/text/answer/tools.rs src/base/error.rs"
out=docs/rust-api.txt
new=$(mktemp)
trap 'rm -f "$new"' EXIT
for file in $files; do
    awk -v file="$file" '
        /^#\[cfg\(test\)\]/ { exit }
        { line = $0; sub(/^ +/, "", line) }
        line ~ /^\/\// || line ~ /^#/ { next }
        # A signature or a list that goes on in the next lines.
        held != "" { held = held (held ~ /[({]$/ || line ~ /^[)}]/ ? "" : " ") line; if (line ~ /[{;]$/ || line ~ /^}/) { print held; held = "" } next }
        /^pub(\(super\)|\(crate\)) / { shown = 0; next }
        /^pub (enum|struct)/ { print line; shown = /\{$/; is_enum = /enum/; next }
        /^}/ { shown = 0; next }
        /^impl/ { owner = line; sub(/ \{$/, "", owner); shown = 0; next }
        /^pub (use|mod|type|const|fn)/ || /^    pub (use|fn|const)/ {
            if (/^    pub fn/) line = owner ": " line
            if (line ~ /[;{]$/ && !(line ~ /^pub use.*\{$/)) print line; else held = line
            next
        }
        shown && /^    pub [a-z_]+:/ { print "    " line; next }
        shown && is_enum && /^    [A-Z][A-Za-z0-9]*([,({ ]|$)/ { print "    " line; next }
        shown && is_enum && /^        [a-z_]+: / { print "        " line }
    ' "$file" | sed 's/ {$//; s/,)/)/g' | { echo "== $file"; cat; }
done >"$new"
if [ "${1:-}" != --check ]; then
    cp "$new" "$out"
elif ! diff -u "$out" "$new"; then
    echo "rust_api.sh: the public API for Rust is not what $out says: run scripts/rust_api.sh, and say so in CHANGELOG.md" >&2
    exit 2
fi
