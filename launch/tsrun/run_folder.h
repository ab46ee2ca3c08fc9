#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::tsrun {

/// Where logs go when nobody says: log/ in the run folder when the program line is `tessera train RECIPE ...`, which is
/// asked for it; else log/ here. Throws ConfigError with tessera's own words when it cannot read the recipe, and when a
/// link there leads out of the run folder.
std::filesystem::path default_log_folder(const std::vector<std::string>& program);

}  // namespace tessera::tsrun
