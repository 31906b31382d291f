# Writes bindings/csharp/Runtime/Abi.cs: the structs, values and functions of the header for P/Invoke, and the classes of options. Run after
# header_model.awk.
#
# A struct without pointers is public, with names in C#'s spelling. One with pointers is internal and keeps its C names.

# A C name in C#'s spelling. Words of one or two letters with digits stay in capitals, and so does what follows a digit: Q8_0, BF16, Int8.
function pascal(name,   parts, count, i, out) {
    count = split(toupper(name), parts, "_")
    for (i = 1; i <= count; i++) {
        if (i > 1 && parts[i - 1] ~ /[0-9]$/) out = out "_" parts[i]
        else if (parts[i] ~ /^[A-Z][A-Z]?[0-9]/) out = out parts[i]
        else out = out substr(parts[i], 1, 1) tolower(substr(parts[i], 2))
    }
    return out
}
function is_public(struct,   i) {
    for (i = 1; i <= num_fields[struct]; i++) if (type[struct, fields[struct, i]] ~ /[*\]]$|_fn$/) return 0
    return 1
}
function struct_name(struct) { return is_public(struct) ? pascal(substr(struct, 7)) : struct }
function field_name(struct, field) { return is_public(struct) ? pascal(field) : field }

function cs_type(c_type) {
    gsub(/const |struct /, "", c_type)
    gsub(/ |const/, "", c_type)
    if (c_type == "nvllm_engine*") return "EngineHandle"
    if (c_type ~ /^nvllm_(engine|result|answer_parser)\*\*$/) return "IntPtr*"
    if (c_type == "void*" || c_type ~ /^nvllm_(result|answer_parser)\*$/ || c_type ~ /_fn$/) return "IntPtr"
    if (c_type ~ /\*$/) { sub(/\*$/, "", c_type); return cs_type(c_type) "*" }
    if (c_type == "void") return "void"
    if (c_type == "char" || c_type == "uint8_t") return "byte"
    if (c_type == "size_t") return "UIntPtr"
    if (c_type == "int32_t" || c_type == "nvllm_status") return "int"
    if (c_type == "uint32_t") return "uint"
    if (c_type == "int64_t") return "long"
    if (c_type == "uint64_t") return "ulong"
    if (c_type ~ /^(float|double)$/) return c_type
    if ((c_type, 1) in fields) return struct_name(c_type)
    fail("a type that C# does not know: " c_type)
}
function parameters(text, function_name,   count, parts, i, out, name, c_type) {
    match(text, /\([^(*][^(]*\);$/)
    text = substr(text, RSTART + 1, RLENGTH - 3)
    if (text == "void") return ""
    count = split(text, parts, /, */)
    for (i = 1; i <= count; i++) {
        match(parts[i], /[a-z_0-9]+$/)
        name = substr(parts[i], RSTART)
        c_type = cs_type(trim(substr(parts[i], 1, RSTART - 1)))
        # The handle frees the engine after its last reference is gone. Waits are woken while it is being disposed.
        if (c_type == "EngineHandle" && function_name ~ /^nvllm_(wait|wake)$/) c_type = "IntPtr"
        if (function_name == "nvllm_engine_free") c_type = "IntPtr"
        out = out (i > 1 ? ", " : "") c_type " " name
    }
    return out
}

function short_name(enum, value,   prefix, i) {
    if (enum == "nvllm_status_code") { sub(/^NVLLM_(ERR_)?/, "", value); return pascal(value) }
    prefix = value
    for (i = 1; i <= num_values[enum]; i++) while (index(values[enum, i], prefix) != 1) prefix = substr(prefix, 1, length(prefix) - 1)
    sub(/[^_]*$/, "", prefix)
    return pascal(substr(value, length(prefix) + 1))
}
function class_name(enum) {
    if (enum == "nvllm_status_code") return "Status"
    if (enum == "nvllm_dtype") return "DType"
    if (enum == "nvllm_structure") return "StructureKind"
    if (enum == "nvllm_tool_choice") return "ToolChoice"
    return pascal(substr(enum, 7))
}

# A comment as XML, with the names of options and values in C#'s spelling.
function documentation(text, mark,   out, word, e) {
    text = without_c(text)
    gsub(/`/, "", text)
    sub(/^NVLLM_[A-Z_]+_\*[.;:] /, "", text)
    if (sub(/^0 or 1: whether/, "Whether", text)) {
        sub(/Default[ \n]0\./, "Default false.", text)
        sub(/Default[ \n]1\./, "Default true.", text)
    }
    out = ""
    while (match(text, /[A-Za-z]+_[A-Za-z0-9_]*[A-Za-z0-9]/)) {
        word = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1) (word in spelled ? spelled[word] : word)
        text = substr(text, RSTART + RLENGTH)
    }
    text = capital(out text)
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return wrapped("<summary>" text "</summary>", mark "///")
}

function option_type(struct, field,   c_type) {
    c_type = type[struct, field]
    if (c_type == "const char *") return "string"
    if (c_type == "const char *const *") return "string[]"
    if (is_array(struct, field)) { sub(/ \*$/, "", c_type); return cs_type(c_type) "[]" }
    if (is_flag(struct, field)) return "bool?"
    if (enum_of(struct, field)) return class_name(enum_of(struct, field)) "?"
    return cs_type(c_type) "?"
}
function is_array(struct, field) { return (struct, "num_" field) in type }
function is_option(struct, field) { return !(field in by_hand || field ~ /^reserved/ || field ~ /^num_/ && (struct, substr(field, 5)) in type) }
function write_options(struct, name, text,   i, field, property, as, element) {
    print "\n    /// <summary>" text " What is null is as the library has it.</summary>"
    print "    public sealed partial class " name "\n    {"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (!is_option(struct, field)) continue
        print documentation(doc[struct, field], "        ")
        print "        public " option_type(struct, field) " " pascal(field) " { get; set; }"
    }
    print "\n        unsafe void Assign(" struct "* native, Borrowed memory)\n        {"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (!is_option(struct, field)) continue
        property = pascal(field)
        as = option_type(struct, field)
        if (as ~ /^string/) print "            if (" property " != null) native->" field " = memory.Text" (as == "string" ? "" : "s") "(" property ", \"" property "\");"
        else if (as ~ /\[\]$/) print "            if (" property " != null) native->" field " = (" substr(as, 1, length(as) - 2) "*)memory.Pinned(" property ", " property ".Length);"
        else if (as == "bool?") print "            if (" property ".HasValue) native->" field " = " property ".Value ? 1u : 0u;"
        else print "            if (" property ".HasValue) native->" field " = " (enum_of(struct, field) ? "(" cs_type(type[struct, field]) ")" : "") property ".Value;"
        if (is_array(struct, field)) print "            if (" property " != null) native->num_" field " = (" cs_type(type[struct, "num_" field]) ")" property ".Length;"
    }
    print "        }"
    if (struct == "nvllm_request_options") {
        print "\n        internal unsafe void Read(" struct "* native)\n        {"
        for (i = 1; i <= num_fields[struct]; i++) {
            field = fields[struct, i]
            if (!is_option(struct, field) || !is_scalar(struct, field)) continue
            as = enum_of(struct, field)
            print "            " pascal(field) " = " (as ? "(" class_name(as) ")" : "") "native->" field (is_flag(struct, field) ? " != 0" : "") ";"
        }
        print "        }"
    }
    print "    }"
}

END {
    if (failed) exit 3
    split("struct_size model_path progress progress_user_data bias_tokens bias_values num_bias", names, " ")
    for (n in names) by_hand[names[n]] = 1
    for (e = 1; e <= num_enums; e++) for (i = 1; i <= num_values[enums[e]]; i++) {
        spelled[values[enums[e], i]] = class_name(enums[e]) "." short_name(enums[e], values[enums[e], i])
        enum_with[values[enums[e], i]] = enums[e]
    }
    for (s = 1; s <= num_structs; s++) for (i = 1; i <= num_fields[structs[s]]; i++)
        if (fields[structs[s], i] ~ /_/) spelled[fields[structs[s], i]] = pascal(fields[structs[s], i])

    print "// Generated from nanovllm.h by scripts/header.sh. Do not edit: change src/capi, then run make header.\n"
    print "using System;\nusing System.Runtime.InteropServices;\n\nnamespace Nanovllm\n{"
    for (e = 1; e <= num_enums; e++) {
        if (e > 1) print ""
        print documentation(enum_doc[enums[e]], "    ")
        if (enums[e] ~ /_flags$/) print "    [Flags]"
        print "    " (enums[e] == "nvllm_file_kind" ? "internal" : "public") " enum " class_name(enums[e]) "\n    {"
        for (i = 1; i <= num_values[enums[e]]; i++) {
            value = values[enums[e], i]
            print documentation(value_doc[value], "        ")
            print "        " short_name(enums[e], value) " = " number[value] ","
        }
        print "    }"
    }
    for (s = 1; s <= num_structs; s++) {
        name = structs[s]
        open = is_public(name)
        print ""
        if (open) print "    /// <summary>As " name " of the C API.</summary>"
        print "    [StructLayout(LayoutKind.Sequential)]"
        print "    " (open ? "public" : "internal unsafe") " struct " struct_name(name) "\n    {"
        for (i = 1; i <= num_fields[name]; i++) {
            field = fields[name, i]
            c_type = type[name, field]
            if (open && field != "struct_size") print documentation(doc[name, field], "        ")
            if (open && c_type == "size_t" && field != "struct_size") {
                print "        public long " pascal(field) " => (long)" field ";\n        internal UIntPtr " field ";"
                continue
            }
            if (match(c_type, /\[[0-9]+\]$/)) { print "        internal fixed byte " field substr(c_type, RSTART) ";"; continue }
            as = cs_type(c_type)
            if (open && enum_of(name, field)) as = class_name(enum_of(name, field))
            # A comment that begins with one value stands for its enumeration too: "NVLLM_DEVICE_CPU or NVLLM_DEVICE_CUDA".
            else if (open && match(doc[name, field], /^NVLLM_[A-Z_0-9]+/)) as = class_name(enum_with[substr(doc[name, field], 1, RLENGTH)])
            print "        " (open && field != "struct_size" ? "public " : "internal ") as " " field_name(name, field) ";"
        }
        print "    }"
    }
    print ""
    for (f = 1; f <= num_functions; f++) {
        name = functions[f]
        text = prototype[name]
        if (text !~ /^typedef/) continue
        match(text, /^typedef [a-z_0-9]+/)
        print "    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]"
        print "    internal unsafe delegate " cs_type(substr(text, 9, RLENGTH - 8)) " " name "(" parameters(text, name) ");"
    }
    print "\n    internal static unsafe class Native\n    {"
    print "#if UNITY_IOS && !UNITY_EDITOR\n        const string Library = \"__Internal\";\n#else\n        const string Library = \"nanovllm\";\n#endif"
    for (f = 1; f <= num_functions; f++) {
        name = functions[f]
        text = prototype[name]
        if (text ~ /^typedef/) continue
        result = cs_type(trim(substr(text, 1, index(text, name) - 1)))
        print "\n        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]"
        print "        internal static extern " result " " name "(" parameters(text, name) ");"
    }
    print "    }"
    write_options("nvllm_engine_config", "EngineConfig", "Options of an engine.")
    write_options("nvllm_request_options", "RequestOptions", "Options of a request.")
    print "}"
}
