#pragma once

#include <filesystem>

namespace tessera {

/// Throws ConfigError if a symbolic link among the components of `path` below `folder` is broken or leads out of
/// `folder`, so that writing to `path` would write elsewhere. `path` begins with `folder`. `folder` itself may be
/// reached through links; neither of the two needs to exist.
void must_stay_within(const std::filesystem::path& folder, const std::filesystem::path& path);

/// Whether `path`, with all symbolic links resolved, is `folder` or lies below it. Neither needs to exist.
bool lies_within(const std::filesystem::path& folder, const std::filesystem::path& path);

}  // namespace tessera
