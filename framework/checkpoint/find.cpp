#include "framework/checkpoint/find.h"

#include <algorithm>
#include <optional>

#include "framework/base/files.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The checkpoint of `all` that the tracker file names, if it is a whole one of another program.
const FoundCheckpoint* tracked_of(const fs::path& root, const std::vector<FoundCheckpoint>& all) {
  const auto name = tracked_name(root);
  if (!name) return nullptr;
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) {
    return one.format != nullptr && one.unfinished.empty() && one.folder == root / *name;
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::optional<FoundCheckpoint> found_itself(const fs::path& folder, const CheckpointFormats& formats) {
  const auto named = iteration_in_name(fs::absolute(folder));
  const auto at = [&](const CheckpointFormat* format) { return FoundCheckpoint{folder, named.value_or(0), format}; };
  if (fs::exists(folder / "manifest.json")) return at(nullptr);
  if (const auto* format = formats.of(folder))
    return format->find(folder) == folder ? std::optional(at(format)) : std::nullopt;
  // It has the name of a checkpoint but no manifest: it is listed, so that opening it reports the damage.
  return named && fs::is_directory(folder) ? std::optional(at(nullptr)) : std::nullopt;
}

void sort_newest_first(std::vector<FoundCheckpoint>& all, const fs::path& root) {
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
  const auto* tracked = root.empty() ? nullptr : tracked_of(root, all);
  const auto newest = tracked == nullptr ? 0 : tracked->iteration;
  const bool by_tracker = tracked != nullptr;
  const auto rank = [&](const FoundCheckpoint& one) {
    if (!one.unfinished.empty()) return 2;
    return by_tracker && one.format != nullptr && one.iteration > newest ? 1 : 0;
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

std::vector<FoundCheckpoint> find_any(const fs::path& folder, const CheckpointFormats& formats) {
  if (const auto found = found_itself(folder, formats)) return {*found};
  std::vector<FoundCheckpoint> all;
  for (const auto& root : {folder / "checkpoints", folder})
    for (const auto& entry : list_folder(root))
      if (const auto found = found_itself(entry, formats);
          found && found->format == nullptr && iteration_in_name(entry))
        all.push_back(*found);
  for (auto& found : formats.list(folder)) all.push_back(std::move(found));
  // Stable: of the same iteration our own format comes first.
  sort_newest_first(all, folder);
  return all;
}

bool has_checkpoint(const fs::path& folder, const CheckpointFormats& formats) {
  return formats.of(folder) != nullptr || !find_any(folder, formats).empty();
}

std::vector<FoundCheckpoint> find_checkpoints(const fs::path& folder, const CheckpointFormats& formats) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  auto all = find_any(folder, formats);
  if (all.empty())
    throw ConfigError(text(folder.string(),
                           ": holds no checkpoint; give a checkpoint such as output/checkpoints/iter_0000100, or a run "
                           "folder that `tessera train` made"));
  return all;
}

std::string about_tracker(const fs::path& root, const std::vector<FoundCheckpoint>& all, const FoundCheckpoint& taken) {
  if (taken.format == nullptr || taken.folder.parent_path() != root) return "";
  const auto file = root / tracker_name("");
  const auto is_taken = text("; ", taken.folder.filename().string(), " is taken");
  if (!fs::exists(file)) return text(file.string(), " is missing", is_taken);
  const auto name = tracked_name(root);
  if (!name) return text(file.string(), " names no iteration", is_taken);
  const auto named = text(file.string(), " names ", *name);
  if (taken.folder.filename() != *name)
    return text(named, tracked_of(root, all) == nullptr ? ", which is no whole checkpoint there" : "", is_taken);
  const auto newer = std::find_if(all.begin(), all.end(), [&](const auto& one) {
    return one.format != nullptr && one.unfinished.empty() && one.iteration > taken.iteration;
  });
  return newer == all.end() ? "" : text(named, is_taken, ", although ", newer->folder.filename().string(), " is newer");
}

std::string run_of(const fs::path& folder) {
  try {
    return read_progress(read_file(folder / "blobs" / progress_blob), progress_blob).run;
  } catch (const Error&) {
    return "";
  }
}

std::unique_ptr<OpenedCheckpoint> open_checkpoint(const FoundCheckpoint& found, const options::Mappings& mappings) {
  if (found.format != nullptr) return found.format->open(found.folder, mappings);
  return std::make_unique<NativeCheckpoint>(Checkpoint::open(found.folder));
}

}  // namespace tessera::checkpoint
