#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/checkpoint/progress.h"
#include "framework/training/model_state.h"
#include "framework/training/run_folder.h"
#include "framework/training/run_position.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// Where a run came from, and what is to be told about it.
struct Restored {
  checkpoint::Progress progress;
  /// The checkpoint that it resumes from; empty when it starts from scratch.
  std::filesystem::path folder = {};
  std::vector<std::string> notes = {};
  bool continues = false;  ///< the run whose checkpoints the run folder holds; else a new run begins
  bool is_saved = false;   ///< checkpoint_path() of this iteration is the checkpoint it comes from
  bool went_back = false;  ///< the run was already further; see restore_back
};

/// Whether the run folder has a checkpoint of the run that is not after iteration `back_to`; damaged ones count.
/// Collective.
bool can_go_back(const TrainingSetup& setup, const std::string& run, std::int64_t back_to);

/// Bring a run that is under way back to its newest good checkpoint that is not after iteration `back_to`; later ones
/// are set aside. `kept` is where the run was: findings, the id of the run and the beginning of its data are kept.
/// Collective. Throws Error if there is no such checkpoint.
Restored restore_back(TrainingSetup& setup, ModelState& state, const checkpoint::Progress& kept, std::int64_t back_to);

/// Bring `state`, and the schedule and loss scaler of `setup`, to where the run continues, as training_config says: the
/// newest good checkpoint of the run folder; else load_checkpoint (everything, or with resume_training false the
/// weights alone); else initial weights. Checkpoints that another run left in the run folder are passed over as long as
/// there are own ones. `folder` says whose it is and whether this start resumes; null: training_config alone says it.
/// Damaged checkpoints are set aside and named in the notes, with the steps that costs. Throws ConfigError when a
/// checkpoint was asked for and none is usable, it belongs to another model (naming the first tensors that differ), or
/// its schedule is another and nothing says whose counts. With no_load_optim the optimizer, schedule and scaler begin
/// anew.
Restored restore(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const RunFolder* folder = nullptr);

/// Bring the schedule and loss scaler of `setup` to `position`, which earlier processes left in memory; `step` is the
/// one that the ranks agreed on. Throws ConfigError as restore_rates() does.
Restored restore_position(std::int64_t step, const RunPosition& position, TrainingSetup& setup);

/// `progress` with the schedule and, if it is dynamic, the loss scale of this moment.
checkpoint::Progress with_rates(checkpoint::Progress progress, const TrainingSetup& setup);
/// Sets schedule and loss scale to those of `progress`; the schedule of checkpoints of the first version, which have
/// neither, to its samples. Throws ConfigError if the schedule is another and nothing says whose counts.
void restore_rates(const checkpoint::Progress& progress, TrainingSetup& setup);

/// How to continue a run that ends now, a sentence: `saved` says whether it has a checkpoint.
std::string how_to_resume(const TrainingOptions& options, bool saved);

}  // namespace tessera::training
