#pragma once

#include <string>

#include "framework/base/files.h"

namespace tessera::data {

/// Files that a user names. `what` says in the message what the file was wanted as: "vocabulary".
/// All throw ConfigError when the file is missing or cannot be read.
std::string read_input(const std::string& file, const std::string& what);
MappedFile map_input(const std::string& file, const std::string& what);
File open_input(const std::string& file, const std::string& what);

}  // namespace tessera::data
