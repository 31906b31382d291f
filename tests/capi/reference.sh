#!/bin/sh
# docs/reference.md has every public name of the header at its place, with its words and its value, and each of its links leads somewhere.
#   reference.sh SOURCE_DIR
set -eu
cd "${1:?usage: reference.sh SOURCE_DIR}"
reference=docs/reference.md
failures=0

# Headings as a browser names them.
anchors=$(sed -n 's/^##* //p' "$reference" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g')
has_anchor() { printf '%s\n' "$anchors" | grep -qx -- "$1"; }

while read -r name; do
    has_anchor "$name" || { echo "reference.sh: $name is not described" >&2; failures=$((failures + 1)); }
done <tests/capi/symbols.txt
awk -f tests/capi/reference.awk include/nanovllm.h "$reference" >&2 || failures=$((failures + 1))
links=$(grep -o '](#[^)]*)' "$reference" | sed 's/^](#//; s/)$//' | sort -u)
for link in $links; do
    has_anchor "$link" || { echo "reference.sh: #$link leads nowhere" >&2; failures=$((failures + 1)); }
done
[ "$(printf '%s\n' "$links" | wc -l)" -ge 40 ] || { echo "reference.sh: hardly any links: $links" >&2; failures=$((failures + 1)); }
exit "$failures"
