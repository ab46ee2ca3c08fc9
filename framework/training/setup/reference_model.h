#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/model/model.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/state/frozen_weights.h"

namespace tessera::training {

struct TrainingSetup;

/// Which checkpoint is the reference model.
struct ReferencePlace {
  std::filesystem::path folder;
  std::optional<std::int64_t> iteration = {};  ///< in `folder`, which can be a run folder; none: the newest
  std::optional<std::int64_t> ckpt_step = {};  ///< in `folder`, as load_checkpoint takes it; none: the newest
  /// The reference is what the training began with: of a checkpoint with adapters, the model without them.
  bool began_with = false;
};

/// The reference model of a run with preferences: chunks like those that this rank trains, with frozen weights of a
/// checkpoint. Nothing of it is saved.
class ReferenceModel {
 public:
  /// All parameters of `chunks` are frozen (training::freeze).
  ReferenceModel(std::vector<std::unique_ptr<model::Model>> chunks, const parallel::ProcessGroups& processes,
                 ReferencePlace place);

  /// Maps the weights that a file has as this rank needs them, reads the others. Returns notes. Throws ConfigError if
  /// there is no such checkpoint, if it has adapters and is not what the training began with, or if its weights do not
  /// fit, in particular if its vocabulary is another one.
  std::vector<std::string> load(const TrainingSetup& setup);
  const std::vector<const model::Model*>& chunks() const { return views_; }
  /// Throws IoError if a page of a mapped file could not be read.
  void require_intact() const { frozen_.require_intact(); }
  /// Bytes of mapped parameters where they lie in files.
  std::int64_t in_files() const { return frozen_.mapped().in_files; }
  /// See FrozenWeights::digest.
  std::uint64_t digest(kernels::Threads& threads) { return frozen_.digest(threads); }

 private:
  std::vector<std::unique_ptr<model::Model>> chunks_;
  std::vector<const model::Model*> views_;
  FrozenWeights frozen_;
  ReferencePlace place_;
};

}  // namespace tessera::training
