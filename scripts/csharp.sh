#!/bin/bash
# Compiles the C# binding with Mono, and runs its tests with the library of a build.
#   csharp.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: csharp.sh BUILD_DIR}
cd "$(dirname "$0")/.."
build=$(cd "$build" && pwd)
[ -e "$build/lib/libnanovllm.so" ] || { echo "csharp.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }
for command in mcs mono; do
    command -v $command >/dev/null || { echo "csharp.sh: needs $command: apt-get install mono-mcs mono-runtime" >&2; exit 1; }
done

out=$build/csharp
binding=bindings/csharp
rm -rf "$out"
mkdir -p "$out"
# C# 7 is what Mono's compiler knows, and Unity's compiles it as well.
compile="mcs -langversion:latest -unsafe -optimize -warnaserror -debug:portable -r:System.Core.dll"
$compile -target:library -out:"$out/Nanovllm.dll" $binding/Runtime/*.cs
$compile -r:"$out/Nanovllm.dll" -out:"$out/Tests.exe" $binding/Tests~/*.cs

# DllImport finds the library as other programs do.
export LD_LIBRARY_PATH="$build/lib"
generate=()
[ ! -x "$build/examples/generate" ] || generate=("$build/examples/generate")
mono --debug "$out/Tests.exe" models/demo tests/capi/abi.h "${generate[@]}"

# The programs of the pages.
. tests/docs/pages.sh
mkdir "$out/blocks"
# shellcheck disable=SC2086 # a list of paths
awk -v out="$out/blocks" -f tests/docs/blocks.awk $pages >"$out/list"
# Its commands compile and run the program of a page, in a folder that looks like this one.
mkdir "$out/root"
ln -s "$PWD/bindings" "$PWD/models" "$out/root"
ln -s "$build" "$out/root/build"
commands=$(awk -F '\t' '$4 == "with Hello.cs" { print $1 "\t" $6 }' "$out/list")
[ -n "$commands" ] || { echo "csharp.sh: no page shows how to compile C#" >&2; exit 1; }
while IFS=$'\t' read -r page block; do
    cp "$(awk -F '\t' -v page="$page" '$1 == page && $5 == "Hello.cs" { print $6 }' "$out/list")" "$out/root/Hello.cs"
    (cd "$out/root" && sh -eu "$block") | grep -q . || { echo "csharp.sh: the program of $page printed nothing" >&2; exit 1; }
done <<<"$commands"
echo "C#: all passed"
