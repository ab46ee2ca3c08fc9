#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::architecture {

/// Each include below framework/, launch/, tests/ and benchmarks/ of `root` that is part of a cycle of folders: from
/// its folder's point of view the included folder leads back to it, directly or by way of others. A folder and its
/// sub-folder are two folders. As "framework/a/x.h:3 includes framework/b/y.h, whose folder includes framework/a".
std::vector<std::string> includes_in_a_cycle_of_folders(const std::filesystem::path& root);

/// Each include of launch/, tests/ and benchmarks/ that names no file by its path from the root, or one of a folder
/// that may not be included from there: programs beside the framework do not include tests, nor each other. launch/
/// includes external libraries of its own only.
std::vector<std::string> forbidden_includes_beside_the_framework(const std::filesystem::path& root);

}  // namespace tessera::architecture
