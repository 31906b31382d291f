# Writes bindings/python/src/nanovllm/_abi.py: the structs, values and functions of the header for ctypes, and the names and types of
# options. Run after header_model.awk.
#
# Enumerations are strings in Python, a `Name`, but those of `numbers`. The type and the default of max_tokens are Python's own: options.py.

function ctype(c_type, struct, field,   base) {
    if (match(c_type, /\[[0-9]+\]$/)) return "c_char * " substr(c_type, RSTART + 1, RLENGTH - 2)
    gsub(/const |struct /, "", c_type)
    gsub(/ /, "", c_type)
    if (c_type == "char*const*" || c_type == "char**") return "POINTER(c_char_p)"
    if (c_type == "char*") return ((struct, field "_len") in type) ? "POINTER(c_char)" : "c_char_p"
    if (c_type == "void*" || c_type ~ /^nvllm_(engine|result|answer_parser)\*$/ || c_type == "void") return c_type == "void" ? "None" : "c_void_p"
    if (c_type ~ /^nvllm_(engine|result|answer_parser)\*\*$/) return "POINTER(c_void_p)"
    if (c_type == "nvllm_status") return "c_int32"
    if (c_type ~ /_fn$/) return c_type
    if (c_type ~ /\*const\*$/) { sub(/\*const\*$/, "", c_type); return "POINTER(POINTER(" ctype(c_type) "))" }
    if (c_type ~ /\*$/) { sub(/\*$/, "", c_type); return "POINTER(" ctype(c_type) ")" }
    if (c_type == "size_t") return "c_size_t"
    if (c_type ~ /^u?int[0-9]+_t$/) { sub(/_t$/, "", c_type); return "c_" c_type }
    if (c_type ~ /^(float|double)$/) return "c_" c_type
    if (c_type ~ /^nvllm_/) return c_type
    fail("a type that Python does not know: " c_type)
}

# The types of the parameters of a declaration.
function parameters(text,   count, parts, i, out) {
    match(text, /\([^(*][^(]*\);$/)
    text = substr(text, RSTART + 1, RLENGTH - 3)
    if (text == "void") return ""
    count = split(text, parts, /, */)
    out = ""
    for (i = 1; i <= count; i++) {
        sub(/[a-z_0-9]+$/, "", parts[i])
        out = out (i > 1 ? ", " : "") ctype(trim(parts[i]))
    }
    return out
}

# The name of a value without what all values of its enumeration begin with.
function short_name(enum, value,   prefix, i) {
    prefix = value
    for (i = 1; i <= num_values[enum]; i++) while (index(values[enum, i], prefix) != 1) prefix = substr(prefix, 1, length(prefix) - 1)
    sub(/[^_]*$/, "", prefix)
    return substr(value, length(prefix) + 1)
}
function class_name(enum,   parts, count, i, out) {
    if (enum == "nvllm_status_code") return "Status"
    if (enum == "nvllm_dtype") return "DType"
    if (enum == "nvllm_structure") return "StructureKind"
    if (enum == "nvllm_tool_choice") return "ToolChoice"
    count = split(substr(enum, 7), parts, "_")
    for (i = 1; i <= count; i++) out = out capital(parts[i])
    return out
}
function hint(struct, field,   enum, c_type) {
    c_type = type[struct, field]
    if (c_type == "const char *") return "str"
    if (c_type == "const char *const *") return "Sequence[str]"
    if (c_type ~ /^const .*float \*$/) return "Sequence[float]"
    if (c_type ~ /^const .*\*$/) return "Sequence[int]"
    if (is_flag(struct, field)) return "bool"
    enum = enum_of(struct, field)
    if (enum) return class_name(enum) " | str"
    return c_type ~ /^(float|double)$/ ? "float" : "int"
}
function write_options(struct, name, doc_text,   i, field, text) {
    print "\n\nclass " name "(TypedDict, total=False):"
    print "    \"\"\"" doc_text "\"\"\"\n"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (field in hidden || field ~ /^reserved/ || (struct, substr(field, 5)) in type && field ~ /^num_/) continue
        text = without_c(doc[struct, field])
        gsub(/`/, "", text)
        print wrapped(text, "    #:")
        print "    " field ": " hint(struct, field) " | None"
    }
}

END {
    if (failed) exit 3
    split("struct_size model_path progress progress_user_data bias_tokens bias_values num_bias num_stop max_tokens", names, " ")
    for (n in names) hidden[names[n]] = 1
    split("Status LogLevel FileKind TokenizeFlags", names, " ")
    for (n in names) numbers[names[n]] = 1
    print "# Generated from nanovllm.h by scripts/header.sh. Do not edit: change src/capi, then run make header."
    print "\"\"\"The C API: structs, values and functions.\"\"\"\n"
    print "from collections.abc import Sequence"
    print "from ctypes import (\n    CFUNCTYPE,\n    POINTER,\n    Structure,\n    c_char,\n    c_char_p,\n    c_double,\n    c_float,\n    c_int32,\n    c_int64,\n    c_size_t,"
    print "    c_uint8,\n    c_uint32,\n    c_uint64,\n    c_void_p,\n)"
    print "from enum import IntEnum"
    print "from typing import TypedDict"
    print "\nfrom .names import Name"
    for (e = 1; e <= num_enums; e++) {
        is_number = class_name(enums[e]) in numbers
        print "\n\nclass " class_name(enums[e]) "(" (is_number ? "IntEnum" : "Name") "):"
        print "    \"\"\"" wrapped_doc(enum_doc[enums[e]]) "\"\"\"\n"
        for (i = 1; i <= num_values[enums[e]]; i++) {
            value = values[enums[e], i]
            print wrapped(value_doc[value], "    #:")
            name = short_name(enums[e], value)
            print "    " name " = " (is_number ? "" : "\"" tolower(name) "\", ") number[value]
        }
    }
    for (f = 1; f <= num_functions; f++) {
        name = functions[f]
        if (prototype[name] !~ /^typedef/) continue
        needs = prototype[name]
        callbacks[++num_callbacks] = name
    }
    # A callback may take a struct, and a struct may hold a callback: those without structs come first.
    print ""
    for (c = 1; c <= num_callbacks; c++) if (prototype[callbacks[c]] !~ /const nvllm_/) write_callback(callbacks[c])
    for (s = 1; s <= num_structs; s++) {
        name = structs[s]
        print "\n\nclass " name "(Structure):"
        print "    _fields_ = ["
        for (i = 1; i <= num_fields[name]; i++) {
            field = fields[name, i]
            print "        (\"" field "\", " ctype(type[name, field], name, field) "),"
        }
        print "    ]"
    }
    print "\n"
    for (c = 1; c <= num_callbacks; c++) if (prototype[callbacks[c]] ~ /const nvllm_/) write_callback(callbacks[c])
    print "\n#: Name, result and parameters of each function."
    print "FUNCTIONS = ["
    for (f = 1; f <= num_functions; f++) {
        name = functions[f]
        text = prototype[name]
        if (text ~ /^typedef/) continue
        result = substr(text, 1, index(text, name) - 1)
        print "    (\"" name "\", " ctype(trim(result)) ", [" parameters(text) "]),"
    }
    print "]"
    write_options("nvllm_engine_config", "EngineConfig", "Options of an engine.")
    write_options("nvllm_request_options", "RequestOptions", "Options of a request, by their names in the C API.")
}
function write_callback(name,   text) {
    text = prototype[name]
    match(text, /^typedef [a-z_0-9]+/)
    print name " = CFUNCTYPE(" ctype(substr(text, 9, RLENGTH - 8)) ", " parameters(text) ")"
}
function wrapped_doc(text) { gsub(/\n/, " ", text); gsub(/\\/, "", text); return text }
