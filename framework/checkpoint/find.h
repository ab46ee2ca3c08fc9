#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "framework/checkpoint/format.h"

namespace tessera::checkpoint {

/// A checkpoint as the names of folders and files show it; nothing was read.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  const CheckpointFormat* format = nullptr;  ///< another program's; null: our own. Owned by the registry
};

/// The checkpoints that `folder` means, newest first: itself when it is one, else those of a run folder, of our own
/// format with any prefix, in `checkpoints` and in the folder itself, and the newest of each of `formats`. Throws
/// ConfigError when there is none.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& folder, const CheckpointFormats& formats);

/// Opens one of those. Throws DamageError, ConfigError, IoError.
std::unique_ptr<OpenedCheckpoint> open_checkpoint(const FoundCheckpoint& found, const options::Mappings& mappings);

}  // namespace tessera::checkpoint
