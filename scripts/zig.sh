#!/bin/sh
# Prints a folder with `zig` and with compilers named after their target: `zig-cc-TARGET`, `zig-c++-TARGET`. Zig comes from PyPI and is
# installed into BUILD_DIR. It brings the symbol versions of every glibc and the headers of other systems, so that one machine builds for
# all of them.
#   zig.sh BUILD_DIR TARGET...
set -eu
build=${1:?usage: zig.sh BUILD_DIR TARGET...}
shift
python=$(command -v python3) || { echo "zig.sh: needs python3 to fetch zig" >&2; exit 1; }
mkdir -p "$build"
bin=$(cd "$build" && pwd)/zig/bin
[ -x "$bin/pip" ] || "$python" -m venv "$build/zig" >&2 || { echo "zig.sh: needs python3-venv" >&2; exit 1; }
if ! [ -x "$bin/zig" ]; then
    "$bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.1 >&2
    printf '#!/bin/sh\nexec "%s/python3" -m ziglang "$@"\n' "$bin" >"$bin/zig"
    chmod +x "$bin/zig"
fi
for target; do
    for language in cc c++; do
        printf '#!/bin/sh\nexec "%s/zig" %s -target %s "$@"\n' "$bin" "$language" "$target" >"$bin/zig-$language-$target"
        chmod +x "$bin/zig-$language-$target"
    done
done
echo "$bin"
