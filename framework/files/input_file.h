#pragma once

#include <string>

#include "framework/base/files.h"

namespace tessera::files {

/// Opens or reads files that a user names. `what` names the purpose of the file in messages: "vocabulary". All
/// functions throw ConfigError if the file is missing or cannot be read.
std::string read_input(const std::string& file, const std::string& what);
MappedFile map_input(const std::string& file, const std::string& what);
File open_input(const std::string& file, const std::string& what);

}  // namespace tessera::files
