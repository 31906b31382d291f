#!/bin/bash
# Compiles the extension for Godot 4, and runs its demo and its tests without a window.
#   godot.sh BUILD_DIR
#   godot.sh --find BUILD_DIR    prints how to run Godot, and fails where there is none
#
# GODOT is the Godot to use; by default `godot` in PATH, else the one of Debian's unstable release, which is unpacked with its libraries
# under BUILD_DIR: nothing is installed, and root is not needed. Where it cannot be had, the extension is compiled only.
set -euo pipefail
action=test
if [ "${1:-}" = --find ]; then
    action=find
    shift
fi
build=${1:?usage: godot.sh [--find] BUILD_DIR}
cd "$(dirname "$0")/.."
build=$(cd "$build" && pwd)
out=$build/godot
mkdir -p "$out"

# Godot's package of unstable, with the libraries that it is linked with, in a folder.
unpacked() {
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || return 1
    local apt=$out/apt system=$out/system.new packages
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/packages"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main" >"$apt/sources.list"
    local options=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State=$apt"
        -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o APT::Install-Recommends=false -o Acquire::Languages=none
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o "APT::Sandbox::User=$(id -un)")
    timeout 60 apt-get "${options[@]}" update || return 1
    # Without what only a window, a font or an installation needs.
    packages=$(apt-get "${options[@]}" --simulate install godot | awk '/^Inst/ { print $2 }' |
        grep -vE '^(mesa-libgallium|libgl1-mesa-dri|libllvm.*|libz3.*|fonts-.*|libx11-data|xkb-data|pci.ids|debconf|dpkg|perl.*)$') || return 1
    # shellcheck disable=SC2086 # a list of words
    (cd "$apt/packages" && timeout 120 apt-get "${options[@]}" download $packages) || return 1
    rm -rf "$system"
    for package in "$apt"/packages/*.deb; do dpkg-deb -x "$package" "$system" || return 1; done
    rm -rf "$apt"
    mv "$system" "$out/system"
}

if [ $action = test ]; then
    [ -e "$build/lib/libnanovllm.so" ] || { echo "godot.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }
    command -v c++ >/dev/null || { echo "godot.sh: needs a C++ compiler: apt-get install g++" >&2; exit 1; }

    binding=bindings/godot
    addon=$out/project/addons/nanovllm
    rm -rf "$out/project" "$out/home"
    mkdir -p "$addon" "$out/home"
    c++ -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -fno-exceptions -Wall -Wextra -Werror -Iinclude $binding/src/*.cpp \
        -o "$addon/libnanovllm_godot.so" -L"$build/lib" -lnanovllm -static-libstdc++ -static-libgcc -Wl,-rpath,'$ORIGIN' -Wl,--exclude-libs,ALL
    cp "$(readlink -f "$build/lib/libnanovllm.so")" "$addon/libnanovllm.so.0"
    strip --strip-debug "$addon/libnanovllm.so.0"
    cp $binding/nanovllm.gdextension $binding/addon/* "$addon"
    cp -r $binding/demo/. $binding/tests "$out/project"
    cp -r models/demo "$out/project/model"
    touch "$out/project/model/.gdignore"
fi

if [ -n "${GODOT:-}" ]; then
    godot=("$GODOT")
elif command -v godot >/dev/null && [[ "$(godot --version 2>/dev/null)" == 4.* ]]; then
    godot=(godot)
elif [ -e "$out/system/usr/bin/godot" ] || unpacked >"$out/apt.log" 2>&1; then
    # Its libc is newer than this system's, and so is its loader.
    libraries=$out/system/usr/lib/x86_64-linux-gnu
    godot=("$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/pulseaudio" "$out/system/usr/bin/godot")
elif [ $action = find ]; then
    exit 1
else
    echo "Godot: the extension compiles; its tests are left out, because there is no Godot 4 here and none could be fetched"
    exit 0
fi

if [ $action = find ]; then
    echo "${godot[*]}"
    exit
fi

# Godot writes into the home folder.
export HOME=$out/home XDG_DATA_HOME=$out/home/data XDG_CONFIG_HOME=$out/home/config XDG_CACHE_HOME=$out/home/cache
run() { timeout 60 "${godot[@]}" --headless --path "$out/project" "$@"; }
"${godot[@]}" --headless --version
# The list of extensions, which the editor writes when it first opens a project. --import writes it too, but Godot 4.6 crashes after
# that when a project has an extension that was not listed.
mkdir -p "$out/project/.godot"
echo "res://addons/nanovllm/nanovllm.gdextension" >"$out/project/.godot/extension_list.cfg"
run
run res://character.tscn
run --script res://tests/tests.gd
run --script res://tests/chat.gd
run --script res://tests/tools.gd

# Without the library, the conversation names the file that is missing.
mv "$addon/libnanovllm.so.0" "$out/away"
status=0
run res://character.tscn >"$out/missing.log" 2>&1 || status=$?
mv "$out/away" "$addon/libnanovllm.so.0"
if [ "$status" != 1 ] || ! grep -q "libnanovllm_godot.so is there, $addon/libnanovllm.so.0 is not there" "$out/missing.log"; then
    echo "godot.sh: without the library the scene ends with $status and:" >&2
    cat "$out/missing.log" >&2
    exit 1
fi
echo "Godot: all passed"
