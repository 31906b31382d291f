#!/bin/bash
# Builds the packages of game engines and of .NET as files with the libraries inside, and uses each as its user would.
#   packages.sh BUILD_DIR
#
#   BUILD_DIR/packages/Nanovllm.VERSION.nupkg            NuGet
#   BUILD_DIR/packages/libnanovllm.unity-VERSION.tgz     Unity: Package Manager, "Add package from tarball"
#   BUILD_DIR/packages/nanovllm-godot-VERSION.zip        Godot: AssetLib, "Import", or unpacked into a project
#
# The library is that of `make release-linux` where BUILD_DIR/linux has it, which runs with glibc 2.28, else that of BUILD_DIR. Those for Windows and
# ARM64 are inside where `make windows` and scripts/arm64.sh have built them.
set -euo pipefail
build=${1:?usage: packages.sh BUILD_DIR}
cd "$(dirname "$0")/.."
build=$(cd "$build" && pwd)
[ -e "$build/lib/libnanovllm.so" ] || { echo "packages.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }
needs() { command -v "$1" >/dev/null || { echo "packages.sh: needs $1: apt-get install $2" >&2; exit 1; }; }
needs mcs mono-mcs
needs mono mono-runtime
needs cmake cmake
needs c++ g++
cecil=$(ls /usr/lib/mono-cecil/Mono.Cecil.dll 2>/dev/null || true)
[ -n "$cecil" ] || { echo "packages.sh: needs Mono.Cecil: apt-get install libmono-cecil-cil" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
out=$build/packages
work=$out/work
rm -rf "$out"
mkdir -p "$work"
fail() { echo "packages.sh: $*" >&2; exit 1; }

# ---- the libraries, one folder for each platform, stripped ----

native=$work/native
library() { # PLATFORM FILE NAME STRIP
    [ -e "$2" ] || return 0
    mkdir -p "$native/$1"
    cp "$(readlink -f "$2")" "$native/$1/$3"
    "$4" --strip-debug "$native/$1/$3"
}
linux=$build/linux/lib
[ -e "$linux/libnanovllm.so" ] || { linux=$build/lib; echo "packages.sh: the library needs the glibc of this system: make release-linux builds one for glibc 2.28"; }
library linux-x64 "$linux/libnanovllm.so" libnanovllm.so strip
library linux-arm64 "$build/linux-arm64/lib/libnanovllm.so" libnanovllm.so aarch64-linux-gnu-strip
library win-x64 "$build/windows/lib/nanovllm.dll" nanovllm.dll x86_64-w64-mingw32-strip
echo "packages.sh: for $(cd "$native" && echo *)"

# ---- .NET ----

# The list of the types of .NET Standard 2.1, which Mono has in a package with much else.
standard=$build/netstandard/netstandard.dll
if [ ! -e "$standard" ]; then
    mkdir -p "$build/netstandard/package"
    (cd "$build/netstandard/package" && apt-get -q -o "APT::Sandbox::User=$(id -un)" download mono-devel >/dev/null && dpkg-deb -x mono-devel_*.deb .)
    cp "$build/netstandard/package/usr/lib/mono/4.5/Facades/netstandard.dll" "$standard"
    rm -rf "$build/netstandard/package"
fi
cat >"$work/AssemblyInfo.cs" <<END
[assembly: System.Reflection.AssemblyVersion("$version.0")]
[assembly: System.Reflection.AssemblyFileVersion("$version.0")]
[assembly: System.Reflection.AssemblyInformationalVersion("$version")]
[assembly: System.Runtime.Versioning.TargetFramework(".NETStandard,Version=v2.1")]
END
mcs -langversion:latest -unsafe -optimize -warnaserror -nowarn:1591,1573 -r:System.Core.dll -target:library -doc:"$work/Nanovllm.xml" -out:"$work/Nanovllm.dll" \
    bindings/csharp/Runtime/*.cs "$work/AssemblyInfo.cs"
mcs -r:System.Core.dll -r:"$cecil" -out:"$work/NetStandard.exe" bindings/csharp/NetStandard.cs
nuget=$work/nuget
mkdir -p "$nuget/lib/netstandard2.1" "$nuget/_rels"
MONO_PATH=$(dirname "$cecil") mono "$work/NetStandard.exe" "$work/Nanovllm.dll" "$standard" "$nuget/lib/netstandard2.1/Nanovllm.dll"
cp "$work/Nanovllm.xml" "$nuget/lib/netstandard2.1"
for platform in "$native"/*; do
    mkdir -p "$nuget/runtimes/$(basename "$platform")/native"
    cp "$platform"/* "$nuget/runtimes/$(basename "$platform")/native"
done
cp LICENSE "$nuget/LICENSE.txt"
cp bindings/csharp/README.md "$nuget"
cat >"$nuget/Nanovllm.nuspec" <<END
<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>Nanovllm</id>
    <version>$version</version>
    <authors>The libnanovllm authors</authors>
    <description>LLM inference inside a program: the C# binding of libnanovllm, with the native library. Engines are stepped by their caller, in time budgets.</description>
    <license type="file">LICENSE.txt</license>
    <readme>README.md</readme>
    <tags>llm inference game unity native</tags>
    <dependencies>
      <group targetFramework=".NETStandard2.1" />
    </dependencies>
  </metadata>
</package>
END
# What makes the zip a package of the Open Packaging Conventions.
cat >"$nuget/[Content_Types].xml" <<'END'
<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />
  <Default Extension="nuspec" ContentType="application/octet" />
  <Default Extension="dll" ContentType="application/octet" />
  <Default Extension="so" ContentType="application/octet" />
  <Default Extension="xml" ContentType="application/octet" />
  <Default Extension="md" ContentType="application/octet" />
  <Default Extension="txt" ContentType="application/octet" />
</Types>
END
cat >"$nuget/_rels/.rels" <<'END'
<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/Nanovllm.nuspec" Id="R0" />
</Relationships>
END
nupkg=$out/Nanovllm.$version.nupkg
zipped() { (cd "$2" && cmake -E tar cf "$1" --format=zip -- *); }
zipped "$nupkg" "$nuget"

# ---- Unity ----

upm=$work/package
mkdir -p "$upm/Plugins/x86_64"
cp -r bindings/csharp/Runtime "bindings/csharp/Samples~" bindings/csharp/package.json bindings/csharp/README.md "$upm"
cp LICENSE "$upm/LICENSE.md"
cp "$native/linux-x64/libnanovllm.so" "$upm/Plugins/x86_64"
[ ! -e "$native/win-x64" ] || cp "$native/win-x64/nanovllm.dll" "$upm/Plugins/x86_64"

# Unity ignores files of a package without these. The ids must be the same in each release, so they come from the names.
plugin_meta() { # EDITOR_OS PLATFORM
    cat <<END
PluginImporter:
  externalObjects: {}
  serializedVersion: 2
  isPreloaded: 0
  isOverridable: 0
  isExplicitlyReferenced: 0
  validateReferences: 1
  platformData:
  - first:
      Any: 
    second:
      enabled: 0
      settings: {}
  - first:
      Editor: Editor
    second:
      enabled: 1
      settings:
        CPU: x86_64
        OS: $1
  - first:
      Standalone: $2
    second:
      enabled: 1
      settings:
        CPU: x86_64
END
}
meta() { # FILE
    printf 'fileFormatVersion: 2\nguid: %s\n' "$(echo "libnanovllm.unity/$1" | md5sum | cut -c 1-32)"
    case $1 in
    *.so) plugin_meta Linux Linux64 ;;
    *.dll) plugin_meta Windows Win64 ;;
    *.cs) printf 'MonoImporter:\n  externalObjects: {}\n  serializedVersion: 2\n  defaultReferences: []\n  executionOrder: 0\n  icon: {instanceID: 0}\n' ;;
    *.asmdef) printf 'AssemblyDefinitionImporter:\n  externalObjects: {}\n' ;;
    *.md) printf 'TextScriptImporter:\n  externalObjects: {}\n' ;;
    *.json) printf 'PackageManifestImporter:\n  externalObjects: {}\n' ;;
    *) printf 'folderAsset: yes\nDefaultImporter:\n  externalObjects: {}\n' ;;
    esac
    printf '  userData: \n  assetBundleName: \n  assetBundleVariant: \n'
}
(
    cd "$upm"
    find . -mindepth 1 ! -name "*.meta" ! -name "Samples~" -printf '%P\n' | while read -r file; do
        [ -e "$file.meta" ] || meta "$file" >"$file.meta"
    done
)
tgz=$out/libnanovllm.unity-$version.tgz
tar czf "$tgz" --owner=0 --group=0 --sort=name -C "$work" package

# ---- Godot ----

addon=$work/godot/addons/nanovllm
mkdir -p "$addon/demo"
extension() { # COMPILER OUTPUT OPTION...
    local compiler=$1 to=$2
    shift 2
    "$compiler" -std=c++17 -O2 -shared -fvisibility=hidden -fno-exceptions -Wall -Wextra -Werror -Iinclude bindings/godot/src/*.cpp -o "$addon/$to" \
        -static-libstdc++ -static-libgcc "$@" -s
}
platforms=linux.x86_64
extension c++ libnanovllm_godot.so -fPIC -L"$linux" -lnanovllm -Wl,-rpath,'$ORIGIN' -Wl,--exclude-libs,ALL
cp "$native/linux-x64/libnanovllm.so" "$addon/libnanovllm.so.0"
if [ -e "$native/win-x64" ] && command -v x86_64-w64-mingw32-g++-posix >/dev/null; then
    extension x86_64-w64-mingw32-g++-posix nanovllm_godot.dll -DNVLLM_SHARED "$build/windows/lib/libnanovllm.dll.a" -static
    cp "$native/win-x64/nanovllm.dll" "$addon"
    platforms="$platforms windows.x86_64"
fi
# Only the platforms that are inside: Godot looks for the files of all that the manifest names.
awk -v inside=" $platforms " '!/^[a-z]+\.[a-z0-9_]+ = / || index(inside, " " $1 " ")' bindings/godot/nanovllm.gdextension >"$addon/nanovllm.gdextension"
cp bindings/godot/addon/* bindings/godot/README.md LICENSE "$addon"
# The scene beside its script, wherever that is.
sed 's|path="res://character.gd"|path="character.gd"|' bindings/godot/demo/character.tscn >"$addon/demo/character.tscn"
cp bindings/godot/demo/character.gd "$addon/demo"
godot_zip=$out/nanovllm-godot-$version.zip
zipped "$godot_zip" "$work/godot"

tests/package/engines.sh "$build" "$nupkg" "$tgz" "$godot_zip" "$standard"
rm -rf "$work"
(cd "$out" && ls -l -- *.nupkg *.tgz *.zip)
