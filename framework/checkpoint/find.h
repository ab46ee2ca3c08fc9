#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "framework/checkpoint/format.h"

namespace tessera::checkpoint {

/// A checkpoint found by the names of folders and files; its content was not read.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  /// Another program's format; null: our own. Owned by the CheckpointFormats.
  const CheckpointFormat* format = nullptr;
};

/// Finds the checkpoints that `folder` denotes, newest first: `folder` itself if it is a checkpoint; else those of a
/// run folder: of our own format with any prefix, in `checkpoints` and in the folder itself, and the newest of each of
/// `formats`. Throws ConfigError if there is none, or `folder` does not exist.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& folder, const CheckpointFormats& formats);

/// Opens a checkpoint that find_checkpoints returned. Throws DamageError, ConfigError, IoError.
std::unique_ptr<OpenedCheckpoint> open_checkpoint(const FoundCheckpoint& found, const options::Mappings& mappings);

}  // namespace tessera::checkpoint
