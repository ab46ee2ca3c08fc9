#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::images {

/// The path of the file that `address` names, the path itself or "file://" and the path. Throws ConfigError if it is
/// empty, an address of another kind ("https://..."), or not a path but a picture ("data:...", base64).
std::string path_of(std::string_view address);

/// `path` for an error message: as base/visible_text.h shows it; one of more than 250 bytes is shortened.
std::string shown_path(const std::filesystem::path& path);

}  // namespace tessera::images
