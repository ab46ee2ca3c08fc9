#pragma once

#include "framework/checkpoint/checkpoint.h"
#include "framework/tensor/weight_part.h"

namespace tessera::checkpoint {

/// The new division of a checkpoint.
struct Resharding {
  /// The weight parts that each writer saves, together with the same parts of their optimizer state. All writers
  /// together save every weight of the model exactly once.
  std::vector<std::vector<WeightPart>> writers;
  std::int64_t true_vocabulary = 0;  ///< rows of the vocabulary that are tokens and must be kept; 0: all rows
  Blobs blobs = {};                  ///< replace blobs of the checkpoint that have the same name
};

/// Writes `from` as <root>/<checkpoint_name(prefix, its iteration)>, divided as `how.writers` says. Elements do not
/// change, except for the padding of the vocabulary if `how` has another number of rows: added rows are the mean of the
/// existing rows, and zero in the optimizer state; only padding rows are removed. Holds the part of one writer of
/// one tensor in memory at a time. Throws ConfigError if the weights of `how` differ from those of the checkpoint in
/// name or shape, or if rows of tokens would be removed; DamageError; IoError. After an error, no new checkpoint
/// exists.
void reshard(const Checkpoint& from, const std::filesystem::path& root, const std::string& prefix,
             const Resharding& how);

}  // namespace tessera::checkpoint
