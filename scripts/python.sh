#!/bin/bash
# Builds the Python wheel with the library of a build inside, installs it into an environment of its own, and runs its tests, the examples, the
# programs of the documents, and mypy there.
#   python.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: python.sh BUILD_DIR}
cd "$(dirname "$0")/.."
build=$(cd "$build" && pwd)
[ -e "$build/lib/libnanovllm.so" ] || { echo "python.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }

environment=$build/python-environment
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
pip="$environment/bin/pip --quiet --disable-pip-version-check"

rm -rf "$build/python"
mkdir -p "$build/python"
wheel=$(PYTHON=$environment/bin/python scripts/wheel.sh "$build/lib/libnanovllm.so" "$build/python/wheels")
$pip install --no-deps --force-reinstall "$wheel"
# Without other packages first, as most users begin.
"$environment/bin/python" -c 'import sys, nanovllm; nanovllm.Engine(sys.argv[1], device="cpu").close()' models/demo
$pip install numpy "pydantic>=2" tqdm mypy auditwheel "setuptools>=77" wheel

# The installed package, and not the sources.
cp -r bindings/python/tests "$build/python/tests"
export NANOVLLM_MODEL=$PWD/models/demo NANOVLLM_SOURCE=$PWD NANOVLLM_WHEEL=$wheel
(cd "$build/python" && "$environment/bin/python" -W error::ResourceWarning -m unittest discover -s tests)
(cd "$build/python" && "$environment/bin/python" -m mypy --strict --package nanovllm && "$environment/bin/python" -m mypy --strict "$NANOVLLM_SOURCE"/examples/python/*.py)
# The programs of other pages; the tests run those of docs/python.md, which are one program.
. tests/docs/pages.sh
mkdir "$build/python/blocks"
# shellcheck disable=SC2086 # a list of paths
programs=$(awk -v out="$build/python/blocks" -f tests/docs/blocks.awk $pages | awk -F '\t' '$1 !~ /python.md/ && $3 == "python" && $4 == "run" { print $6 }')
[ -n "$programs" ] || { echo "python.sh: no page shows Python" >&2; exit 1; }
for program in $programs; do
    [ -n "$("$environment/bin/python" "$program")" ] || { echo "python.sh: $program printed nothing" >&2; exit 1; }
done
echo "$wheel"
echo "Python: all passed"
