#!/bin/sh
# Installs into a temporary prefix, looks for debug information, which is installed apart, moves it, and builds consumers against it: by find_package, by pkg-config (shared and
# static), with the first programs of README.md and the pages of docs.
#   installed.sh CMAKE BUILD_DIR SOURCE_DIR MODEL_FOLDER
set -eu
cmake=$1 build=$2 source=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

quietly "$cmake" --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix" # what is installed must not know where it was installed to
libdir=$(dirname "$(find "$work/prefix" -name libnanovllm.so)")
for name in libnanovllm.so.0 libnanovllm.a; do
    [ -e "$libdir/$name" ] || { echo "installed.sh: no $name" >&2; exit 1; }
done

# Debug information is in a file of its own, which the library names.
library=$(find "$libdir" -name 'libnanovllm.so.*.*')
has_debug() { readelf -SW "$1" | grep -q ' \.debug_'; }
for stripped in "$library" "$libdir/libnanovllm.a"; do
    if has_debug "$stripped"; then
        echo "installed.sh: $stripped is installed with its debug information" >&2
        exit 1
    fi
done
[ -z "$(find "$work/prefix" -name '*.debug')" ] || { echo "installed.sh: debug information is installed unasked" >&2; exit 1; }
quietly "$cmake" --install "$build" --prefix "$work/debug" --component debug
debug=$(find "$work/debug" -type f -name '*.debug')
case $debug in
*/.debug/"$(basename "$library").debug") ;;
*) echo "installed.sh: the debug information of $library is in: $debug" >&2 && exit 1 ;;
esac
has_debug "$debug" || { echo "installed.sh: $debug has no debug information" >&2; exit 1; }
readelf --debug-dump=links "$library" 2>/dev/null | grep -q "$(basename "$debug")" || { echo "installed.sh: $library does not name it" >&2; exit 1; }
id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
[ "$(id "$library")" = "$(id "$debug")" ] || { echo "installed.sh: $debug is of another library" >&2; exit 1; }
bytes=$(du -sb "$work/prefix" | cut -f 1)

# The first program of each page.
mkdir "$work/blocks"
(cd "$source" && awk -v out="$work/blocks" -f tests/docs/blocks.awk README.md docs/cpp.md docs/game.md) >"$work/list"
program() { # PAGE LANGUAGE NAME
    block=$(awk -F '\t' -v page="$1" -v language="$2" '$1 == page && $3 == language && $4 == "run" { print $6; exit }' "$work/list")
    [ -n "$block" ] && [ "$(wc -l <"$block")" -ge 10 ] || { echo "installed.sh: $1 shows no program in $2" >&2; exit 1; }
    cp "$block" "$work/$3"
}
program README.md c hello.c
program docs/cpp.md cpp hello.cpp
program docs/game.md cpp loop.cpp

mkdir "$work/consumer"
cat >"$work/consumer/CMakeLists.txt" <<'CODE'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C CXX)
find_package(nanovllm 0.1 REQUIRED)
add_executable(cpp ../hello.cpp)
target_compile_features(cpp PRIVATE cxx_std_20)
target_link_libraries(cpp PRIVATE nanovllm::cpp)
add_executable(game ../loop.cpp)
target_compile_features(game PRIVATE cxx_std_20)
target_link_libraries(game PRIVATE nanovllm::cpp)
add_executable(shared ../hello.c)
target_link_libraries(shared PRIVATE nanovllm::nanovllm)
add_executable(static ../hello.c)
target_link_libraries(static PRIVATE nanovllm::static)
CODE
quietly "$cmake" -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$work/prefix"
quietly "$cmake" --build "$work/consumer/build"

export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046 # pkg-config answers words
cc -Wall -Wextra -Werror "$work/hello.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs nanovllm)
# shellcheck disable=SC2046
cc "$work/hello.c" -o "$work/by_pkg_config_static" $(pkg-config --cflags --libs nanovllm-static)

export LD_LIBRARY_PATH="$libdir"
for program in "$work/consumer/build/shared" "$work/consumer/build/static" "$work/consumer/build/cpp" "$work/consumer/build/game" \
    "$work/by_pkg_config" \
    "$work/by_pkg_config_static"; do
    answer=$("$program" "$model") || { echo "installed.sh: $program failed" >&2; exit 1; }
    [ -n "$answer" ] || { echo "installed.sh: $program printed nothing" >&2; exit 1; }
done
for program in "$work/consumer/build/static" "$work/by_pkg_config_static"; do
    if readelf -d "$program" | grep -q libnanovllm; then
        echo "installed.sh: $program is static and needs the shared library" >&2
        exit 1
    fi
done
echo "$bytes bytes are installed, $(wc -c <"$library") of them the library; six consumers answer: $answer"
