#include "framework/training/saving/after_loading.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/layout.h"
#include "framework/training/saving/run_checkpoints.h"

namespace tessera::training {

void keep_origin(const checkpoint::OpenedCheckpoint& given, const TrainingOptions& options, ModelState& state) {
  const bool is_own = std::filesystem::exists(options.output_dir) && is_of_run_folder(options, given.folder());
  if (!is_own && !checkpoint::base_in(given.blobs()))
    state.frozen().came_from(std::filesystem::absolute(given.folder()));
}

void clear_state_of_frozen(const TrainedNames& names, ModelState& state) {
  if (names.all()) return;
  for (const auto& range : state.optimizer_ranges()) {
    const auto bytes = range.tensor.raw();
    if (bytes.empty() || range.offsets.empty()) continue;
    const auto begin = range.offsets[0], end = begin + range.tensor.shape()[0];
    const auto of_row = bytes.size() / static_cast<std::size_t>(end - begin);
    for (const auto& rows : names.frozen_rows(checkpoint::weight_of(range.name))) {
      const auto first = std::clamp(rows.first, begin, end), last = std::clamp(rows.first + rows.count, begin, end);
      std::ranges::fill(bytes.subspan(static_cast<std::size_t>(first - begin) * of_row,
                                      static_cast<std::size_t>(last - first) * of_row),
                        std::byte{0});
    }
  }
}

void forget_what_was_read(ModelState& state) {
  state.frozen().unmap();
  for (const auto& range : state.optimizer_ranges()) std::ranges::fill(range.tensor.raw(), std::byte{0});
}

}  // namespace tessera::training
