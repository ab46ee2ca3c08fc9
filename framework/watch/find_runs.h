#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::watch {

/// The run folders (with metrics.jsonl, events.jsonl or run.json) in `folder` and below it, the one that changed last
/// first, at most `most`. Looks 4 levels deep and at 20 000 names at most; follows no links to folders, and looks into
/// no run folder. Folders that cannot be read are left out.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder, std::size_t most);

/// The last `most` lines of a text file, read from its last 16 KiB; none if it cannot be read.
std::vector<std::string> last_lines(const std::filesystem::path& file, std::size_t most);

}  // namespace tessera::watch
