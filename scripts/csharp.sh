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

# The program of the README page.
awk '/^```csharp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' $binding/README.md >"$out/Readme.cs"
$compile -r:"$out/Nanovllm.dll" -out:"$out/Readme.exe" "$out/Readme.cs"
mono "$out/Readme.exe" models/demo | grep -q .
echo "C#: all passed"
