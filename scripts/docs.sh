#!/bin/bash
# Builds the site of README.md and docs with mdBook, and checks its links.
#   docs.sh BUILD_DIR
#
# The site is in BUILD_DIR/docs. Pages keep the places that they have in this repository, so that their links lead where they lead there.
# Files that pages link to are parts of the site, and folders have a list of their files. mdBook is installed into BUILD_DIR if it is missing.
set -euo pipefail
build=${1:?usage: docs.sh BUILD_DIR}
cd "$(dirname "$0")/.."
mkdir -p "$build"
build=$(cd "$build" && pwd)

version=0.5.4
mdbook=mdbook
if [ "$(mdbook --version 2>/dev/null)" != "mdbook v$version" ]; then
    mdbook=$build/mdbook/bin/mdbook
    [ "$("$mdbook" --version 2>/dev/null)" = "mdbook v$version" ] || {
        echo "docs.sh: installing mdbook $version into $build/mdbook"
        CARGO_TARGET_DIR=$build/mdbook/target cargo install mdbook --version $version --locked --quiet --root "$build/mdbook" --no-default-features --features search
        rm -rf "$build/mdbook/target"
    }
fi

book=$build/docs-book
rm -rf "$book" "$build/docs"
mkdir -p "$book/src"
cp docs/book.toml "$book"
# Chapters: paths from the root of the repository.
sed -e '/](.*\.md)/s/](/](docs\//' -e 's/](docs\/\.\.\//](/' docs/SUMMARY.md >"$book/src/SUMMARY.md"
chapters=$(sed -n 's/.*](\(.*\.md\))$/\1/p' "$book/src/SUMMARY.md")
put() { # FILE... into the site
    for file in "$@"; do
        mkdir -p "$book/src/$(dirname "$file")"
        cp "$file" "$book/src/$file"
    done
}
# shellcheck disable=SC2086 # a list of paths
put $chapters
cp -r docs/images "$book/src/docs"

# What the chapters link to.
# shellcheck disable=SC2086
awk -f tests/docs/links.awk $chapters | sed -e 's/^[^ ]* //' -e 's/#.*//' | sort -u >"$book/links"
while read -r target; do
    if [ -f "$target" ]; then
        # A page that is no chapter would be left out.
        case $target in *.md) [ -e "$book/src/$target" ] || { echo "docs.sh: $target is linked, but docs/SUMMARY.md does not list it" >&2; exit 1; } ;; esac
        put "$target"
    elif [ -d "$target" ]; then
        files=$(git ls-files --cached --others --exclude-standard -- "$target")
        mkdir -p "$book/src/$target"
        {
            printf '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>%s</title>\n<h1>%s</h1>\n<ul>\n' "$target" "$target"
            for file in $files; do
                path=${file#"$target"/}
                case $file in
                # A chapter.
                *README.md) path=${path%.md}.html ;;
                *) put "$file" ;;
                esac
                printf '<li><a href="%s">%s</a></li>\n' "$path" "${file#"$target"/}"
            done
            printf '</ul>\n</html>\n'
        } >"$book/src/$target/index.html"
    fi
done <"$book/links"

"$mdbook" build "$book" --dest-dir "$build/docs"
python3 tests/docs/site.py "$build/docs"
