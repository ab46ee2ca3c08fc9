#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/cli/command.h"

namespace tessera::cli {

/// What `tessera checkpoint list` says about one folder.
struct ListedCheckpoint {
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  std::string format = {};  ///< empty: not known
  std::string state = {};   ///< whole, unfinished, damaged, set aside
  std::string reason = {};  ///< why it is not whole
  std::string run = {};     ///< id of the run that saved it; empty: not known
  std::uint64_t bytes = 0;
  double age = 0;  ///< seconds since its newest file was written
};
/// The checkpoints in `folder`, a run folder or another, the newest first. Throws ConfigError if it is no folder.
std::vector<ListedCheckpoint> checkpoints_in(const std::filesystem::path& folder, const recipe::Registries& registries);

/// Adds `tessera checkpoint list` to `group`, the command `tessera checkpoint`.
void add_checkpoint_list_command(Command& group, CommandContext& context);

/// "1.43 MB"
std::string size_text(std::uint64_t bytes);

}  // namespace tessera::cli
