#pragma once

#include <filesystem>
#include <memory>

#include "framework/checkpoint/progress.h"
#include "framework/training/saving/save_job.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/model_state.h"

namespace tessera::training {

/// What a checkpoint of a run is for.
enum class SaveKind {
  persistent,      ///< in the run's format, kept as keep_checkpoint_max and save_retain_interval say
  non_persistent,  ///< in our format, in non_persistent_folder(); only the newest is kept
};

/// Saves a checkpoint in the run's format and deletes old checkpoints of this run (`progress.run`). If a checkpoint of
/// another run has the same name, it is renamed. Collective. Throws IoError on all ranks if writing fails on one; the
/// last good checkpoint is kept.
void save(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
          const checkpoint::Progress& progress, SaveKind kind = SaveKind::persistent);

/// Whether a run saves while it trains: training_config.async_save, and a format that every rank writes from its own
/// state.
bool saves_while_training(const TrainingSetup& setup, SaveKind kind = SaveKind::persistent);
/// Begins to save the present state as save() does, while training goes on: what an update of `state` is about to
/// change is copied, unless it is written already (checkpoint::OpenedState). Nothing else may change the state before
/// the job has ended. It commits nothing before SaveJob::approve(). `setup` and `state` must outlive the job.
/// Collective. Throws as the constructor of SaveJob.
std::unique_ptr<SaveJob> open_save(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                                   const checkpoint::Progress& progress, SaveKind kind = SaveKind::persistent);

/// Deletes what saves that were killed have left in the run folder, on each host, except parts of a checkpoint that
/// another host has committed: these are committed (complete_divided). Throws nothing: the next save tries again.
/// Collective.
void delete_unfinished(const TrainingSetup& setup);

/// Saves the weights of all ranks of `world` as one checkpoint <root>/iter_0000005 (for `iteration` 5), which every
/// parallel layout can load, and returns its folder. Collective. Throws IoError on all ranks if writing fails on one;
/// earlier checkpoints are kept.
std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs = {});

}  // namespace tessera::training
