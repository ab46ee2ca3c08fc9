#include "framework/base/links.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

/// Absolute, without links and without a slash at the end.
fs::path real_place(const fs::path& path) {
  const auto place = fs::weakly_canonical(fs::absolute(path)).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

}  // namespace

bool lies_within(const fs::path& folder, const fs::path& path) {
  const auto outer = real_place(folder), inner = real_place(path);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void must_stay_within(const fs::path& folder, const fs::path& path) {
  fs::path at = folder;
  for (const auto& name : path.lexically_relative(folder)) {
    at /= name;
    std::error_code absent;
    if (!fs::is_symlink(fs::symlink_status(at, absent))) continue;
    if (fs::exists(at, absent) && lies_within(folder, at)) continue;
    throw ConfigError(text(at.string(), ": is a symbolic link to ", fs::read_symlink(at, absent).string(),
                           ", which leads out of ", folder.string(),
                           "; nothing is written through such a link. Replace it by a file or folder, or let ",
                           folder.string(), " itself be a link"));
  }
}

}  // namespace tessera
