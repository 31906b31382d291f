# Turns the header into docs/reference.md. Reads it twice: first for the names, which become links, then for the text.
#   awk -f reference.awk include/nanovllm.h include/nanovllm.h

# Records a name with a heading of its own, and where a name is described.
function define(name, heading) { described[name] = heading }

# Text of a comment as Markdown: special characters are escaped, and names become code, with a link if they are known.
function markdown(text,   out, name) {
    out = ""
    while (match(text, /(nvllm|NVLLM)_[A-Za-z0-9_]+\*?(\(\))?/)) {
        out = out escaped(substr(text, 1, RSTART - 1))
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        out = out linked(name)
    }
    return out escaped(text)
}
function escaped(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/[*|\[\]]/, "\\\\&", text)
    gsub(/(^| )_/, "&\001", text)
    gsub(/_\001/, "\\_", text)
    sub(/^\\\[any\\\]/, "**&**", text)
    sub(/^\\\[one\\\]/, "**&**", text)
    return text
}
function linked(name,   plain) {
    plain = name
    sub(/\(\)$/, "", plain)
    return plain in described ? "[`" name "`](#" described[plain] ")" : "`" name "`"
}

# The comment that was read last, as paragraphs or as one table cell.
function paragraphs(   i, out) {
    out = ""
    for (i = 1; i <= comments; i++) out = out markdown(comment[i]) "\n"
    comments = 0
    return out
}
function cell(   i, out) {
    out = ""
    for (i = 1; i <= comments; i++) out = out (i > 1 ? " " : "") (comment[i] == "" ? "<br>" : markdown(comment[i]))
    comments = 0
    return out
}
function heading(name) { print "\n### `" name "`\n" }

# A constant or a macro: a row of the table of its section.
function constant(line,   name) {
    is_conditional = line !~ /^#define/
    sub(/^# *define +/, "", line)
    name = line
    sub(/ .*/, "", name)
    if (name in shown) return
    shown[name] = 1
    if (state != "constants") print "\n| name | value | meaning |\n|---|---|---|"
    state = "constants"
    sub(/^[A-Za-z_0-9]+ */, "", line)
    print "| `" name "` | " (is_conditional ? "" : line) " | " cell() " |"
}

# The first comment of the file: rules, each with its name in a column of its own.
function rule(line) {
    if (line ~ /^  [A-Z][a-z]+  +[^ ]/) {
        match(line, /^  [A-Z][a-z]+/)
        word = substr(line, 3, RLENGTH - 2)
        sub(/^  [A-Z][a-z]+ +/, "", line)
        print "* **" word ".**" (line ~ /^\[any\]/ ? "\n  * " : " ") markdown(line)
        in_rules = 1
    } else if (line ~ /^[^ ]/) {
        print "\n## " line "\n"
    } else if (line == "") {
        print ""
    } else {
        tag = line ~ /^ +\[one\]/
        # Continuation lines of [any] and [one] are indented deeper than those of a rule.
        match(line, /[^ ]/)
        deeper = RSTART > 20 ? "    " : in_rules ? "  " : ""
        if (tagged && !tag && RSTART <= 20) print ""
        tagged = tag || RSTART > 20
        sub(/^ +/, "", line)
        print (tag ? "  * " : deeper) markdown(line)
    }
}

FNR == 1 {
    pass++
    state = "top"
    if (pass == 2) {
        print "# The C API\n"
        print "Everything that `nanovllm.h` says, in another form. `make header` writes both from src/capi.\n"
    }
}

# ---- first pass: names ----
pass == 1 {
    if (/^typedef enum/) { name = $3; define(name, name); inside = 1 }
    else if (/^typedef struct .*\{/) define($3, $3)
    else if (/^typedef struct .*;/) { gsub(/;/, ""); define($4, $4) }
    else if (/^typedef .*\(\*/) { match($0, /\(\*[a-z_]+/); define(substr($0, RSTART + 2, RLENGTH - 2), substr($0, RSTART + 2, RLENGTH - 2)) }
    else if (/^typedef/) { gsub(/;/, ""); define($3, $3) }
    else if (/^}/) inside = 0
    else if (inside && /^  NVLLM_/) define($1, name)
    else if (/^#define NVLLM_ABI_VERSION/) define($2, tolower($2))
    else if (/^# *define NVLLM_/) {
        name = $0
        sub(/^# *define +/, "", name)
        sub(/ .*/, "", name)
        if (name ~ /^NVLLM_VERSION_/) { version_line[++num_version_lines] = $0; version_comment[num_version_lines] = before; before = "" }
        if (!(name in described)) {
            define(name, anchor(name ~ /^NVLLM_VERSION_/ ? "Version" : sections[num_sections]))
            if (name !~ /^NVLLM_VERSION_/) constants[num_sections] = constants[num_sections] (constants[num_sections] ? ", " : "") "`" name "`"
        }
    }
    else if (/nvllm_[a-z_]+\(/ && !/^(\/\/|  |\/\*| \*)/) { match($0, /nvllm_[a-z_]+\(/); f = substr($0, RSTART, RLENGTH - 1); define(f, f); functions[++num_functions] = f }
    before = /^ *\/\// ? before (before ? " " : "") substr($0, 4) : ""
    if (/^\/\* ---- /) { sections[++num_sections] = title($0); first[num_sections] = num_functions + 1 }
    next
}
function title(line) {
    sub(/^\/\* ---- /, "", line)
    sub(/ -*( \*\/)?$/, "", line)
    return line
}
function anchor(text) {
    text = tolower(text)
    gsub(/[^a-z0-9 _-]/, "", text)
    gsub(/ /, "-", text)
    return text
}
function contents(   s, f, last, list) {
    print "\n## Contents\n"
    for (s = 1; s <= num_sections; s++) {
        list = ""
        last = s < num_sections ? first[s + 1] - 1 : num_functions
        for (f = first[s]; f <= last; f++) list = list (list ? ", " : "") linked(functions[f])
        if (list == "") list = constants[s]
        print "* [" sections[s] "](#" anchor(sections[s]) "): " list
    }
}

# ---- second pass: text ----
state == "top" && FNR == 1 { next }
state == "top" && /^ \*\// { contents(); state = "body"; next }
state == "top" { sub(/^ \* ?/, ""); if (!/^Generated from/) rule($0); next }

/^\/\* ---- / {
    print "\n## " title($0) "\n"
    section = title($0)
    state = /\*\/$/ ? "body" : "introduction"
    # They stand at the top of the header, before all sections.
    for (v = 1; section == "Version" && v <= num_version_lines; v++) {
        comment[comments = 1] = version_comment[v]
        constant(version_line[v])
    }
    next
}
section == "" { next }
state == "introduction" && /^ \*\// { print ""; state = "body"; next }
state == "introduction" { sub(/^ \* ?/, ""); print markdown($0); next }

/^ *\/\// { sub(/^ *\/\/ ?/, ""); comment[++comments] = $0; next }

/^typedef enum/ { heading($3); print paragraphs(); print "| value | | meaning |\n|---|---|---|"; state = "enum"; next }
/^typedef struct .*\{/ { heading($3); print paragraphs(); print "| field | type | meaning |\n|---|---|---|"; state = "struct"; next }
state == "enum" && /^  / { value = $3; sub(/,/, "", value); print "| `" $1 "` | " value " | " cell() " |"; next }
state == "struct" && /^  / {
    line = $0
    sub(/^ +/, "", line); sub(/;$/, "", line)
    match(line, /[a-z_0-9]+(\[[0-9]+\])?$/)
    field = substr(line, RSTART); type = substr(line, 1, RSTART - 1)
    bound = ""
    if (match(field, /\[/)) { bound = substr(field, RSTART); field = substr(field, 1, RSTART - 1) }
    sub(/ +$/, "", type)
    print "| `" field "` | `" type bound "` | " cell() " |"
    next
}
/^}/ && (state == "enum" || state == "struct") { print ""; state = "body"; next }

# All other lines are declarations, possibly over several lines.
/^#define NVLLM_ABI_VERSION/ { heading($2); print "```c\n" $0 "\n```\n\n" paragraphs(); next }
/^# *define NVLLM_/ { constant($0); next }
/^(typedef|NVLLM_API)/ { declaration = ""; state = "declaration" }
state == "declaration" {
    line = $0
    gsub(/NVLLM_API ?|NVLLM_MUST_USE ?/, "", line)
    declaration = declaration line (line == "" ? "" : "\n")
    if (line ~ /;$/) {
        if (match(declaration, /nvllm_[a-z_]+\(/)) name = substr(declaration, RSTART, RLENGTH - 1)
        if (declaration ~ /^typedef/) {
            name = declaration
            if (match(declaration, /\(\*[a-z_]+/)) name = substr(declaration, RSTART + 2, RLENGTH - 2)
            else { sub(/;\n$/, "", name); sub(/.* /, "", name) }
        }
        heading(name)
        print "```c\n" declaration "```\n\n" paragraphs()
        state = "body"
    }
    next
}
/^#endif \/\* NANOVLLM_H/ { exit }

# A comment belongs to what follows it: one that nothing took would be printed at the next name.
comments && !/^#/ && !/^$/ { print "reference.awk: a comment of line " FNR " belongs to nothing: " $0 >"/dev/stderr"; exit 1 }
