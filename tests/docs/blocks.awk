# The fenced blocks of Markdown pages: who runs each, and as which file.
#   awk -v out=FOLDER -f tests/docs/blocks.awk README.md docs/*.md
#
# Prints a line per block, with tabs between: page, line, language, how, name, file. `how` is
#   run            the block is a whole program, or commands
#   fragment       lines of C that tests/docs/fragment.h makes a function of: they are compiled
#   with TEXT      scripts/go.sh or scripts/csharp.sh runs it with what TEXT names
#   not run: WHY   nobody runs it
#   data           output, or a text
# `name` is the file as which the commands of the page find the block, or -. With `out`, each block is written to a file there.
#
# Comments before a block say what is not plain from its language:
#   <!-- not run: WHY -->   <!-- fragment -->   <!-- with TEXT -->   <!-- file: NAME -->

function complain(text) { print FILENAME ":" FNR ": " text >"/dev/stderr"; failures++ }
function inner(line) { sub(/^ *<!-- */, "", line); sub(/ *-->.*$/, "", line); return line }
function forget() { how = "run"; name = "-" }

BEGIN {
    FS = "\n"
    forget()
    count = split("c cpp go rust python csharp sh cmake gdscript", known, " ")
    for (i = 1; i <= count; i++) is_code[known[i]] = 1
    is_data["text"] = is_data["json"] = is_data["yaml"] = 1
}
FNR == 1 {
    if (inside) complain("the last block of the page before this one has no end")
    inside = 0
    forget()
    page = FILENAME
    gsub(/[^A-Za-z0-9]+/, "-", page)
}
!inside && /^ *<!-- not run: .*-->/ { how = inner($0); next }
!inside && /^ *<!-- not run/ { complain("what is not run has a reason: <!-- not run: WHY -->"); next }
!inside && /^ *<!-- fragment -->/ { how = "fragment"; next }
!inside && /^ *<!-- with .*-->/ { how = inner($0); next }
!inside && /^ *<!-- file: .*-->/ { name = inner($0); sub(/^file: */, "", name); next }
!inside && /^ *```/ {
    indent = match($0, /`/) - 1
    language = substr($0, indent + 4)
    line = FNR
    inside = 1
    path = "-"
    if (language in is_data) how = "data"
    else if (!(language in is_code)) complain("a block of " (language == "" ? "no language" : language) ": give it one that tests/docs/blocks.awk knows")
    if (how == "fragment" && language != "c") complain("only C has fragments, not " language)
    if (out != "") { path = out "/" page "." line "." language; printf "" >path }
    next
}
inside && /^ *```$/ {
    print FILENAME "\t" line "\t" language "\t" how "\t" name "\t" path
    if (path != "-") close(path)
    inside = 0
    forget()
    next
}
inside {
    text = $0
    # A block in a list is indented as its list is.
    for (i = 0; i < indent && substr(text, 1, 1) == " "; i++) text = substr(text, 2)
    if (path != "-") print text >path
    next
}
/[^ ]/ { forget() }
END {
    if (inside) complain("a block has no end")
    exit failures > 0
}
