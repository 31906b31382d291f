#!/bin/bash
# Unpacks the packages of scripts/packages.sh, and uses each: what is in it, and a program, a sample and a scene with nothing else.
#   engines.sh BUILD_DIR NUPKG UNITY_TGZ GODOT_ZIP NETSTANDARD_DLL
set -euo pipefail
build=${1:?} nupkg=${2:?} tgz=${3:?} godot_zip=${4:?} standard=${5:?}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "engines.sh: $*" >&2; exit 1; }
has() { # FOLDER FILE...
    local folder=$1 file
    shift
    for file in "$@"; do [ -s "$folder/$file" ] || fail "no $file in $(basename "$folder")"; done
}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
unset LD_LIBRARY_PATH

mkdir "$work/nuget" "$work/unity" "$work/godot"
(cd "$work/nuget" && cmake -E tar xf "$nupkg")
(cd "$work/unity" && tar xzf "$tgz")
(cd "$work/godot" && cmake -E tar xf "$godot_zip")

# ---- NuGet: a program beside the library's files ----
nuget=$work/nuget
has "$nuget" Nanovllm.nuspec "[Content_Types].xml" _rels/.rels LICENSE.txt README.md lib/netstandard2.1/Nanovllm.dll lib/netstandard2.1/Nanovllm.xml \
    runtimes/linux-x64/native/libnanovllm.so
grep -q "<version>$version</version>" "$nuget/Nanovllm.nuspec" || fail "the version of the nuspec is not $version"
grep -q '<member name="T:Nanovllm.Chat">' "$nuget/lib/netstandard2.1/Nanovllm.xml" || fail "no documentation of Chat"
# Every file has a kind, which NuGet asks for.
(cd "$nuget" && find . -type f ! -name "\[Content_Types\].xml" ! -name .rels) | sed 's/.*\.//' | sort -u | while read -r extension; do
    grep -q "Extension=\"$extension\"" "$nuget/[Content_Types].xml" || fail "[Content_Types].xml has no $extension"
done
[ ! -e "$build/windows/lib/nanovllm.dll" ] || has "$nuget" runtimes/win-x64/native/nanovllm.dll
program=$work/program
mkdir "$program"
awk '/^```csharp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$nuget/README.md" >"$program/Hello.cs"
cp "$nuget/lib/netstandard2.1/Nanovllm.dll" "$standard" "$program"
cat >"$program/References.cs" <<'END'
static class References
{
    static void Main(string[] arguments)
    {
        foreach (System.Reflection.AssemblyName name in System.Reflection.Assembly.LoadFrom(arguments[0]).GetReferencedAssemblies()) System.Console.WriteLine(name);
    }
}
END
mcs -out:"$program/References.exe" "$program/References.cs"
mono "$program/References.exe" "$program/Nanovllm.dll" >"$work/references"
grep -q "^netstandard, Version=2.1.0.0, Culture=neutral, PublicKeyToken=cc7b13ffcd2ddd51$" "$work/references" || fail "it does not refer to netstandard"
! grep -v "^netstandard, " "$work/references" || fail "it refers to another assembly"
mcs -langversion:latest -r:"$program/Nanovllm.dll" -r:"$program/netstandard.dll" -out:"$program/Hello.exe" "$program/Hello.cs"
# Without the native file it says where that is in the package.
! echo hello | mono "$program/Hello.exe" models/demo >"$work/log" 2>&1 || fail "a program without the native library runs"
grep -qF "$program/runtimes/linux-x64/native/libnanovllm.so: is not there" "$work/log" || { cat "$work/log" >&2; fail "the folder of the package is not named"; }
cp "$nuget/runtimes/linux-x64/native/libnanovllm.so" "$program"
echo "list all prime numbers within 20" | mono "$program/Hello.exe" models/demo | grep -F "2, 3, 5, 7, 11, 13, 17, 19."

# ---- Unity: the sample with stand-ins for Unity's classes ----
unity=$work/unity/package
has "$unity" package.json README.md LICENSE.md Runtime/Nanovllm.asmdef Runtime/Engine.cs Plugins/x86_64/libnanovllm.so Plugins/x86_64/libnanovllm.so.meta \
    "Samples~/Character/Character.cs" "Samples~/Character/Character.unity" "Samples~/Character/README.md"
python3 - "$unity" "$version" <<'END'
import json, os, re, sys
root, version = sys.argv[1:]
manifest = json.load(open(os.path.join(root, "package.json")))
assert manifest["version"] == version, manifest["version"]
for sample in manifest["samples"]:
    assert os.path.isdir(os.path.join(root, sample["path"])), sample
ids = {}
for folder, folders, files in os.walk(root):
    for name in folders + files:
        path = os.path.join(folder, name)
        if name.endswith("~"):
            continue
        if not name.endswith(".meta"):
            assert os.path.exists(path + ".meta"), f"no {path}.meta"
            continue
        assert os.path.exists(path[:-5]), f"{path} is of no file"
        guid = re.search(r"^guid: ([0-9a-f]{32})$", open(path).read(), re.M).group(1)
        assert guid not in ids, f"{path} and {ids[guid]} have one id"
        ids[guid] = path
END
mkdir "$work/sample"
mcs -langversion:latest -unsafe -optimize -r:System.Core.dll -target:library -out:"$work/sample/Nanovllm.dll" "$unity"/Runtime/*.cs
mcs -langversion:latest -r:"$work/sample/Nanovllm.dll" -out:"$work/sample/Character.exe" "$unity/Samples~/Character"/*.cs bindings/csharp/Tests~/Unity/*.cs
cp "$unity/Plugins/x86_64/libnanovllm.so" "$work/sample"
mono "$work/sample/Character.exe" models demo 2>/dev/null

# ---- Godot: the scene of the addon in an empty project ----
project=$work/godot
has "$project/addons/nanovllm" nanovllm.gdextension libnanovllm_godot.so libnanovllm.so.0 nanovllm_chat.gd README.md LICENSE demo/character.tscn demo/character.gd
sed -n 's/^[a-z]*\.[a-z0-9_]* = "\(.*\)"$/\1/p; s/^[a-z]*\.[a-z0-9_]* = { "\(.*\)": "" }$/\1/p' "$project/addons/nanovllm/nanovllm.gdextension" >"$work/named"
[ "$(wc -l <"$work/named")" -ge 2 ] || fail "nanovllm.gdextension names no library"
while read -r file; do has "$project/addons/nanovllm" "$file"; done <"$work/named"
printf 'config_version=5\n\n[application]\n\nconfig/name="Packaged"\n' >"$project/project.godot"
cp -r models/demo "$project/model"
touch "$project/model/.gdignore"
mkdir -p "$project/.godot" "$work/home"
echo "res://addons/nanovllm/nanovllm.gdextension" >"$project/.godot/extension_list.cfg"
if godot=$(scripts/godot.sh --find "$build"); then
    said=$(HOME=$work/home XDG_DATA_HOME=$work/home XDG_CONFIG_HOME=$work/home XDG_CACHE_HOME=$work/home timeout 60 $godot --headless --path "$project" \
        res://addons/nanovllm/demo/character.tscn) || fail "the scene of the addon: $said"
    echo "$said" | grep "^Brenna: Iron sword 40"
else
    echo "engines.sh: the addon is not loaded, because there is no Godot 4 here and none could be fetched"
fi
echo "packages of engines: all passed"
