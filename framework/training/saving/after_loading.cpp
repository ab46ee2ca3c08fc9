#include "framework/training/saving/after_loading.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "framework/checkpoint/frozen_base.h"
#include "framework/training/saving/run_checkpoints.h"

namespace tessera::training {

void keep_origin(const checkpoint::OpenedCheckpoint& given, const TrainingOptions& options, ModelState& state) {
  const bool is_own = std::filesystem::exists(options.output_dir) && is_of_run_folder(options, given.folder());
  if (!is_own && !checkpoint::base_in(given.blobs()))
    state.frozen().came_from(std::filesystem::absolute(given.folder()));
}

void forget_what_was_read(ModelState& state) {
  state.frozen().unmap();
  for (const auto& range : state.optimizer_ranges()) std::ranges::fill(range.tensor.raw(), std::byte{0});
}

}  // namespace tessera::training
