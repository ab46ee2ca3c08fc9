#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "framework/interop/megatron/megatron.h"

namespace tessera {

/// What a test saves for Megatron-LM as <root>/iter_<progress.iteration>.
inline ForeignSave megatron_save(const std::filesystem::path& root, const Progress& progress, const Value& recipe,
                                 DType type, const Mappings& mappings, const CheckpointLayout& layout = {}) {
  return {.root = root,
          .iteration = progress.iteration,
          .progress = progress,
          .recipe = recipe,
          .type = type,
          .layout = layout,
          .mappings = mappings};
}

/// `tensors` cover every tensor. Returns the folder of the iteration.
inline std::filesystem::path save_megatron(const std::filesystem::path& root, const Progress& progress,
                                           std::span<const TensorRange> tensors, const Value& recipe, DType type,
                                           const Mappings& mappings, const CheckpointLayout& layout = {}) {
  return save_all_ranks(MegatronFormat(), megatron_save(root, progress, recipe, type, mappings, layout), tensors);
}

}  // namespace tessera
