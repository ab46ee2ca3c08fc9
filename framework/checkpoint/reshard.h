#pragma once

#include "framework/checkpoint/checkpoint.h"
#include "framework/tensor/weight_part.h"

namespace tessera::checkpoint {

/// How a checkpoint is divided again.
struct Resharding {
  /// The parts of weights that each writer saves, with the same parts of their optimizer state; together every weight
  /// of the model exactly once.
  std::vector<std::vector<WeightPart>> writers;
  std::int64_t true_vocabulary = 0;  ///< rows of the vocabulary that are tokens and must be kept; 0: all there are
  Blobs blobs = {};                  ///< replace those of the checkpoint with the same name
};

/// Writes `from` as <root>/<checkpoint_name(prefix, its iteration)>, divided as `how.writers` says. Elements do not
/// change, except for the padding of the vocabulary if `how` has other numbers of rows: new rows are the mean of the
/// others, their optimizer state is zero; rows that are left out are no tokens. Has one writer's part in memory at a
/// time. Throws ConfigError if the weights of `how` are not those of the checkpoint, in name or shape, or tokens would
/// be lost; DamageError; IoError, and then nothing new is there.
void reshard(const Checkpoint& from, const std::filesystem::path& root, const std::string& prefix,
             const Resharding& how);

}  // namespace tessera::checkpoint
