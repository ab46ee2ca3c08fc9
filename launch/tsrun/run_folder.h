#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::tsrun {

/// Default folder for logs. If the command line is `tessera train RECIPE ...`: log/ in its run folder, found by running
/// the program with --print-output-dir; else ./log. Throws ConfigError with tessera's message if it cannot read the
/// recipe, and if a symbolic link leads out of the run folder.
std::filesystem::path default_log_folder(const std::vector<std::string>& program);

}  // namespace tessera::tsrun
