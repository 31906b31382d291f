// Where is the model that model_path names? On disk, or inside the pack file of an exported project.
#pragma once

#include <nanovllm.h>

#include <string>

#include "godot.hpp"

// Opens an engine on `path`: a path of the system, or one that begins with res:// or user://. The files of a pack file are read into
// `files`, which must live as long as the engine. Returns null with a message if that fails.
nvllm_engine* open_model(const std::string& path, nvllm_engine_config config, godot::Value& files, std::string& message);
