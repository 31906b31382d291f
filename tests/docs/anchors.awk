# Succeeds if a Markdown page has a heading with this anchor, as GitHub and mdBook name them.
#   awk -v only=ANCHOR -f tests/docs/anchors.awk PAGE
/^ *```/ { inside = !inside; next }
!inside && /^#+ / {
    text = $0
    sub(/^#+ +/, "", text)
    text = tolower(text)
    gsub(/[^a-z0-9 _-]/, "", text)
    gsub(/ /, "-", text)
    if (text == only) { found = 1; exit }
}
END { exit !found }
