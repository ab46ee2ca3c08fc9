#include "framework/checkpoint/find.h"

#include <algorithm>
#include <optional>

#include "framework/base/files.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The iteration in the name of a folder, with any prefix.
std::optional<std::int64_t> iteration_in_name(const fs::path& folder) {
  const auto name = folder.filename().string();
  const auto at = name.rfind("iter_");
  if (at == std::string::npos || !fs::is_directory(folder)) return std::nullopt;
  const auto digits = name.substr(at + 5);
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const auto iteration = std::stoll(digits);
  return checkpoint_name(name.substr(0, at), iteration) == name ? std::optional<std::int64_t>(iteration) : std::nullopt;
}

/// The folder itself if it is a checkpoint, also a damaged one.
std::optional<FoundCheckpoint> itself(const fs::path& folder, const CheckpointFormats& formats) {
  const auto iteration = iteration_in_name(fs::absolute(folder));
  if (fs::exists(folder / "manifest.json")) return FoundCheckpoint{folder, iteration.value_or(0)};
  if (const auto* format = formats.of(folder))
    return format->find(folder) == folder ? std::optional(FoundCheckpoint{folder, iteration.value_or(0), format})
                                          : std::nullopt;
  // It has the name of a checkpoint but no manifest: it is listed, so that opening it reports the damage.
  if (iteration) return FoundCheckpoint{folder, *iteration};
  return std::nullopt;
}

}  // namespace

std::vector<FoundCheckpoint> find_checkpoints(const fs::path& folder, const CheckpointFormats& formats) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  if (const auto found = itself(folder, formats)) return {*found};
  std::vector<FoundCheckpoint> all;
  for (const auto& root : {folder / "checkpoints", folder})
    for (const auto& entry : list_folder(root))
      if (const auto found = itself(entry, formats); found && found->format == nullptr && iteration_in_name(entry))
        all.push_back(*found);
  for (const auto& format : formats.all())
    if (const auto newest = format->find(folder))
      all.push_back({*newest, iteration_in_name(*newest).value_or(0), format.get()});
  if (all.empty())
    throw ConfigError(text(folder.string(),
                           ": holds no checkpoint; give a checkpoint such as output/checkpoints/iter_0000100, or a run "
                           "folder that `tessera train` made"));
  // Stable: of the same iteration our own format comes first.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
  return all;
}

std::unique_ptr<OpenedCheckpoint> open_checkpoint(const FoundCheckpoint& found, const options::Mappings& mappings) {
  if (found.format != nullptr) return found.format->open(found.folder, mappings);
  return std::make_unique<NativeCheckpoint>(Checkpoint::open(found.folder));
}

}  // namespace tessera::checkpoint
