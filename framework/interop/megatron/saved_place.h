#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tessera {

/// A checkpoint as its folder's name and files tell of it; nothing in it was read.
struct SavedPlace {
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  bool megatron = false;  ///< Megatron-LM's --ckpt-format torch; else our own format
};

/// The checkpoints that `folder` means, newest first: itself when it is one, else those of a run folder, of either
/// format and any prefix: in `checkpoints`, in the folder itself, and of Megatron-LM's the iteration that its tracker
/// file names. Throws ConfigError when there is none.
std::vector<SavedPlace> saved_places(const std::filesystem::path& folder);

}  // namespace tessera
