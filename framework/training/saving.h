#pragma once

#include <filesystem>

#include "framework/checkpoint/progress.h"
#include "framework/training/model_state.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// Save everything, in the run's format, and prune old checkpoints of this run, `progress.run`; a checkpoint of another
/// run that has the name is renamed. Collective. Throws IoError when the disk refuses; the last good checkpoint stays.
void save(const TrainingSetup& setup, ModelState& state, const checkpoint::Progress& progress);

/// Save the weights of all processes of `world` as one checkpoint <root>/iter_0000005, which any layout can load, and
/// return its folder. Collective. Throws on all when the disk of one refuses: IoError; earlier checkpoints stay.
std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs = {});

}  // namespace tessera::training
