# Writes tests/capi/abi.h: every offset, size, value and prototype of the header. Run after header_model.awk, with
#   -v baseline=tests/capi/abi.h
#
# Lines of the baseline never change, so that running this hides no break of the ABI: a struct grows only at its end, beyond its
# old size, because an older caller leaves its padding uninitialized. A field `reserved...` may cover the padding.

function bytes_of(c_type,   count) {
    if (c_type ~ /[*]$/ || c_type ~ /_fn$/) return 8
    if (c_type ~ /^(size_t|u?int64_t|double)$/) return 8
    if (c_type ~ /^(u?int32_t|float|nvllm_status)$/) return 4
    if (match(c_type, /^char\[[0-9]+\]$/)) { count = c_type; gsub(/[^0-9]/, "", count); return count + 0 }
    fail("a type that no struct has used so far: " c_type)
}
function align_of(c_type) { return c_type ~ /^char/ ? 1 : bytes_of(c_type) }
function rounded(value, to) { return int((value + to - 1) / to) * to }

# The declaration without the names of its parameters, which are not part of the ABI.
function without_names(text,   head, list, count, parts, i) {
    match(text, /\([^(*][^(]*\);$/)
    head = substr(text, 1, RSTART)
    list = substr(text, RSTART + 1, RLENGTH - 3)
    gsub(/struct /, "", list)
    count = split(list, parts, /, */)
    list = ""
    for (i = 1; i <= count; i++) {
        if (parts[i] != "void") sub(/ ?[a-z_0-9]+$/, "", parts[i])
        list = list (i > 1 ? ", " : "") parts[i]
    }
    return head list ");"
}

function emit(line) { lines[++num_lines] = line; is_new[line] = 1 }

END {
    if (failed) exit 3
    for (s = 1; s <= num_structs; s++) {
        name = structs[s]
        end = 0
        widest = 1
        for (i = 1; i <= num_fields[name]; i++) {
            c_type = type[name, fields[name, i]]
            align = align_of(c_type)
            if (align > widest) widest = align
            offset[name, i] = rounded(end, align)
            end = offset[name, i] + bytes_of(c_type)
        }
        size[name] = rounded(end, widest)
    }
    while ((getline line <baseline) > 0) {
        if (line ~ /^SIZE\(/) { split(line, parts, /[(), ]+/); old_size[parts[2]] = parts[3] }
        else if (line ~ /^(FIELD|VALUE)\(/ || line ~ /;$/) old[++num_old] = line
    }
    for (s = 1; s <= num_structs; s++) {
        name = structs[s]
        if (size[name] < old_size[name]) fail(name " shrank from " old_size[name] " to " size[name] " bytes: that breaks the ABI")
        emit("")
        emit("SIZE(" name ", " size[name] ")")
        for (i = 1; i <= num_fields[name]; i++) emit("FIELD(" name ", " fields[name, i] ", " offset[name, i] ")")
    }
    for (e = 1; e <= num_enums; e++) {
        emit("")
        for (i = 1; i <= num_values[enums[e]]; i++) emit("VALUE(" values[enums[e], i] ", " number[values[enums[e], i]] ")")
    }
    emit("")
    for (f = 1; f <= num_functions; f++) emit(without_names(prototype[functions[f]]))
    for (o = 1; o <= num_old; o++) {
        was[old[o]] = 1
        if (!(old[o] in is_new)) fail("the header no longer has this line of tests/capi/abi.h, which breaks the ABI: " old[o])
    }
    for (s = 1; s <= num_structs; s++) {
        name = structs[s]
        for (i = 1; i <= num_fields[name]; i++) {
            if (fields[name, i] ~ /^reserved/) continue
            if (("FIELD(" name ", " fields[name, i] ", " offset[name, i] ")") in was || offset[name, i] >= old_size[name] + 0) continue
            fail(name "." fields[name, i] " lies at " offset[name, i] ", in the padding of the struct of " old_size[name] " bytes")
        }
    }
    print "/* The ABI: every size, offset, value and prototype of nanovllm.h. scripts/header.sh appends to it and changes nothing that is"
    print " * here: a line that no longer holds is a break of the ABI. layout.c gives the lines their meaning."
    print " */"
    for (l = 1; l <= num_lines; l++) print lines[l]
}
