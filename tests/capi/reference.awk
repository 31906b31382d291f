# Compares what the header says of each public name with what the reference says of it, at the same place, in words and values.
#   awk -f reference.awk include/nanovllm.h docs/reference.md
#
# Reads the header by itself, and shares nothing with the generator. A place is a section, and for fields and values of an enumeration
# their type. Prints a line for each name that is missing, is somewhere else, or is described with the words of another.

# Letters and digits: what both forms of a text have in common.
function words(text) {
    gsub(/\]\(#[^)]*\)/, "", text)
    gsub(/<br>|&lt;|&amp;/, " ", text)
    gsub(/[^A-Za-z0-9]+/, " ", text)
    gsub(/^ | $/, "", text)
    return text
}
# A number or a type without its layout.
function plain(value) {
    gsub(/[` ]/, "", value)
    return value
}
function wanted(place, name, value) {
    places[++num_places] = place SUBSEP name
    wanted_text[place, name] = words(comment)
    wanted_value[place, name] = plain(value)
    section_of[place, name] = section
    if (comment == "" && name != "struct_size") complain(name " has no comment in the header")
    comment = ""
}
function complain(text) { print "reference.awk: " text; failures++ }

FNR == 1 { file++; section = ""; inside = ""; comment = "" }

# ---- the header ----
file == 1 && /^\/\* ---- / { section = $0; sub(/^\/\* ---- /, "", section); sub(/ -*( \*\/)?$/, "", section); sections++; next }
file == 1 && /^ *\/\// { text = $0; sub(/^ *\/\/ ?/, "", text); comment = comment " " text; next }
file == 1 && /^typedef (enum|struct) .*\{/ { inside = $3; wanted(section, $3, ""); next }
file == 1 && /^}/ { inside = ""; next }
file == 1 && inside != "" && /^ *NVLLM_/ { value = $3; sub(/,$/, "", value); wanted(section SUBSEP inside, $1, value); next }
file == 1 && inside != "" && /;$/ {
    line = $0
    sub(/;$/, "", line)
    match(line, /[a-z_0-9]+(\[[0-9]+\])?$/)
    name = substr(line, RSTART)
    value = substr(line, 1, RSTART - 1)
    if (match(name, /\[/)) { value = value substr(name, RSTART); name = substr(name, 1, RSTART - 1) }
    wanted(section SUBSEP inside, name, value)
    next
}
file == 1 && /^# *define NVLLM_/ {
    name = $0
    sub(/^# *define +/, "", name)
    value = name
    sub(/[^A-Z_0-9].*/, "", name)
    value = /^#define/ && name != "NVLLM_API" ? substr(value, length(name) + 1) : ""
    # The numbers of the version stand before all sections, and those that depend on the compiler have several values.
    if (!(name in macros)) { own = section; if (section == "") section = "Version"; wanted(section, name, value); section = own }
    macros[name] = 1
    next
}
file == 1 && /^typedef .*;/ {
    name = $0
    if (match(name, /\(\*[a-z_]+/)) name = substr(name, RSTART + 2, RLENGTH - 2)
    else { sub(/;$/, "", name); sub(/.* /, "", name) }
    wanted(section, name, $0)
    next
}
file == 1 && section != "" && inside == "" && /^[A-Za-z].*nvllm_[a-z_0-9]+\(/ {
    match($0, /nvllm_[a-z_0-9]+\(/)
    name = substr($0, RSTART, RLENGTH - 1)
    declaration = ""
    in_declaration = 1
}
file == 1 && in_declaration {
    gsub(/NVLLM_API|NVLLM_MUST_USE/, "")
    declaration = declaration $0
    if (/;$/) { in_declaration = 0; wanted(section, name, declaration) }
    next
}
file == 1 { next }

# ---- the reference ----
/^## / { section = substr($0, 4); entry = section; inside = ""; next }
/^### `/ { name = $0; gsub(/^### `|`$/, "", name); inside = name; entry = section SUBSEP name; count[entry]++; next }
/^```c/ { in_code = 1; next }
/^```/ { in_code = 0; next }
in_code { code[entry] = code[entry] " " $0; next }
/^\| `/ {
    line = $0
    gsub(/\\\|/, "\001", line)
    num_cells = split(line, cell, /\|/)
    name = cell[2]
    gsub(/[` ]/, "", name)
    place = (inside == "" ? section : section SUBSEP inside) SUBSEP name
    count[place]++
    found_value[place] = plain(cell[3])
    found_text[place] = words(cell[4])
    next
}
/^\|/ || /^$/ { next }
{ prose[entry] = prose[entry] " " $0 }

END {
    for (i = 1; i <= num_places; i++) {
        place = places[i]
        name = place
        sub(".*" SUBSEP, "", name)
        if (!(place in count)) { complain(name " has no entry in the section \"" section_of[place] "\""); continue }
        if (count[place] > 1) complain(name " has " count[place] " entries in one place")
        found = place in found_text ? found_text[place] : words(prose[place])
        if (found != wanted_text[place]) complain(name " is described as \"" found "\", but the header says \"" wanted_text[place] "\"")
        value = place in found_value ? found_value[place] : place in code ? plain(code[place]) : ""
        if (value ~ /^#define/) value = substr(value, length("#define" name) + 1)
        if (value != wanted_value[place]) complain(name " is " value ", but the header says " wanted_value[place])
        known[place] = 1
    }
    for (place in count) {
        name = place
        sub(".*" SUBSEP, "", name)
        if (!(place in known)) complain(name " has an entry, but is not in this place of the header")
    }
    if (num_places < 300 || sections < 10) complain("hardly any names: " num_places " in " sections + 0 " sections")
    exit failures > 0
}
