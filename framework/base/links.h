#pragma once

#include <filesystem>

namespace tessera {

/// Throws ConfigError if a symbolic link on the way from `folder` down to `path` leads out of `folder` or nowhere, so
/// that writing to `path` would write elsewhere. `folder` itself may be reached through links; it need not exist, nor
/// need `path`, which begins with `folder`.
void must_stay_within(const std::filesystem::path& folder, const std::filesystem::path& path);

/// Whether `path`, followed through all links, is `folder` or lies below it. Neither needs to exist.
bool lies_within(const std::filesystem::path& folder, const std::filesystem::path& path);

}  // namespace tessera
