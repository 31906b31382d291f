#!/bin/sh
# Checks that every package has the version of Cargo.toml.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
status=0
expect() {
    grep -qF "$2" "$1" || { echo "versions.sh: $1 does not say $2, and Cargo.toml has version $version" >&2; status=2; }
}
expect bindings/python/pyproject.toml "version = \"$version\""
expect bindings/csharp/package.json "\"version\": \"$version\""
expect bindings/csharp/Nanovllm.csproj "<Version>$version</Version>"
expect cmake/vcpkg/nanovllm/vcpkg.json "\"version\": \"$version\""
exit $status
