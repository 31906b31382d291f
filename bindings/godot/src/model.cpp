#include "model.hpp"

#include <algorithm>
#include <set>
#include <vector>

using godot::Value;

namespace {

bool begins_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// The hashes are those of the signatures in extension_api.json of Godot 4.
bool file_exists(const Value& path, Value& result) { return godot::call_static("FileAccess", "file_exists", 2323990056, {&path}, result); }
bool folder_exists(const Value& path, Value& result) {
    return godot::call_static("DirAccess", "dir_exists_absolute", 2323990056, {&path}, result);
}

bool is_on_disk(const std::string& path) {
    Value at = Value::of(path), result;
    if (!at.call("is_absolute_path", {}).to_bool()) return false;
    return (folder_exists(at, result) && result.to_bool()) || (file_exists(at, result) && result.to_bool());
}

// The files of text that are read beside a GGUF file too, and the folder of text that a model may have.
const std::set<std::string> TEXT_FILES = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                          "generation_config.json"};
const std::string TEMPLATES = "additional_chat_templates/";

// Of the ending of a part of a split GGUF file, "-00001-of-00003.gguf": all of it, and what is the same in all parts.
const size_t PART_ENDING = 20, COUNT_ENDING = 14;

struct PackedModel {
    // Ends with a slash.
    std::string folder;
    // The GGUF file of the model; empty if it is the folder.
    std::string file;
    // Relative to the folder.
    std::vector<std::string> names;
};

// Whether two files are parts of one split file.
bool are_parts(const std::string& one, const std::string& other) {
    size_t size = one.size();
    return size > PART_ENDING && other.size() == size && one.compare(size - COUNT_ENDING, 4, "-of-") == 0 &&
           one.compare(0, size - PART_ENDING, other, 0, size - PART_ENDING) == 0 &&
           one.compare(size - COUNT_ENDING, COUNT_ENDING, other, size - COUNT_ENDING, COUNT_ENDING) == 0;
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The GGUF file in a folder, or the first part of it; empty if there is none, or another one.
std::string only_gguf(const std::vector<std::string>& names) {
    std::string only;
    for (const std::string& name : names) {
        if (!ends_with(name, ".gguf")) continue;
        if (!only.empty() && !are_parts(only, name)) return "";
        if (only.empty() || name < only) only = name;
    }
    return only;
}

// The names of the files in a folder; none if there is no such folder.
bool list(const std::string& folder, std::vector<std::string>& names) {
    Value at = Value::of(folder), result;
    if (!folder_exists(at, result)) return false;
    // Godot prints an error for a folder that does not exist.
    if (!result.to_bool()) return true;
    if (!godot::call_static("DirAccess", "get_files_at", 3538744774, {&at}, result)) return false;
    for (int64_t i = 0, size = result.size(); i < size; i++) names.push_back(result.at(i).to_text());
    return true;
}

// Which files of the pack file are the model at `path`? Only those that the library reads on disk: others would take memory.
bool find_model(const std::string& path, PackedModel& model) {
    Value is_file;
    std::vector<std::string> beside, templates;
    if (!file_exists(Value::of(path), is_file)) return false;
    model.folder = path.back() == '/' ? path : path + "/";
    if (is_file.to_bool()) {
        model.folder = path.substr(0, path.rfind('/') + 1);
        model.file = path.substr(model.folder.size());
        model.names.push_back(model.file);
    }
    if (!list(model.folder, beside) || !list(model.folder + TEMPLATES, templates)) return false;
    if (model.file.empty() && std::find(beside.begin(), beside.end(), "config.json") == beside.end()) {
        model.file = only_gguf(beside);
        if (!model.file.empty()) model.names.push_back(model.file);
    }
    for (const std::string& name : beside) {
        bool belongs = model.file.empty() ? !ends_with(name, ".gguf") : TEXT_FILES.count(name) == 1 || are_parts(model.file, name);
        if (belongs && name != model.file) model.names.push_back(name);
    }
    for (const std::string& name : templates) {
        if (ends_with(name, ".jinja")) model.names.push_back(TEMPLATES + name);
    }
    return true;
}

// Reads the files of a model in a pack file: one PackedByteArray for each of its names.
bool read_files(const PackedModel& model, Value& files) {
    for (const std::string& name : model.names) {
        Value from = Value::of(model.folder + name), bytes;
        if (!godot::call_static("FileAccess", "get_file_as_bytes", 659035735, {&from}, bytes)) return false;
        files.append(bytes);
    }
    return true;
}

}  // namespace

nvllm_engine* open_model(const std::string& path, nvllm_engine_config config, Value& files, std::string& message) {
    nvllm_engine* engine = nullptr;
    nvllm_error error;
    std::string on_disk = path;
    bool is_resource = begins_with(path, "res://");
    if (is_resource || begins_with(path, "user://")) {
        Value settings = Value::of_object(godot::api.global_get_singleton(godot::Name("ProjectSettings").get()));
        Value project_path = Value::of(path);
        on_disk = settings.call("globalize_path", {&project_path}).to_text();
    }
    // An exported project has no folder of its own, and the path of a resource becomes a relative one.
    if (is_resource && !is_on_disk(on_disk)) {
        files = Value::array();
        PackedModel model;
        if (!find_model(path, model) || !read_files(model, files)) {
            message = "this version of Godot cannot read a model from a pack file: put it beside the program, or under user://";
            return nullptr;
        }
        if (model.names.empty()) {
            message = "model_path is " + path + ", but the project has no such file, nor a folder with files. An exported project has "
                      "those that the export filter of its preset includes";
            return nullptr;
        }
        std::vector<nvllm_model_file> given;
        for (size_t i = 0; i < model.names.size(); i++) {
            Value bytes = files.at(static_cast<int64_t>(i));
            nvllm_model_file file;
            nvllm_model_file_init(&file, sizeof file);
            file.name = model.names[i].c_str();
            file.data = bytes.bytes();
            file.size = static_cast<uint64_t>(bytes.size());
            // A file without bytes, such as .gdignore, is none of a model.
            if (file.data) given.push_back(file);
        }
        config.model_path = model.file.empty() ? nullptr : model.file.c_str();
        nvllm_status status = nvllm_engine_new_from(&config, given.data(), given.size(), &engine, &error);
        if (status != NVLLM_OK) message = error.message;
        return engine;
    }
    config.model_path = on_disk.c_str();
    if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) message = error.message;
    return engine;
}
