#!/bin/sh
# Installs the missing prerequisites of a build or of the tests, and prints what it is going to install.
#   prerequisites.sh build|test
#
# Compilers, CMake and pkg-config are installed with apt (Debian, Ubuntu), as root or with sudo. Rust is installed with rustup, into
# ~/.cargo and ~/.rustup only, if there is no cargo or it is older than 1.95.
set -eu
purpose=${1:?usage: prerequisites.sh build|test}
rust_wanted=1.95.0

say() { echo "prerequisites: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }

packages=
have cc && have gcc || packages="$packages gcc libc6-dev"
have cmake || packages="$packages cmake"
have make || packages="$packages make"
have pkg-config || packages="$packages pkg-config"
have curl || have cargo || packages="$packages curl ca-certificates"
if [ "$purpose" = test ]; then
    have curl || packages="$packages curl"
    have g++ || packages="$packages g++"
    [ -e /usr/include/gtest/gtest.h ] || packages="$packages libgtest-dev"
    have tmux || packages="$packages tmux"
    have valgrind || packages="$packages valgrind"
    have readelf || packages="$packages binutils"
fi

if [ -n "$packages" ]; then
    have apt-get || { say "please install:$packages"; exit 1; }
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    [ -z "$as_root" ] || have sudo || { say "please install, as root:$packages"; exit 1; }
    say "installing with apt:$packages"
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -q -y --no-install-recommends $packages
fi

# Whether version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

PATH="$PATH:$HOME/.cargo/bin"
found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2 || true)
if [ -z "$found" ] && ! have rustup; then
    say "no cargo: installing Rust with rustup, into ~/.cargo and ~/.rustup"
    installer=$(mktemp)
    curl --proto '=https' --tlsv1.2 -sSf -o "$installer" https://static.rust-lang.org/rustup/rustup-init.sh
    sh "$installer" -y --profile minimal --no-modify-path
    rm -f "$installer"
elif [ -z "$found" ] || ! at_least "$found" "$rust_wanted"; then
    have rustup || { say "cargo is $found, but $rust_wanted is needed: update it, or install rustup"; exit 1; }
    say "cargo is ${found:-missing}, but $rust_wanted is needed: rustup update stable"
    rustup update stable
fi

if [ "$purpose" = test ] && [ "$(cbindgen --version 2>/dev/null || true)" != "cbindgen 0.29.4" ]; then
    say "installing cbindgen 0.29.4, which checks that the header is up to date, into ~/.cargo/bin"
    cargo install cbindgen --version 0.29.4 --locked --quiet
fi
