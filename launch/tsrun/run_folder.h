#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

/// Where logs go when nobody says: log/ in the run folder when the program line is `tessera train RECIPE ...`, which is
/// asked for it; else log/ here. Throws ConfigError with tessera's own words when it cannot read the recipe.
std::filesystem::path default_log_folder(const std::vector<std::string>& program);

/// Whether the line trains, so that the same line goes on where it ended.
bool trains(const std::vector<std::string>& program);

}  // namespace tessera
