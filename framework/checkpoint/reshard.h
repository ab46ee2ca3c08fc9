#pragma once

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"

namespace tessera {

/// How a checkpoint is parted anew.
struct Resharding {
  CheckpointLayout layout;           ///< a writer for each tensor rank of each stage; layers as the model has
  bool gated = false;                ///< see CheckpointCut
  std::int64_t vocabulary = 0;       ///< rows of the vocabulary; 0: as many as there are
  std::int64_t true_vocabulary = 0;  ///< of which so many are tokens and may not be lost; 0: all there are
  Blobs blobs = {};                  ///< laid over those of the checkpoint
};

/// Write `from` as <root>/<checkpoint_name(prefix, its iteration)>, parted as ranks of the layout would save it.
/// Elements do not change, but for padding of the vocabulary: rows that are new are the mean of the others, their
/// optimizer state zero; rows that go are no tokens. Holds one writer's part in memory at a time. Throws ConfigError
/// for a layout that does not fit; DamageError; IoError: then nothing new is there.
void reshard(const Checkpoint& from, const std::filesystem::path& root, const std::string& prefix,
             const Resharding& how, const Value& weights_table);

}  // namespace tessera
