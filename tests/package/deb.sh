#!/bin/sh
# Packs what is built, looks into the packages, and builds a consumer against their files alone.
#   deb.sh CMAKE BUILD_DIR SOURCE_DIR MODEL_FOLDER
set -eu
cmake=$1 build=$2 source=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "deb.sh: $*" >&2
    exit 1
}

"$source/scripts/deb.sh" "$build" "$work"
runtime=$(echo "$work"/libnanovllm0_*.deb) tool=$(echo "$work"/nanovllm_*.deb) development=$(echo "$work"/libnanovllm-dev_*.deb)
version=$(dpkg-deb -f "$runtime" Version)
if [ "${NVLLM_TESTS:-}" = quick ]; then
    : # lintian takes a minute, and .ci/tier2 linux runs it
elif command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$work"/*.deb >"$work/log" 2>&1 || fail "lintian: $(cat "$work/log")"
else
    echo "deb.sh: no lintian here (Debian: lintian): what it checks is left out"
fi

[ "$(dpkg-deb -f "$development" Depends)" = "libnanovllm0 (= $version)" ] || fail "libnanovllm-dev does not depend on its library"
for needed in $(dpkg-deb -f "$runtime" Depends | tr ',' '\n' | awk '{ print $1 }'); do
    case $needed in
    libc6 | libgcc-s1) ;;
    *) fail "libnanovllm0 depends on $needed" ;;
    esac
done
dpkg-deb --ctrl-tarfile "$runtime" | tar x -O ./shlibs | grep -q "^libnanovllm 0 libnanovllm0" || fail "no shlibs entry for dpkg-shlibdeps"
dpkg-deb --ctrl-tarfile "$runtime" | tar x -O ./triggers | grep -q ldconfig || fail "nothing calls ldconfig"
dpkg-deb --fsys-tarfile "$runtime" | tar t >"$work/runtime_files"
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
grep -q "^./usr/lib/$multiarch/libnanovllm.so.0$" "$work/runtime_files" || fail "the library is not in /usr/lib/$multiarch"
grep -qE 'include|\.a$|\.pc$|\.so$' "$work/runtime_files" && fail "libnanovllm0 has files for development: $(cat "$work/runtime_files")"

case $(dpkg-deb -f "$tool" Depends) in
"libnanovllm0 (= $version), "*) ;;
*) fail "nanovllm does not depend on its library: $(dpkg-deb -f "$tool" Depends)" ;;
esac

dpkg-deb -x "$runtime" "$work/root"
dpkg-deb -x "$tool" "$work/root"
dpkg-deb -x "$development" "$work/root"
library=$(find "$work/root" -name 'libnanovllm.so.*.*')
for file in man/man1/nanovllm.1.gz man/man1/nanovllm-chat.1.gz bash-completion/completions/nanovllm zsh/vendor-completions/_nanovllm \
    fish/vendor_completions.d/nanovllm.fish; do
    [ -s "$work/root/usr/share/$file" ] || fail "nanovllm lacks share/$file"
done
[ ! -e "$work/root/usr/share/man/man1/nanovllm-help.1" ] || fail "nanovllm has pages of its help"
for stripped in "$library" "$(dirname "$library")/libnanovllm.a" "$work/root/usr/bin/nanovllm"; do
    readelf -SW "$stripped" | grep -q ' \.debug_info' && fail "$stripped is not stripped"
done
# What debuggers need is a package of its own, of this build.
debug=$(echo "$work"/libnanovllm0-dbgsym_*.deb)
[ "$(dpkg-deb -f "$debug" Depends)" = "libnanovllm0 (= $version)" ] || fail "libnanovllm0-dbgsym does not depend on its library"
dpkg-deb -x "$debug" "$work/debug"
file=$(find "$work/debug" -type f -name '*.debug')
readelf -SW "$file" | grep -q ' \.debug_info' || fail "$file has no debug information"
id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
[ "$(id "$library")" = "$(id "$file")" ] || fail "$file is of another library"
# Debuggers look there by the id.
found=${file#"$work/debug/usr/lib/debug/.build-id/"}
[ "$(echo "${found%.debug}" | tr -d /)" = "$(id "$library")" ] || fail "the debug information is in: $file"
dpkg-deb --ctrl-tarfile "$debug" | tar t | grep -q shlibs && fail "libnanovllm0-dbgsym claims to be a library"

mkdir "$work/consumer"
cp "$source/examples/cpp/chat.cpp" "$work/consumer"
cat >"$work/consumer/CMakeLists.txt" <<'CODE'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES CXX)
find_package(nanovllm REQUIRED)
add_executable(chat chat.cpp)
target_compile_features(chat PRIVATE cxx_std_20)
target_link_libraries(chat PRIVATE nanovllm::cpp)
CODE
"$cmake" -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$work/root/usr" >"$work/log" 2>&1 &&
    "$cmake" --build "$work/consumer/build" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
python=$(echo "$work"/python3-nanovllm_*.deb)
[ "$(dpkg-deb -f "$python" Architecture)" = all ] || fail "python3-nanovllm is of one architecture"
dpkg-deb -x "$python" "$work/root"
LD_LIBRARY_PATH=$(dirname "$library") PYTHONPATH=$work/root/usr/lib/python3/dist-packages python3 -c "import nanovllm" ||
    fail "python3-nanovllm does not find the library"
answer=$(echo "introduce yourself" | LD_LIBRARY_PATH=$(dirname "$library") "$work/consumer/build/chat" "$model" 2>/dev/null)
[ -n "$answer" ] || fail "the consumer has nothing to say"
[ "$(echo "introduce yourself" | "$work/root/usr/bin/nanovllm" chat "$model" 2>/dev/null)" = "$answer" ] ||
    fail "the installed program does not find the library beside it"
echo "libnanovllm0 $version has $(wc -c <"$library") bytes of library; a consumer of both packages says: $answer"
