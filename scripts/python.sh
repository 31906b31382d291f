#!/bin/bash
# Builds the Python wheel with the library of a build inside, installs it into an environment of its own, and runs its tests there.
#   python.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: python.sh BUILD_DIR}
cd "$(dirname "$0")/.."
build=$(cd "$build" && pwd)
[ -e "$build/lib/libnanovllm.so" ] || { echo "python.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }

# The package is built from a copy, beside which the library lies: the tree stays as it is.
rm -rf "$build/python"
mkdir -p "$build/python/wheels"
cp -r bindings/python "$build/python/package"
cp "$(readlink -f "$build/lib/libnanovllm.so")" "$build/python/package/src/nanovllm/libnanovllm.so.0"
strip --strip-debug "$build/python/package/src/nanovllm/libnanovllm.so.0"

environment=$build/python-environment
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
pip="$environment/bin/pip --quiet --disable-pip-version-check"
$pip wheel --no-deps --wheel-dir "$build/python/wheels" "$build/python/package"
$pip install --no-deps --force-reinstall "$build"/python/wheels/*.whl

export NANOVLLM_MODEL=$PWD/models/demo
# The installed package, and not the sources.
(cd "$build/python" && "$environment/bin/python" -W error::ResourceWarning -m unittest discover -s package/tests)
# The programs of the pages.
. tests/docs/pages.sh
mkdir "$build/python/blocks"
# shellcheck disable=SC2086 # a list of paths
programs=$(awk -v out="$build/python/blocks" -f tests/docs/blocks.awk $pages | awk -F '\t' '$3 == "python" && $4 == "run" { print $6 }')
[ -n "$programs" ] || { echo "python.sh: no page shows Python" >&2; exit 1; }
for program in $programs; do
    "$environment/bin/python" "$program" | grep -q . || { echo "python.sh: $program printed nothing" >&2; exit 1; }
done
ls "$build/python/wheels"
echo "Python: all passed"
