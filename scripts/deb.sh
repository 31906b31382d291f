#!/bin/sh
# Makes the packages of Debian, in the folders that Debian has for this architecture.
#   deb.sh BUILD OUT [CMAKE_ARGUMENT...]
#
# BUILD holds a build folder of its own for them, BUILD/deb; cargo's artifacts are those of other builds. NANOVLLM_MAINTAINER, as
# "Name <address>", is who publishes them. The server in Go has a package if `make go` has built it before, or NANOVLLM_SERVER names it.
set -eu
build=${1:?usage: deb.sh BUILD OUT [CMAKE_ARGUMENT...]} out=${2:?usage: deb.sh BUILD OUT [CMAKE_ARGUMENT...]}
shift 2
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$build/deb"
build=$(cd "$build" && pwd)
log=$build/deb/log
server=${NANOVLLM_SERVER:-$build/server/nanovllm-server}
if [ ! -e "$server" ]; then
    echo "deb.sh: no package of the server: make go builds it" >&2
    server=
fi
architecture=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }
[ -z "${NANOVLLM_MAINTAINER:-}" ] || set -- "-DNANOVLLM_MAINTAINER=$NANOVLLM_MAINTAINER" "$@"
quietly cmake -S "$source" -B "$build/deb" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="lib/$architecture" \
    -DNANOVLLM_DEBIAN=ON -DNANOVLLM_SERVER="$server" -DNANOVLLM_BUILD_TESTS=OFF -DNANOVLLM_BUILD_GAME=OFF "$@"
targets="nanovllm_stripped"
case $(cmake --build "$build/deb" --target help) in
*"... nanovllm_program_stripped"*) targets="$targets nanovllm_program_stripped" ;;
esac
# shellcheck disable=SC2086 # words
quietly cmake --build "$build/deb" -j "${JOBS:-$(nproc)}" --target $targets
quietly cpack --config "$build/deb/CPackConfig.cmake" -B "$out"
rm -rf "$out/_CPack_Packages"

# CPack adds scripts that call ldconfig, which the trigger does already.
for package in "$out"/libnanovllm[0-9]_*.deb; do
    rm -rf "$build/deb/package"
    dpkg-deb -R "$package" "$build/deb/package"
    rm -f "$build/deb/package/DEBIAN/postinst" "$build/deb/package/DEBIAN/postrm"
    quietly dpkg-deb --root-owner-group -b "$build/deb/package" "$package"
done
rm -rf "$build/deb/package"
