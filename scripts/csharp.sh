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

# The sample for Unity, against stand-ins for Unity's classes.
$compile -r:"$out/Nanovllm.dll" -out:"$out/Character.exe" "$binding/Samples~/Character"/*.cs $binding/Tests~/Unity/*.cs
mono --debug "$out/Character.exe" models demo
# The scene has the script by the id in the script's file of Unity.
id=$(sed -n 's/^guid: //p' "$binding/Samples~/Character/Character.cs.meta")
grep -q "guid: $id," "$binding/Samples~/Character/Character.unity"

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
    [ -n "$(cd "$out/root" && sh -eu "$block")" ] || { echo "csharp.sh: the program of $page printed nothing" >&2; exit 1; }
done <<<"$commands"
# Other programs of the pages.
awk -F '\t' '$3 == "csharp" && $4 == "run" && $5 != "Hello.cs" { print $1 "\t" $5 "\t" $6 }' "$out/list" >"$out/others"
while IFS=$'\t' read -r page name block; do
    program=$out/${name%.cs}.exe
    cp "$block" "$out/$name"
    $compile -r:"$out/Nanovllm.dll" -out:"$program" "$out/$name"
    [ -n "$(mono --debug "$program" models/demo)" ] || { echo "csharp.sh: $name of $page printed nothing" >&2; exit 1; }
done <"$out/others"
# The program of the binding's page, in a folder of its own.
readme=$out/readme
mkdir "$readme"
cp "$out/Nanovllm.dll" "$readme"
cp "$(awk -F '\t' '$1 == "bindings/csharp/README.md" && $5 == "Hello.cs" { print $6 }' "$out/list")" "$readme/Hello.cs"
(cd "$readme" && $compile -r:Nanovllm.dll -out:Hello.exe Hello.cs)

# Without the library: each file that was looked for. A file that is no library: what the loader says of it.
fails() { ! echo hello | LD_LIBRARY_PATH=/nowhere/at/all mono "$readme/Hello.exe" models/demo >"$readme/log" 2>&1; }
says() { grep -qF "$1" "$readme/log" || { echo "csharp.sh: no \"$1\" in:" >&2; cat "$readme/log" >&2; exit 1; }; }
fails
says "DllNotFoundException"
says "$readme/libnanovllm.so: is not there"
says "/nowhere/at/all/libnanovllm.so: is not there"
says "Put libnanovllm.so of the same release into $readme, or set LD_LIBRARY_PATH"
echo "no library" >"$readme/libnanovllm.so"
fails
says "$readme/libnanovllm.so: is there, but cannot be loaded: "
echo "C#: all passed"
