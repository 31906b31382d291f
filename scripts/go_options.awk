# Writes bindings/go/generated.go: the option structs and the statistics of the header for Go. Run after header_model.awk. A pointer
# gets a Go type here, and is converted by hand in options.go and engine.go.

# A C name in Go's spelling: each word with a capital letter, initialisms in capitals.
function go_name(name,   parts, count, i, out) {
    if (name in renamed) return renamed[name]
    count = split(tolower(name), parts, "_")
    out = ""
    for (i = 1; i <= count; i++) out = out (parts[i] in initialism ? initialism[parts[i]] : toupper(substr(parts[i], 1, 1)) substr(parts[i], 2))
    return out
}

# Flags that are on by default are negated, because the zero value of a field is its default.
function is_negated(struct, field) { return is_flag(struct, field) && default_of(struct, field) == "1" }
function is_time(struct, field) { return !(field in renamed) && (field ~ /_us$/ && type[struct, field] == "uint64_t" || field ~ /_ms$/) }
function unit(field) { return field ~ /_ms$/ ? "time.Millisecond" : "time.Microsecond" }
function field_name(struct, field) {
    if (is_negated(struct, field)) { sub(/^enable_/, "", field); return go_name("no_" field) }
    if (is_time(struct, field)) sub(/_[um]s$/, "", field)
    return go_name(field)
}

function go_type(struct, field,   c_type, enum) {
    c_type = type[struct, field]
    if (field in typed) return typed[field]
    if (c_type == "const char *") return "string"
    if (c_type == "const char *const *") return "[]string"
    if (c_type ~ /^const .*\*$/) { gsub(/const |_t|[ *]/, "", c_type); return "[]" c_type }
    if (!is_scalar(struct, field)) return ""
    if (is_flag(struct, field)) return "bool"
    if (is_time(struct, field)) return "time.Duration"
    enum = enum_of(struct, field)
    if (enum) return go_name(enum in typed ? typed[enum] : substr(enum, 7))
    return c_type == "uint64_t" ? "uint64" : c_type ~ /int32_t/ ? "int" : "float64"
}

# A comment with the names of fields and constants in Go's spelling.
function go_text(text,   out, word, plain, i) {
    out = ""
    text = without_c(text)
    sub(/Default UINT32_MAX:/, "Default:", text)
    sub(/^NVLLM_[A-Z_]+_\*[.;:] /, "", text)
    while (match(text, /(nvllm|NVLLM)_[A-Za-z0-9_]+(\(\))?|`?[a-z]+_[a-z_]+`?|`[a-z_]+`/)) {
        out = out substr(text, 1, RSTART - 1)
        word = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        plain = word
        gsub(/[`()]/, "", plain)
        if (plain in linked) word = linked[plain]
        else if (plain ~ /^NVLLM_/) word = go_name(substr(plain, 7))
        else if (plain in go_field) word = go_field[plain]
        out = out word
    }
    return capital(out text)
}
function write_struct(struct, name,   i, field, text, shown) {
    print "type " name " struct {"
    shown = 0
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (field in hidden || go_type(struct, field) == "") continue
        text = field in described ? described[field] : doc[struct, field]
        if (field in added) text = text " " added[field]
        if (is_flag(struct, field)) { sub(/^0 or 1: /, "", text); sub(/[ \n]Default[ \n][01]\./, "", text) }
        if (is_time(struct, field)) {
            sub(/[ \n]in[ \n](micro|milli)seconds/, "", text)
            sub(/Default 0: 10000/, "Default: 10 seconds", text)
        }
        if (shown++) print ""
        print wrapped(go_text(text), "\t//")
        print "\t" field_name(struct, field) " " go_type(struct, field)
    }
    print "}\n"
}

function write_assignment(struct, self, name,   i, field, value) {
    print "// assign sets the numbers that are not 0, and leaves every pointer as it is."
    print "func (" self " *" name ") assign(native *C." struct ") {"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (!is_scalar(struct, field) || field in hidden || field in by_hand) continue
        value = self "." field_name(struct, field)
        if (is_negated(struct, field)) print "\tif " value " {\n\t\tnative." field " = 0\n\t}"
        else if (is_flag(struct, field)) print "\tnative." field " = flag(" value ")"
        else if (is_time(struct, field)) print "\tset(&native." field ", units(" value ", " unit(field) "))"
        else print "\tset(&native." field ", " value ")"
    }
    print "}\n"
}

# Numbers that the fields of the C API cannot represent are refused: they have 32 bits, and Go's have 64.
function write_check(struct, self, name,   i, field, call, signed) {
    print "// checkRanges refuses numbers that the fields of the C API cannot say."
    print "func (" self " *" name ") checkRanges() error {"
    print "\treturn cmp.Or("
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (!is_scalar(struct, field) || field in hidden || field in by_hand || field in typed || is_flag(struct, field)) continue
        if (is_time(struct, field)) {
            print "\t\tinTime(\"" field_name(struct, field) "\", " self "." field_name(struct, field) ", " \
                (type[struct, field] == "uint64_t" ? "math.MaxInt64" : "math.MaxUint32*" unit(field)) "),"
            continue
        }
        if (type[struct, field] !~ /int32_t/) continue
        signed = type[struct, field] == "int32_t"
        if (!signed && enum_of(struct, field)) continue
        print "\t\t" (signed ? "inSignedRange" : "inRange") "(\"" field_name(struct, field) "\", int(" self "." field_name(struct, field) ")),"
    }
    print "\t)\n}\n"
}

function write_reading(struct, name,   i, field, value, go) {
    print "// read sets the fields whose numbers are not those of plain, so that what is the library's default stays 0."
    print "func (o *" name ") read(native, plain *C." struct ") {"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (!is_scalar(struct, field) || field in by_hand) continue
        go = go_type(struct, field)
        value = "o." field_name(struct, field)
        if (is_negated(struct, field)) print "\t" value " = native." field " == 0"
        else if (go == "bool") print "\t" value " = native." field " != 0"
        else if (go == "time.Duration") print "\t" value " = time.Duration(native." field ") * time.Microsecond"
        else print "\tread(&" value ", native." field ", plain." field ")"
    }
    print "}\n"
}

function write_copy(struct, name,   i, field) {
    print "func copy" name "(native *C." struct ") (s " name ") {"
    for (i = 1; i <= num_fields[struct]; i++) {
        field = fields[struct, i]
        if (is_scalar(struct, field)) print "\ts." field_name(struct, field) " = " go_type(struct, field) "(native." field ")"
    }
    print "\treturn s\n}"
}

END {
    if (failed) exit 3
    split("kv=KV eos=EOS dtype=DType gpu=GPU json=JSON", pairs, " ")
    for (p in pairs) { split(pairs[p], two, "="); initialism[two[1]] = two[2] }
    # Go names and types that do not follow the rules.
    split("tensor_parallel_size=TensorParallel step_time_us=StepMicros prefix_cache_queries=CacheQueries prefix_cache_hits=CacheHits " \
        "prefix_cache_evictions=CacheEvictions bias_tokens=LogitBias", pairs, " ")
    for (p in pairs) { split(pairs[p], two, "="); renamed[two[1]] = two[2] }
    typed["bias_tokens"] = "map[uint32]float32"
    typed["early_stopping"] = "EarlyStopping"
    typed["nvllm_structure"] = "structure_kind"
    by_hand["max_thinking_tokens"] = 1
    described["max_thinking_tokens"] = "Number of tokens of reasoning after which its end is forced. 0: no limit, and Output.ReasoningTokens is 0. Below 0: the end is forced at once. A model whose answers have no reasoning is not limited. Cannot be combined with StructureKind or BeamWidth. Needs a tokenizer."
    described["parallel_tool_calls"] = "Whether the completion may have at most one call."
    described["strict_tools"] = "Whether the arguments of a call are any JSON object. Else they follow the schema of its tool. A tool with a \"strict\" of its own decides for itself."
    split("struct_size bias_values progress progress_user_data", names, " ")
    for (n in names) hidden[names[n]] = 1
    by_hand["device"] = 1
    described["bias_tokens"] = "Added to the logits of these tokens, after the penalties: finite, or minus infinity to exclude a token. At most NVLLM_MAX_BIASES."
    described["enable_prefix_cache"] = "Whether the prefix cache is off, so that prompts share no KV blocks of common prefixes."
    added["length_penalty"] = "0 means this default: for ranking by the sum alone, set a value close to 0, such as 1e-9."
    linked["token_ids"] = "[Output.Tokens]"
    linked["nvllm_release_prefix"] = "[Engine.ReleasePrefix]"
    linked["NVLLM_EARLY_STOPPING_HEURISTIC"] = "StopHeuristically"
    linked["nvllm_add_chat"] = "[Engine.AddChat]"
    linked["nvllm_answer_parser"] = "[AnswerParser]"
    linked["nvllm_generate"] = "[Engine.Generate]"
    linked["nvllm_engine_new_from"] = "[NewFrom]"
    linked["nvllm_engine_new"] = "[New]"
    linked["nvllm_default_options"] = "[Engine.DefaultOptions]"
    split("nvllm_engine_config nvllm_request_options nvllm_stats", shown_structs, " ")
    for (s = 1; s <= 3; s++)
        for (i = 1; i <= num_fields[shown_structs[s]]; i++) {
            field = fields[shown_structs[s], i]
            if (go_type(shown_structs[s], field) != "") go_field[field] = field_name(shown_structs[s], field)
        }

    print "// Code generated from nanovllm.h by scripts/header.sh; DO NOT EDIT. Change src/capi, then run make header.\n"
    print "package nanovllm\n"
    print "// #include <nanovllm.h>\nimport \"C\"\n"
    print "import (\n\t\"cmp\"\n\t\"math\"\n\t\"time\"\n)\n"
    print "// A Config is what an engine is opened with. The zero value of a field is its default; only ModelPath has none."
    write_struct("nvllm_engine_config", "Config")
    write_assignment("nvllm_engine_config", "c", "Config")
    write_check("nvllm_engine_config", "c", "Config")
    print "// RequestOptions are what one request asks for. The zero value of a field is its default, which is greedy and without limits."
    print "//"
    print "// Where a method takes options, nil means those of [Engine.DefaultOptions], which the model recommends."
    write_struct("nvllm_request_options", "RequestOptions")
    write_assignment("nvllm_request_options", "o", "RequestOptions")
    write_check("nvllm_request_options", "o", "RequestOptions")
    write_reading("nvllm_request_options", "RequestOptions")
    print "// Stats are counters since the engine opened, and gauges of now."
    write_struct("nvllm_stats", "Stats")
    write_copy("nvllm_stats", "Stats")
}
