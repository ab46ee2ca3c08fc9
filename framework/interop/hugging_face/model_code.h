#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

// Python code beside a model, which `auto_map` of config.json or tokenizer_config.json names. It is copied, never run.

namespace tessera::hugging_face {

/// The names of the Python files in `folder`, "modeling_x.py", with the classes that `auto_map` names, and of those
/// that these files import from beside them.
std::vector<std::string> code_files(const std::filesystem::path& folder);

/// Removes from `auto_map` of the two files, if `files` has them, the classes whose Python file is not in `files`:
/// Transformers could not load them. Returns notes.
std::vector<std::string> drop_absent_code(checkpoint::Blobs& files);

}  // namespace tessera::hugging_face
