#pragma once

#include <filesystem>
#include <optional>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The newest checkpoint under `root`, that is not damaged; nothing if there is none.
inline std::optional<Checkpoint> newest_good(const std::filesystem::path& root, const std::string& prefix = "") {
  for (const auto& [folder, iteration] : list_checkpoints(root, prefix)) {
    try {
      auto checkpoint = Checkpoint::open(folder);
      checkpoint.verify();
      return checkpoint;
    } catch (const DamageError&) {
    }
  }
  return std::nullopt;
}

}  // namespace tessera::checkpoint
