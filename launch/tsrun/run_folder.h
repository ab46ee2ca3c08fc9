#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::tsrun {

/// Whether it is a command line `tessera train RECIPE ...`.
bool trains(const std::vector<std::string>& program);
/// The run folder of the command line `tessera train RECIPE ...`, found by running the program with --print-output-dir;
/// empty for other programs. Throws ConfigError with tessera's message if it cannot read the recipe.
std::filesystem::path run_folder_of(const std::vector<std::string>& program);

/// Default folder for logs. If the command line is `tessera train RECIPE ...`: log/ in its run folder; else ./log.
/// Throws ConfigError as run_folder_of, and if a symbolic link leads out of the run folder.
std::filesystem::path default_log_folder(const std::vector<std::string>& program);

}  // namespace tessera::tsrun
