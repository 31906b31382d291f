#!/bin/sh
# Fills in the recipes of cmake/recipes for a release: the formula of Homebrew, the PKGBUILD of Arch Linux, and the manifest of winget.
#   recipes.sh OUT HOMEPAGE SOURCE_ARCHIVE SOURCE_URL [WINDOWS_ZIP WINDOWS_URL]
#
# The archives are read for their checksums; the addresses are those that users download them from. The source archive holds one folder,
# nanovllm-VERSION.
set -eu
usage="usage: recipes.sh OUT HOMEPAGE SOURCE_ARCHIVE SOURCE_URL [WINDOWS_ZIP WINDOWS_URL]"
out=${1:?$usage} homepage=${2:?$usage} source=${3:?$usage} source_url=${4:?$usage} zip=${5:-} zip_url=${6:-}
recipes=$(cd "$(dirname "$0")/../cmake/recipes" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$recipes/../../Cargo.toml" | head -n 1)
sum() { sha256sum "$1" | cut -d ' ' -f 1; }
fill() { # FILE [MORE]
    sed -e "s|@VERSION@|$version|g" -e "s|@HOMEPAGE@|$homepage|g" -e "s|@SOURCE_URL@|$source_url|g" -e "s|@SOURCE_SHA256@|$(sum "$source")|g" \
        ${2:+-e "$2"} ${3:+-e "$3"} "$recipes/$1" >"$out/$1"
}
mkdir -p "$out"
fill nanovllm.rb
fill PKGBUILD
[ -z "$zip" ] || fill winget.yaml "s|@WINDOWS_URL@|${zip_url:?$usage}|g" "s|@WINDOWS_SHA256@|$(sum "$zip" | tr a-f A-F)|g"
