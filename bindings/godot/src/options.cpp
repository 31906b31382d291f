#include "options.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

using godot::Value;

namespace {

enum class Kind { u32, u64, i32, f32, flag, early_stopping, tool_choice };

struct Option {
    const char* name;
    Kind kind;
    size_t offset;
};

// The options whose value is one number, by their names in nvllm_request_options. Those that produce several completions or none
// (n, pooling) are left out, since a signal has the id of its request alone.
const Option OPTIONS[] = {
#define OPTION(name, kind) {#name, Kind::kind, offsetof(nvllm_request_options, name)}
    OPTION(max_tokens, u32),
    OPTION(min_tokens, u32),
    OPTION(temperature, f32),
    OPTION(top_p, f32),
    OPTION(min_p, f32),
    OPTION(top_k, u32),
    OPTION(repetition_penalty, f32),
    OPTION(presence_penalty, f32),
    OPTION(frequency_penalty, f32),
    OPTION(seed, u64),
    OPTION(ignore_eos, flag),
    OPTION(priority, i32),
    OPTION(beam_width, u32),
    OPTION(length_penalty, f32),
    OPTION(early_stopping, early_stopping),
    OPTION(include_stop, flag),
    OPTION(max_wait_us, u64),
    OPTION(cache_salt, u64),
    OPTION(tool_choice, tool_choice),
    OPTION(parallel_tool_calls, flag),
    OPTION(strict_tools, flag),
    OPTION(max_thinking_tokens, u32),
    OPTION(dry_multiplier, f32),
    OPTION(dry_base, f32),
    OPTION(dry_allowed_length, u32),
    OPTION(dry_penalty_last_n, u32),
    OPTION(top_n_sigma, f32),
    OPTION(xtc_probability, f32),
    OPTION(xtc_threshold, f32),
#undef OPTION
};

bool is_number(const Value& value) {
    return value.type() == GDEXTENSION_VARIANT_TYPE_INT || value.type() == GDEXTENSION_VARIANT_TYPE_FLOAT;
}

// An integer, also as the float that Godot's JSON parser makes of one.
bool whole_number(const Value& value, int64_t least, int64_t most, int64_t& number) {
    if (!is_number(value)) return false;
    if (value.type() == GDEXTENSION_VARIANT_TYPE_FLOAT) {
        double real = value.to_float();
        if (real != std::floor(real) || std::fabs(real) > 9007199254740992.0) return false;
    }
    number = value.to_int();
    return number >= least && number <= most;
}

std::string shown(const Value& value) {
    std::string text = value.to_text();
    return text.size() <= 60 ? value.type_name() + " " + text : value.type_name();
}

bool refuse(std::string& message, const std::string& key, const std::string& wanted, const Value& value) {
    message = "option " + key + " must be " + wanted + ", but is " + shown(value);
    return false;
}

// The names of NVLLM_EARLY_STOPPING_* and of NVLLM_TOOL_CHOICE_*, in the order of their values.
const std::vector<std::string> EARLY_STOPPING = {"heuristic", "at_once", "never"};
const std::vector<std::string> TOOL_CHOICE = {"auto", "none", "required", "named"};

// The value of an enumeration, by its name or as a number. A field of 32 bits holds it, signed or not.
bool set_choice(const char* key, const std::vector<std::string>& names, const Value& value, void* field, std::string& message) {
    int64_t number = 0, last = static_cast<int64_t>(names.size()) - 1;
    bool is_known = whole_number(value, 0, last, number);
    for (int64_t i = 0; value.is_text() && i <= last; i++) {
        if (value.to_text() != names[static_cast<size_t>(i)]) continue;
        number = i;
        is_known = true;
    }
    if (is_known) {
        int32_t chosen = static_cast<int32_t>(number);
        std::memcpy(field, &chosen, sizeof chosen);
        return true;
    }
    std::string wanted;
    for (size_t i = 0; i < names.size(); i++) wanted += (i == 0 ? "" : ", ") + names[i];
    return refuse(message, key, wanted + " or 0 to " + std::to_string(last), value);
}

bool set_number(const Option& option, const Value& value, nvllm_request_options& options, std::string& message) {
    void* field = reinterpret_cast<char*>(&options) + option.offset;
    int64_t number = 0;
    switch (option.kind) {
        case Kind::u32:
            if (!whole_number(value, 0, UINT32_MAX, number)) return refuse(message, option.name, "an int from 0 to 4294967295", value);
            *static_cast<uint32_t*>(field) = static_cast<uint32_t>(number);
            return true;
        case Kind::u64:
            if (!whole_number(value, 0, INT64_MAX, number)) return refuse(message, option.name, "an int of at least 0", value);
            *static_cast<uint64_t*>(field) = static_cast<uint64_t>(number);
            return true;
        case Kind::i32:
            if (!whole_number(value, INT32_MIN, INT32_MAX, number)) return refuse(message, option.name, "an int of 32 bits", value);
            *static_cast<int32_t*>(field) = static_cast<int32_t>(number);
            return true;
        case Kind::f32:
            if (!is_number(value)) return refuse(message, option.name, "a float", value);
            *static_cast<float*>(field) = static_cast<float>(value.to_float());
            return true;
        case Kind::early_stopping:
            return set_choice(option.name, EARLY_STOPPING, value, field, message);
        case Kind::tool_choice:
            return set_choice(option.name, TOOL_CHOICE, value, field, message);
        case Kind::flag:
            if (value.type() != GDEXTENSION_VARIANT_TYPE_BOOL) return refuse(message, option.name, "a bool", value);
            *static_cast<uint32_t*>(field) = value.to_bool() ? 1 : 0;
            return true;
    }
    return false;
}

void append_json_text(const std::string& text, std::string& json) {
    json += '"';
    for (char c : text) {
        if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            json += escape;
        } else {
            json += c;
        }
    }
    json += '"';
}

// As many levels as the library's own parser follows, so that a Dictionary that contains itself is refused.
const int JSON_DEPTH_MAX = 100;

bool append_json_level(const Value& value, const std::string& where, int depth, std::string& json, std::string& message) {
    if (depth > JSON_DEPTH_MAX) {
        message = where + " has more than " + std::to_string(JSON_DEPTH_MAX) + " levels";
        return false;
    }
    if (value.is_text()) {
        append_json_text(value.to_text(), json);
        return true;
    }
    if (value.is_list()) {
        json += '[';
        for (int64_t i = 0, size = value.size(); i < size; i++) {
            if (i > 0) json += ',';
            if (!append_json_level(value.at(i), where, depth + 1, json, message)) return false;
        }
        json += ']';
        return true;
    }
    switch (value.type()) {
        case GDEXTENSION_VARIANT_TYPE_NIL:
            json += "null";
            return true;
        case GDEXTENSION_VARIANT_TYPE_BOOL:
            json += value.to_bool() ? "true" : "false";
            return true;
        case GDEXTENSION_VARIANT_TYPE_INT:
            json += std::to_string(value.to_int());
            return true;
        case GDEXTENSION_VARIANT_TYPE_FLOAT: {
            double number = value.to_float();
            if (!std::isfinite(number)) {
                message = where + " has the number " + value.to_text() + ", which JSON does not have";
                return false;
            }
            char digits[40];
            std::snprintf(digits, sizeof digits, "%.17g", number);
            // printf writes the decimal separator of the locale.
            for (char* c = digits; *c; c++) *c = *c == ',' ? '.' : *c;
            json += digits;
            return true;
        }
        case GDEXTENSION_VARIANT_TYPE_DICTIONARY: {
            Value keys = value.call("keys", {});
            json += '{';
            for (int64_t i = 0, size = keys.size(); i < size; i++) {
                Value key = keys.at(i);
                if (!key.is_text()) {
                    message = where + " has a key of type " + key.type_name() + ", but keys must be String";
                    return false;
                }
                if (i > 0) json += ',';
                append_json_text(key.to_text(), json);
                json += ':';
                if (!append_json_level(value.get(key), where, depth + 1, json, message)) return false;
            }
            json += '}';
            return true;
        }
        default:
            message = where + " has a value of type " + value.type_name() + ", which JSON does not have";
            return false;
    }
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

// The texts of a list, or of one text, and where each is.
bool read_texts(const char* key, const Value& value, std::vector<std::string>& texts,
                std::vector<const char*>& pointers, std::string& message) {
    if (value.is_text()) {
        texts.push_back(value.to_text());
    } else if (value.is_list()) {
        for (int64_t i = 0, size = value.size(); i < size; i++) {
            Value one = value.at(i);
            if (!one.is_text()) return refuse(message, key + ("[" + std::to_string(i) + "]"), "a String", one);
            texts.push_back(one.to_text());
        }
    } else {
        return refuse(message, key, "an Array of Strings", value);
    }
    for (const std::string& text : texts) {
        if (has_nul(text)) return refuse(message, key, "texts without NUL characters", value);
        pointers.push_back(text.c_str());
    }
    return true;
}

}  // namespace

bool append_json(const Value& value, const std::string& where, std::string& json, std::string& message) {
    return append_json_level(value, where, 0, json, message);
}

bool RequestOptions::read(const nvllm_engine* engine, const Value& dictionary, bool is_chat, std::string& message) {
    nvllm_request_options_init(&options_, sizeof options_);
    nvllm_error error;
    if (nvllm_default_options(engine, &options_, &error) != NVLLM_OK) {
        message = error.message;
        return false;
    }
    Value keys = dictionary.call("keys", {});
    for (int64_t i = 0, size = keys.size(); i < size; i++) {
        Value key = keys.at(i);
        if (!key.is_text()) {
            message = "options has a key of type " + key.type_name() + ", but keys must be String";
            return false;
        }
        if (!set(key.to_text(), dictionary.get(key), is_chat, message)) return false;
    }
    return conclude(is_chat, message);
}

bool RequestOptions::conclude(bool is_chat, std::string& message) {
    bool has_tools = options_.tools != nullptr;
    is_parsed_ = parse_answer_.value_or(has_tools);
    if (is_parsed_ && !keep_special_tokens_.value_or(true)) {
        message = "option keep_special_tokens is false, but must be true or left out where the answer is parsed: the markers of calls are special "
                  "tokens. Set parse_answer to false for the text as it is";
        return false;
    }
    options_.keep_special_tokens = keep_special_tokens_.value_or(is_parsed_) ? 1 : 0;
    if (is_chat && has_tools && !has_tools_of_template_ && options_.tool_choice != NVLLM_TOOL_CHOICE_NONE) {
        bool is_alone = template_options_.size() <= 2;
        template_options_ = "{\"tools\":" + tools_ + (is_alone ? "}" : "," + template_options_.substr(1));
    }
    return true;
}

bool RequestOptions::set(const std::string& key, const Value& value, bool is_chat, std::string& message) {
    for (const Option& option : OPTIONS) {
        if (key == option.name) return set_number(option, value, options_, message);
    }
    if (key == "stop") return set_stop(value, message);
    if (key == "dry_sequence_breakers") return set_breakers(value, message);
    if (key == "stop_tokens") return set_stop_tokens(value, message);
    if (key == "json_schema" || key == "regex" || key == "lark") return set_structure(key, value, message);
    if (key == "tools") return set_tools(value, message);
    if (key == "tool_name") return set_tool_name(value, message);
    if (key == "keep_special_tokens" || key == "parse_answer") {
        if (value.type() != GDEXTENSION_VARIANT_TYPE_BOOL) return refuse(message, key, "a bool", value);
        (key == "parse_answer" ? parse_answer_ : keep_special_tokens_) = value.to_bool();
        return true;
    }
    if (key == "template_options") return set_template_options(value, is_chat, message);
    message = "unknown option " + key + ": known are ";
    for (const Option& option : OPTIONS) message += std::string(option.name) + ", ";
    message += "stop, stop_tokens, dry_sequence_breakers, json_schema, regex, lark, tools, tool_name, keep_special_tokens, parse_answer";
    if (is_chat) message += ", template_options";
    return false;
}

bool RequestOptions::set_tools(const Value& value, std::string& message) {
    const char* wanted = "an Array of Dictionaries, or its JSON as a String";
    Value list = value.is_text() ? godot::parse_json(value.to_text()) : value;
    if (list.type() != GDEXTENSION_VARIANT_TYPE_ARRAY) return refuse(message, "tools", wanted, value);
    for (int64_t i = 0, size = list.size(); i < size; i++) {
        Value tool = list.at(i);
        if (tool.type() != GDEXTENSION_VARIANT_TYPE_DICTIONARY) return refuse(message, "tools[" + std::to_string(i) + "]", "a Dictionary", tool);
    }
    // A text stays as it is, so that its integers do.
    if (value.is_text()) {
        tools_ = value.to_text();
    } else if (!append_json(list, "option tools", tools_, message)) {
        return false;
    }
    if (has_nul(tools_)) return refuse(message, "tools", "a text without NUL characters", value);
    options_.tools = tools_.c_str();
    return true;
}

bool RequestOptions::set_tool_name(const Value& value, std::string& message) {
    if (!value.is_text()) return refuse(message, "tool_name", "a String", value);
    tool_name_ = value.to_text();
    if (has_nul(tool_name_)) return refuse(message, "tool_name", "a text without NUL characters", value);
    options_.tool_name = tool_name_.c_str();
    return true;
}

bool RequestOptions::set_template_options(const Value& value, bool is_chat, std::string& message) {
    if (!is_chat) {
        message = "option template_options is one of generate_chat: generate does not use the chat template";
        return false;
    }
    if (value.type() != GDEXTENSION_VARIANT_TYPE_DICTIONARY) return refuse(message, "template_options", "a Dictionary", value);
    Value tools = Value::of(std::string("tools"));
    has_tools_of_template_ = value.call("has", {&tools}).to_bool();
    return append_json(value, "option template_options", template_options_, message);
}

bool RequestOptions::set_structure(const std::string& key, const Value& value, std::string& message) {
    if (!structure_key_.empty()) {
        message = "options " + structure_key_ + " and " + key + " exclude each other";
        return false;
    }
    structure_key_ = key;
    if (value.is_text()) {
        structure_ = value.to_text();
    } else if (key == "json_schema" && value.type() == GDEXTENSION_VARIANT_TYPE_DICTIONARY) {
        if (!append_json(value, "option json_schema", structure_, message)) return false;
    } else {
        return refuse(message, key, key == "json_schema" ? "a Dictionary or a String" : "a String", value);
    }
    if (has_nul(structure_)) return refuse(message, key, "a text without NUL characters", value);
    options_.structure = structure_.c_str();
    options_.structure_kind = key == "json_schema" ? NVLLM_STRUCTURE_JSON_SCHEMA
                              : key == "regex"     ? NVLLM_STRUCTURE_REGEX
                                                   : NVLLM_STRUCTURE_LARK;
    return true;
}

bool RequestOptions::set_stop(const Value& value, std::string& message) {
    if (!read_texts("stop", value, stop_, stop_pointers_, message)) return false;
    options_.stop = stop_pointers_.data();
    options_.num_stop = stop_pointers_.size();
    return true;
}

bool RequestOptions::set_breakers(const Value& value, std::string& message) {
    if (!read_texts("dry_sequence_breakers", value, breakers_, breaker_pointers_, message)) return false;
    // An empty list is not NULL, which would be the default.
    breaker_pointers_.push_back(nullptr);
    options_.dry_sequence_breakers = breaker_pointers_.data();
    options_.num_dry_sequence_breakers = breakers_.size();
    return true;
}

bool RequestOptions::set_stop_tokens(const Value& value, std::string& message) {
    if (!value.is_list()) return refuse(message, "stop_tokens", "an Array of ints", value);
    for (int64_t i = 0, size = value.size(); i < size; i++) {
        int64_t number = 0;
        Value one = value.at(i);
        if (!whole_number(one, 0, UINT32_MAX, number)) {
            return refuse(message, "stop_tokens[" + std::to_string(i) + "]", "an int from 0 to 4294967295", one);
        }
        stop_tokens_.push_back(static_cast<uint32_t>(number));
    }
    options_.stop_tokens = stop_tokens_.data();
    options_.num_stop_tokens = stop_tokens_.size();
    return true;
}
