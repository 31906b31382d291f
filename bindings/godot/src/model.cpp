#include "model.hpp"

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

// The files of a model in a pack file: path and PackedByteArray alternate in `files`.
bool read_files(const std::string& path, Value& files, std::string& message) {
    std::vector<std::string> paths;
    Value at = Value::of(path), is_there, names, bytes;
    bool callable = file_exists(at, is_there);
    if (callable && is_there.to_bool()) {
        paths.push_back(path);
    } else if (callable) {
        callable = folder_exists(at, is_there);
        // Godot prints an error for a folder that there is not.
        if (callable && is_there.to_bool()) callable = godot::call_static("DirAccess", "get_files_at", 3538744774, {&at}, names);
        for (int64_t i = 0, size = names.is_list() ? names.size() : 0; i < size; i++) {
            paths.push_back(path + (path.back() == '/' ? "" : "/") + names.at(i).to_text());
        }
    }
    for (const std::string& one : paths) {
        Value from = Value::of(one);
        callable = callable && godot::call_static("FileAccess", "get_file_as_bytes", 659035735, {&from}, bytes);
        if (!callable) break;
        files.append(from);
        files.append(bytes);
    }
    if (!callable) message = "this version of Godot cannot read a model from a pack file: put it beside the program, or under user://";
    return callable;
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
        if (!read_files(path, files, message)) return nullptr;
        if (files.size() == 0) {
            message = "model_path is " + path + ", but the project has no such file, nor a folder with files. An exported project has "
                      "those that the export filter of its preset includes";
            return nullptr;
        }
        std::vector<std::string> names;
        std::vector<nvllm_model_file> given;
        for (int64_t i = 0; i < files.size(); i += 2) {
            std::string name = files.at(i).to_text();
            names.push_back(name.substr(name.rfind('/') + 1));
        }
        for (size_t i = 0; i < names.size(); i++) {
            Value bytes = files.at(static_cast<int64_t>(2 * i + 1));
            nvllm_model_file file;
            nvllm_model_file_init(&file, sizeof file);
            file.name = names[i].c_str();
            file.data = bytes.bytes();
            file.size = static_cast<uint64_t>(bytes.size());
            // A file without bytes, such as .gdignore, is none of a model.
            if (file.data) given.push_back(file);
        }
        config.model_path = given.size() == 1 ? given[0].name : nullptr;
        nvllm_status status = nvllm_engine_new_from(&config, given.data(), given.size(), &engine, &error);
        if (status != NVLLM_OK) message = error.message;
        return engine;
    }
    config.model_path = on_disk.c_str();
    if (nvllm_engine_new(&config, &engine, &error) != NVLLM_OK) message = error.message;
    return engine;
}
