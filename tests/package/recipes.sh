#!/bin/sh
# The recipes of other packagers, filled in: nothing is left open, and each has the form that its tool asks for, where a tool is here.
#   recipes.sh SOURCE_DIR
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "recipes.sh: $*" >&2
    exit 1
}
echo "an archive" >"$work/archive"
"$source/scripts/recipes.sh" "$work/out" https://example.org "$work/archive" "https://example.org/nanovllm.tar.gz" "$work/archive" "https://example.org/nanovllm.zip"
sum=$(sha256sum "$work/archive" | cut -d ' ' -f 1)
grep -l '@[A-Z0-9_]*@' "$work/out"/* && fail "something is not filled in"
for file in nanovllm.rb PKGBUILD; do
    grep -q "$sum" "$work/out/$file" || fail "$file has not the checksum of the source"
done
grep -qi "InstallerSha256: $sum" "$work/out/winget.yaml" || fail "winget.yaml has not the checksum of the zip"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/Cargo.toml" | head -n 1)

# shellcheck disable=SC1091 # made above
said=$(bash -euc '. "$1"; declare -F build package >/dev/null; echo "$pkgname $pkgver ${#source[@]} ${#sha256sums[@]}"' sh "$work/out/PKGBUILD")
[ "$said" = "nanovllm $version 1 1" ] || fail "the PKGBUILD says $said"
checked="PKGBUILD by bash"
if command -v ruby >/dev/null; then
    ruby -c "$work/out/nanovllm.rb" >/dev/null || fail "nanovllm.rb is no Ruby"
    checked="$checked, nanovllm.rb by ruby"
fi
if python3 -c "import yaml" 2>/dev/null; then
    python3 - "$work/out/winget.yaml" <<'CODE' || fail "winget.yaml has not what a manifest must have"
import sys, yaml
manifest = yaml.safe_load(open(sys.argv[1]))
required = "PackageIdentifier PackageVersion PackageLocale Publisher PackageName License ShortDescription Installers ManifestType ManifestVersion"
assert all(manifest[name] for name in required.split()), manifest
assert manifest["Installers"][0]["Architecture"] == "x64", manifest
CODE
    checked="$checked, winget.yaml by its required fields"
fi
if command -v makepkg >/dev/null && command -v pacman >/dev/null && [ "$(id -u)" != 0 ]; then
    (cd "$work/out" && makepkg --printsrcinfo >/dev/null) || fail "makepkg refuses the PKGBUILD"
    checked="$checked, PKGBUILD by makepkg"
fi
echo "checked: $checked"
