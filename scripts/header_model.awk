# Parses include/nanovllm.h as cbindgen writes it, into arrays for the script that is given after this one:
#   awk -f scripts/header_model.awk -f scripts/abi.awk include/nanovllm.h
#
# structs[1..num_structs]                          names
# num_fields[struct], fields[struct, i]            names, in the order of the struct
# type[struct, field], doc[struct, field]          C type, comment with its line breaks
# enums[1..num_enums], num_values[enum], values[enum, i], number[value], value_doc[value]
# functions[1..num_functions], prototype[name]     on one line, callback types included

function flush_comment(   text) { text = comment; comment = ""; return text }
function trim(text) { gsub(/^ +| +$/, "", text); return text }

/^ *\/\// { sub(/^ *\/\/ ?/, ""); comment = comment (comment == "" ? "" : "\n") $0; next }
/^typedef enum .*\{/ { inside = "enum"; name = $3; enums[++num_enums] = name; enum_doc[name] = flush_comment(); next }
/^typedef struct .*\{/ { inside = "struct"; name = $3; structs[++num_structs] = name; flush_comment(); next }
/^}/ { inside = ""; next }
inside == "enum" { gsub(/[,=]/, " "); values[name, ++num_values[name]] = $1; number[$1] = $2; value_doc[$1] = flush_comment(); next }
inside == "struct" {
    line = trim($0)
    sub(/;$/, "", line)
    match(line, /[a-z_0-9]+(\[[0-9]+\])?$/)
    field = substr(line, RSTART)
    c_type = trim(substr(line, 1, RSTART - 1))
    if (match(field, /\[/)) { c_type = c_type substr(field, RSTART); sub(/\[.*/, "", field) }
    fields[name, ++num_fields[name]] = field
    type[name, field] = c_type
    doc[name, field] = flush_comment()
    next
}
/^NVLLM_API/ || /^typedef .*\(\*/ { declaration = ""; inside = "declaration" }
inside == "declaration" {
    line = trim($0)
    gsub(/NVLLM_API ?|NVLLM_MUST_USE ?/, "", line)
    declaration = declaration (declaration == "" || line == "" ? "" : " ") line
    if (line ~ /;$/) {
        match(declaration, /nvllm_[a-z_]+\(|\(\*nvllm_[a-z_]+/)
        function_name = substr(declaration, RSTART, RLENGTH)
        gsub(/[(*]/, "", function_name)
        functions[++num_functions] = function_name
        prototype[function_name] = declaration
        inside = ""
    }
    comment = ""
    next
}
{ comment = "" }

# ---- what a field is ----

# The enumeration that a field names in its comment, as in "NVLLM_POOLING_*: ..."; empty when it names none.
function enum_of(struct, field,   text, prefix, i) {
    text = doc[struct, field]
    if (text !~ /^NVLLM_[A-Z_]+_\*/) return ""
    match(text, /NVLLM_[A-Z_]+_\*/)
    prefix = substr(text, RSTART, RLENGTH - 1)
    for (i = 1; i <= num_enums; i++) if (index(values[enums[i], 1], prefix) == 1) return enums[i]
    fail(struct "." field " names " prefix "*, but no enumeration begins so")
}
# A flag: its comment begins with "0 or 1:".
function is_flag(struct, field) { return doc[struct, field] ~ /^0 or 1:/ }
# Numbers, flags and enumerations; all other fields are pointers or their lengths.
function is_scalar(struct, field) {
    if (field == "struct_size" || field ~ /^reserved/ || type[struct, field] !~ /^(u?int(32|64)_t|float|double)$/) return 0
    return !((struct, substr(field, 5)) in type && field ~ /^num_/)
}
# The default that the comment states; empty if it states none.
function default_of(struct, field,   text) {
    text = doc[struct, field]
    return match(text, /Default[ \n]-?[0-9]+(\.[0-9]+)?/) ? substr(text, RSTART + 8, RLENGTH - 8) : ""
}
# A comment for another language: its lines are joined, and wrapped again after `mark` at 120 columns, without empty lines.
function wrapped(text, mark,   words, count, i, line, out) {
    count = split(text, words, /[ \n]+/)
    line = mark
    for (i = 1; i <= count; i++) {
        if (length(line) + length(words[i]) >= 120 && line != mark) { out = out line "\n"; line = mark }
        line = line " " words[i]
    }
    return out line
}
# Removes the parts of a comment that concern only C.
function without_c(text) {
    gsub(/,[ \n]NUL-terminated[ \n]UTF-8[ \n]of[ \n]at[ \n]most/, ", at most", text)
    gsub(/,[ \n]NUL-terminated[ \n]UTF-8/, "", text)
    sub(/[ \n]Default[ \n]NULL\./, "", text)
    return text
}
function capital(text) { return toupper(substr(text, 1, 1)) substr(text, 2) }
function fail(message) { print "scripts: " message >"/dev/stderr"; failed = 1; exit 3 }
