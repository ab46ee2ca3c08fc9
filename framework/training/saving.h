#pragma once

#include <filesystem>
#include <memory>

#include "framework/checkpoint/progress.h"
#include "framework/training/model_state.h"
#include "framework/training/save_job.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// Saves a checkpoint in the run's format and deletes old checkpoints of this run (`progress.run`). If a checkpoint of
/// another run has the same name, it is renamed. Collective. Throws IoError on all ranks if writing fails on one; the
/// last good checkpoint is kept.
void save(const TrainingSetup& setup, ModelState& state, const checkpoint::Progress& progress);

/// Begins to save `snapshot` of this rank as a checkpoint in our own format, as save() does. `setup` must outlive the
/// job. Collective. Throws as the constructor of SaveJob.
std::unique_ptr<SaveJob> begin_save(const TrainingSetup& setup,
                                    std::shared_ptr<const checkpoint::StateSnapshot> snapshot,
                                    const checkpoint::Progress& progress);

/// Saves the weights of all ranks of `world` as one checkpoint <root>/iter_0000005 (for `iteration` 5), which every
/// parallel layout can load, and returns its folder. Collective. Throws IoError on all ranks if writing fails on one;
/// earlier checkpoints are kept.
std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs = {});

}  // namespace tessera::training
