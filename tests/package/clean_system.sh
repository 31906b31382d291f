#!/bin/sh
# Installs the packages with dpkg on a system that has nothing but them, builds consumers there, and removes them again.
#   clean_system.sh BUILD_DIR SOURCE_DIR
#
# The system is a debootstrap of the release that this machine runs, since the packages are built for its libc. It is made
# once and kept in BUILD_DIR; each run unpacks it anew. Needs root and debootstrap, and some minutes the first time, half a
# minute later.
set -eu
build=${1:?usage: clean_system.sh BUILD_DIR SOURCE_DIR} source=${2:?}
build=$(cd "$build" && pwd)
[ "$(id -u)" = 0 ] || { echo "clean_system.sh: only root may chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "clean_system.sh: please install debootstrap" >&2; exit 1; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d "$build/clean-system.XXXXXX")
root=$work/root
trap 'rm -rf "$work"' EXIT
fail() {
    echo "clean_system.sh: $*" >&2
    exit 1
}
# The mount is the command's own, and ends with it.
inside() { unshare --mount sh -c 'mount -t proc proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"' sh "$root" "$@"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$* failed"; }; }

base=$build/clean-system-$release.tar
mkdir "$root"
if [ ! -e "$base" ]; then
    echo "a minimal $release, with compilers but without anything of ours:"
    quietly debootstrap --variant=minbase --include=g++,cmake,make,pkg-config "$release" "$root"
    rm -rf "$root"/var/cache/apt/archives/*.deb
    tar cf "$base.new" -C "$root" .
    mv "$base.new" "$base"
else
    tar xf "$base" -C "$root"
fi

quietly scripts/deb.sh "$build" "$work/packages"
mkdir "$root/consumer"
cp "$work"/packages/*.deb "$source/examples/c/generate.c" "$source/examples/c/support.h" "$source/examples/cpp/chat.cpp" "$root/consumer"
cp -r "$source/models/demo" "$root/consumer/model"
cat >"$root/consumer/CMakeLists.txt" <<'CODE'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES CXX)
find_package(nanovllm REQUIRED)
add_executable(chat chat.cpp)
target_compile_features(chat PRIVATE cxx_std_20)
target_link_libraries(chat PRIVATE nanovllm::cpp)
CODE

cat >"$root/consumer/answers.sh" <<'CODE'
# Builds by pkg-config and by CMake, and asks both.
set -e
cd /consumer
gcc -Wall -Werror generate.c -o by_pkg_config $(pkg-config --cflags --libs nanovllm)
gcc generate.c -o static $(pkg-config --cflags --libs nanovllm-static)
cmake -S . -B build >/dev/null
cmake --build build >/dev/null
for program in ./by_pkg_config ./static; do
    $program --temperature 0 model "list all prime numbers within 20" 2>/dev/null | grep -F "2, 3, 5, 7, 11, 13, 17, 19."
done
echo "introduce yourself" | build/chat model 2>/dev/null | grep "libnanovllm"
CODE

# A package says what it needs.
inside sh -c 'dpkg -i /consumer/libnanovllm-dev_*.deb' >"$work/log" 2>&1 && fail "libnanovllm-dev is content without its library"
grep -q "libnanovllm-dev depends on libnanovllm0" "$work/log" || fail "dpkg does not name the library: $(cat "$work/log")"
quietly inside dpkg --purge libnanovllm-dev

quietly inside sh -c 'dpkg -i /consumer/libnanovllm0_*.deb'
quietly inside sh -c 'dpkg -i /consumer/libnanovllm-dev_*.deb'
[ -z "$(inside dpkg --audit)" ] || fail "dpkg --audit: $(inside dpkg --audit)"
[ -z "$(inside dpkg --verify libnanovllm0 libnanovllm-dev)" ] || fail "installed files are not those of the package"
inside sh /consumer/answers.sh >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "a consumer failed"; }
[ "$(wc -l <"$work/log")" = 3 ] || fail "three consumers do not answer: $(cat "$work/log")"

# The program of its own package, which brings no compiler.
quietly inside sh -c 'dpkg -i /consumer/nanovllm_*.deb'
inside sh -c 'echo "introduce yourself" | nanovllm chat /consumer/model' 2>/dev/null | grep -q "libnanovllm" || fail "nanovllm does not chat"
quietly inside dpkg --purge nanovllm

# What was built keeps running with the library alone, and says what it lacks without it.
quietly inside dpkg --purge libnanovllm-dev
inside test -e /usr/include/nanovllm.h && fail "libnanovllm-dev left its header"
quietly inside sh -c 'cd /consumer && ./by_pkg_config --temperature 0 model "introduce yourself"'
quietly inside dpkg --purge libnanovllm0
inside sh -c 'cd /consumer && ./by_pkg_config model hello' >"$work/log" 2>&1 && fail "it runs without its library"
grep -q "libnanovllm.so.0" "$work/log" || fail "the loader does not name the library: $(cat "$work/log")"
left=$(cd "$root" && find usr/lib usr/include usr/share -name '*nanovllm*')
[ -z "$left" ] || fail "purged packages leave $left"
echo "on a $release of its own: installed, three consumers answer, removed without a rest"
