#!/bin/sh
# Generates include/nanovllm.h from src/capi, and from the header the files that repeat it: docs/reference.md, the option structs of
# the C++ and Go bindings, the C API as Python and C# declare it, and tests/capi/abi.h. The limits in docs/security.md are generated
# from src/base/limits.rs, and the structs that kernels read from src/compute/batch.rs. With --check it only compares.
#
# cbindgen would write all constants first, then all types, then all functions. A C programmer reads by topic, so each section
# is generated from its own file, under the title in the first lines of that file.
set -eu
cd "$(dirname "$0")/.."
header=include/nanovllm.h
generated="$header docs/reference.md docs/security.md tests/capi/abi.h
    bindings/cpp/nanovllm/generated_options.hpp bindings/go/generated.go bindings/python/src/nanovllm/_abi.py
    bindings/csharp/Runtime/Abi.cs
    kernels/common/batch.cuh"
sections="status version limits logging engine model_files quantize explain requests chat stepping generate score state text answers stats"

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

# cbindgen writes "struct x" if it knows that x is a struct, which it does not know across sections; the typedef is valid
# everywhere. It also writes every attribute on a line of its own.
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
    sed -e "s/@MAJOR@/$major/" -e "s/@MINOR@/$minor/" -e "s/@PATCH@/$patch/" src/capi/header_begin.h
    for section in $sections; do
        echo
        introduction "src/capi/$section.rs"
        echo
        cbindgen --quiet --config cbindgen.toml "src/capi/$section.rs" | tidy
    done
    cat src/capi/header_end.h
}

# docs/security.md with the table of limits from src/base/limits.rs.
write_security() {
    sed '/^<!-- limits:/q' docs/security.md
    echo
    echo "| limit | |"
    echo "|---|---|"
    awk '/^\/\/\/ / { sub(/^\/\/\/ /, ""); text = text (text ? " " : "") $0; next }
        /^pub const/ { sub(/;$/, ""); split($0, parts, " = "); print parts[2] "\t" text }
        { text = "" }' src/base/limits.rs | while IFS="$(printf '\t')" read -r value text; do
        printf '| %s | %s |\n' "$(echo $(($(echo "$value" | tr -d _))) | sed -e :a -e 's/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/;ta')" "$text"
    done
    echo
    sed -n '/^<!-- end of limits/,$p' docs/security.md
}

# Only the fields: kernels do not use the constants that Rust associates with a struct.
write_kernel_structs() {
    cbindgen --quiet --config kernels/cbindgen.toml src/compute/batch.rs | awk '
        /^\/\/\// { comment = comment $0 "\n"; next }
        /^constexpr static const/ { inside = 1; comment = "" }
        !inside { printf "%s", comment; comment = ""; print }
        inside && /;$/ { inside = 0 }' | cat -s
}

# One generated file, from the new header.
write() {
    from_header="awk -f scripts/header_model.awk"
    case $1 in
    include/nanovllm.h) write_header ;;
    docs/reference.md) awk -f scripts/reference.awk "$new/$header" "$new/$header" >"$new/reference" && cat -s "$new/reference" ;;
    docs/security.md) write_security ;;
    tests/capi/abi.h) $from_header -v baseline="$1" -f scripts/abi.awk "$new/$header" ;;
    bindings/cpp/*) $from_header -f scripts/cpp_options.awk "$new/$header" ;;
    bindings/go/*) $from_header -f scripts/go_options.awk "$new/$header" ;;
    bindings/python/*) $from_header -f scripts/python_abi.awk "$new/$header" ;;
    bindings/csharp/*) $from_header -f scripts/csharp_abi.awk "$new/$header" ;;
    kernels/common/batch.cuh) write_kernel_structs ;;
    esac
}

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
for file in $generated; do
    mkdir -p "$new/$(dirname "$file")"
    write "$file" >"$new/$file"
done
changed=
for file in $generated; do
    if [ "${1:-}" != --check ]; then
        cp "$new/$file" "$file"
    elif ! diff -u "$file" "$new/$file"; then
        changed="$changed $file"
    fi
done
if [ -n "$changed" ]; then
    echo "header.sh: not what src says:$changed; run make header" >&2
    exit 2
fi
# Bytes may agree and say the wrong thing: each name of the header has its words in the reference.
sh tests/capi/reference.sh .
[ "${1:-}" != --check ] || echo "up to date:" $generated
