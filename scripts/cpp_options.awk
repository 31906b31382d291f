# Writes bindings/cpp/nanovllm/generated_options.hpp: the option structs and enumerations of the header for C++. Run after
# header_model.awk. A pointer gets a C++ type here, and is converted by hand in options.hpp.

function comment_of(struct, field,   text) {
    if (field == "bias_tokens") return "Tokens, and what is added to their logits after the penalties: finite, or minus infinity to exclude a token."
    text = without_c(doc[struct, field])
    if (is_flag(struct, field)) {
        text = capital(substr(text, 9))
        sub(/Default[ \n]0\./, "Default false.", text)
        sub(/Default[ \n]1\./, "Default true.", text)
    }
    if (field == "progress") return "Receives the fraction of the model that is loaded, from 0 to 1; false cancels loading."
    return text
}

# The type of a field with its initializer; empty for a field that C++ does not show.
function cpp_type(struct, field,   c_type, enum) {
    c_type = type[struct, field]
    if (c_type == "nvllm_progress_fn") return "std::function<bool(float)>"
    if (field == "progress_user_data" || field == "struct_size" || field == "bias_values") return ""
    if (c_type == "const char *") return "std::string"
    # Without a list, the library has one of its own.
    if (field == "dry_sequence_breakers") return "std::optional<std::vector<std::string>>"
    if (c_type == "const char *const *") return "std::vector<std::string>"
    if (field == "bias_tokens") return "std::vector<std::pair<uint32_t, float>>"
    if (c_type ~ /^const .*\*$/) { gsub(/const |[ *]/, "", c_type); return "std::vector<" c_type ">" }
    if (!is_scalar(struct, field)) return ""
    if (is_flag(struct, field)) return "std::optional<bool>"
    enum = enum_of(struct, field)
    return "std::optional<" (enum && !(enum in as_number) ? "nvllm::" substr(enum, 7) : c_type) ">"
}

function cpp_name(field) { return field == "bias_tokens" ? "logit_bias" : field }

# Fields in the order that existing designated initializers use: the first ones were placed next to related fields.
function place(struct, field,   i) {
    order[++num_order] = field
    for (i = 1; i <= num_fields[struct]; i++)
        if (fields[struct, i] in after && after[fields[struct, i]] == field) place(struct, fields[struct, i])
}

function write_enum(enum, base,   i, name) {
    print "/// " enum_doc[enum]
    # Programs that are older than its names give a number.
    if (enum in as_number) print "struct " substr(enum, 7) " {\n  enum value : " base " {"
    else print "enum class " substr(enum, 7) " : " base " {"
    for (i = 1; i <= num_values[enum]; i++) {
        name = tolower(substr(values[enum, i], length(prefix_of(enum)) + 1))
        print (enum in as_number ? "    " : "  ") (name == "auto" ? "automatic" : name) " = " values[enum, i] ","
    }
    print (enum in as_number ? "  };\n" : "") "};\n"
}
# The common prefix of all names of an enumeration, up to the last underscore.
function prefix_of(enum,   prefix, i) {
    prefix = values[enum, 1]
    for (i = 2; i <= num_values[enum]; i++) while (index(values[enum, i], prefix) != 1) sub(/_?[^_]*$/, "", prefix)
    return prefix "_"
}

function write_struct(struct, name,   i, field, cpp) {
    print "struct " name " {"
    for (i = 1; i <= num_order; i++) {
        field = order[i]
        cpp = cpp_type(struct, field)
        if (cpp == "") continue
        print wrapped(comment_of(struct, field), "  ///")
        print "  " cpp " " cpp_name(field) " = {};"
    }
    print "};\n"
}

function write_assignment(struct, name,   i) {
    print "/// Sets the numbers that `options` has, and leaves the others and every pointer as they are."
    print "inline void assign_scalars(" struct "& native, const " name "& options) {"
    for (i = 1; i <= num_order; i++)
        if (is_scalar(struct, order[i])) print "  assign(native." order[i] ", options." order[i] ");"
    print "}\n"
}

function collect(struct,   i) {
    num_order = 0
    for (i = 1; i <= num_fields[struct]; i++) if (!(fields[struct, i] in after)) place(struct, fields[struct, i])
}

END {
    if (failed) exit 3
    as_number["nvllm_early_stopping"] = 1
    after["num_prompt_logprobs"] = "num_logprobs"
    after["early_stopping"] = "length_penalty"
    after["structure"] = "structure_kind"
    after["pooling"] = "structure"

    print "// Generated from nanovllm.h by scripts/header.sh: change src/capi, then run make header. Included by options.hpp."
    print "#ifndef NANOVLLM_GENERATED_OPTIONS_HPP"
    print "#define NANOVLLM_GENERATED_OPTIONS_HPP\n"
    print "namespace nvllm {\n"
    num_wanted = split("nvllm_engine_config nvllm_request_options", wanted, " ")
    for (w = 1; w <= num_wanted; w++)
        for (i = 1; i <= num_fields[wanted[w]]; i++) {
            enum = is_scalar(wanted[w], fields[wanted[w], i]) ? enum_of(wanted[w], fields[wanted[w], i]) : ""
            if (enum && !written[enum]++) write_enum(enum, type[wanted[w], fields[wanted[w], i]])
        }
    collect("nvllm_engine_config")
    print "/// nvllm_engine_config: what is not set has the library's default, and model_path has none."
    write_struct("nvllm_engine_config", "engine_options")
    collect("nvllm_request_options")
    print "/// nvllm_request_options: what is not set has the library's default, which is greedy and without limits. Where a function"
    print "/// takes no options, those of engine::default_options() hold, which the model recommends."
    write_struct("nvllm_request_options", "request_options")
    print "namespace detail {\n"
    collect("nvllm_engine_config")
    write_assignment("nvllm_engine_config", "engine_options")
    collect("nvllm_request_options")
    write_assignment("nvllm_request_options", "request_options")
    print "/// The numbers of `native`, each set. Texts and lists stay empty."
    print "inline request_options scalars_of(const nvllm_request_options& native) {"
    print "  request_options options;"
    for (i = 1; i <= num_order; i++)
        if (is_scalar("nvllm_request_options", order[i])) print "  read(options." order[i] ", native." order[i] ");"
    print "  return options;\n}\n"
    print "}  // namespace detail\n}  // namespace nvllm\n\n#endif"
}
