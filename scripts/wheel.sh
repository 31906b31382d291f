#!/bin/bash
# Makes a Python wheel with a library that is built, and prints its path. Nothing is compiled.
#   wheel.sh LIBRARY|ARCHIVE DIR
#
# LIBRARY: libnanovllm.so or nanovllm.dll. ARCHIVE: the .tar.gz or .zip that make release-linux, make arm64 or make windows has built.
# The tag of the wheel says what the library needs: bindings/python/setup.py. PYTHON is an interpreter that has pip. A publisher of wheels sets the
# address of the project: NANOVLLM_URL.
set -euo pipefail
given=${1:?usage: wheel.sh LIBRARY|ARCHIVE DIR} out=${2:?usage: wheel.sh LIBRARY|ARCHIVE DIR}
given=$(readlink -f "$given")
[ -f "$given" ] || { echo "wheel.sh: $1: no such file" >&2; exit 1; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=${PYTHON:-python3}
if ! "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv "$work/environment" >&2 || { echo "wheel.sh: needs pip or python3-venv" >&2; exit 1; }
    python=$work/environment/bin/python
fi

library=$given
case $given in
*.tar.gz | *.zip)
    "$python" -c 'import shutil, sys; shutil.unpack_archive(sys.argv[1], sys.argv[2])' "$given" "$work/archive"
    # Links to the library have other names, and debug information may lie beside it.
    library=$(find "$work/archive" -type f \( -name 'libnanovllm.so.*' -o -name nanovllm.dll \) ! -name '*.debug')
    [ -n "$library" ] || { echo "wheel.sh: $given has neither libnanovllm.so nor nanovllm.dll" >&2; exit 1; }
    [ "$(echo "$library" | wc -l)" = 1 ] || { echo "wheel.sh: $given has several libraries: $library" >&2; exit 1; }
    ;;
esac

# The package is built from a copy: the tree stays as it is.
cp -r bindings/python "$work/package"
cp LICENSE "$work/package"
if [ -n "${NANOVLLM_URL:-}" ]; then
    printf '\n[project.urls]\nHomepage = "%s"\n' "$NANOVLLM_URL" >>"$work/package/pyproject.toml"
fi
package=$work/package/src/nanovllm
rm -rf "$work/package/build" "$package"/*.so* "$package"/*.dll "$package/__pycache__"
case $library in
*.dll) cp "$library" "$package/nanovllm.dll" ;;
*)
    name=$(LC_ALL=C readelf -d --wide "$library" | sed -n 's/.*Library soname: \[\(.*\)\]/\1/p')
    cp "$library" "$package/${name:?"wheel.sh: $library has no soname"}"
    # Archives have libraries without debug information already, and of processors that this strip may not know.
    [ "$library" != "$given" ] || strip --strip-debug "$package/$name"
    ;;
esac
mkdir "$work/wheels"
"$python" -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir "$work/wheels" "$work/package" >&2
for wheel in "$work"/wheels/*.whl; do
    mv "$wheel" "$out"
    echo "$out/$(basename "$wheel")"
done
