# The links of Markdown pages that lead to files: a line per link with its place, and with its target from the root of the repository.
#   awk -f tests/docs/links.awk README.md docs/*.md
function emit(target) {
    if (target ~ /^[a-z]+:/) return
    if (target ~ /^#/) { print FILENAME ":" FNR " " FILENAME target; return }
    print FILENAME ":" FNR " " normal(folder target)
}
# A path without "." and "..".
function normal(path,   parts, n, i, kept, out, anchor) {
    anchor = ""
    if (match(path, /#/)) { anchor = substr(path, RSTART); path = substr(path, 1, RSTART - 1) }
    n = split(path, parts, "/")
    kept = 0
    for (i = 1; i <= n; i++) {
        if (parts[i] == "" || parts[i] == ".") continue
        if (parts[i] == ".." && kept > 0 && out[kept] != "..") kept--
        else out[++kept] = parts[i]
    }
    path = kept == 0 ? "." : out[1]
    for (i = 2; i <= kept; i++) path = path "/" out[i]
    return path anchor
}
FNR == 1 { inside = 0; folder = FILENAME; if (!sub(/[^\/]*$/, "", folder)) folder = "" }
/^ *```/ { inside = !inside; next }
inside { next }
{
    line = $0
    gsub(/`[^`]*`/, "", line)
    while (match(line, /\]\([^) ]+\)/)) {
        target = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
        emit(target)
    }
}
