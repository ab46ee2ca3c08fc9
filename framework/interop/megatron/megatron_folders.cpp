#include "framework/interop/megatron/megatron_folders.h"

#include <string>
#include <system_error>
#include <utility>

#include "framework/base/files.h"
#include "framework/checkpoint/find.h"

namespace tessera::megatron {

namespace fs = std::filesystem;

std::vector<checkpoint::FoundCheckpoint> iterations_in(const fs::path& root, const checkpoint::CheckpointFormat& format,
                                                       const JudgeFolder& judge) {
  auto folders = checkpoint::list_checkpoints(root, "");
  if (fs::is_directory(root / release_folder)) folders.push_back({root / release_folder, 0});
  std::vector<checkpoint::FoundCheckpoint> found;
  for (const auto& [folder, iteration] : folders)
    if (auto unfinished = judge(folder)) found.push_back({folder, iteration, &format, *std::move(unfinished)});
  return found;
}

std::optional<fs::path> chosen_iteration(const fs::path& root, std::vector<checkpoint::FoundCheckpoint> all) {
  if (all.empty()) return std::nullopt;
  checkpoint::sort_newest_first(all, root);
  return all.front().folder;
}

fs::path unfinished_folder(const checkpoint::ForeignSave& save) {
  return save.root / (checkpoint::checkpoint_name("", save.iteration) + "_tmp");
}

void begin_folder(const checkpoint::ForeignSave& save) {
  delete_all(unfinished_folder(save));
  make_folder(unfinished_folder(save));
}

void abandon_folder(const checkpoint::ForeignSave& save) noexcept {
  std::error_code ignored;
  fs::remove_all(unfinished_folder(save), ignored);
}

fs::path publish(const checkpoint::ForeignSave& save) {
  const auto folder = save.root / checkpoint::checkpoint_name("", save.iteration);
  sync_folder(unfinished_folder(save));
  rename_or_exchange(unfinished_folder(save), folder);
  sync_folder(save.root);
  abandon_folder(save);  // what an exchange left under the old name
  try {
    write_file_atomic(save.root / checkpoint::tracker_name(""), std::to_string(save.iteration));
  } catch (const IoError& error) {
    throw IoError(text(folder.string(), " is complete, but ", error.what(),
                       "; until a save writes it, programs load what it names"));
  }
  return folder;
}

}  // namespace tessera::megatron
