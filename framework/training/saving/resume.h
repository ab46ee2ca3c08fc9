#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/progress.h"
#include "framework/training/saving/run_folder.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/model_state.h"
#include "framework/training/step/run_position.h"

namespace tessera::training {

/// From where a run continues, and messages about it.
struct Restored {
  checkpoint::Progress progress;
  /// The checkpoint from which it resumes; empty: it starts from scratch.
  std::filesystem::path folder = {};
  std::vector<std::string> notes = {};  ///< messages for the log
  bool continues = false;               ///< it continues the run of the run folder's checkpoints; false: a new run
  bool is_saved = false;                ///< checkpoint_path() of this iteration has this state
  bool saved_in_job = false;            ///< RunFolder::saved_in_job() of the checkpoint
  /// Optimizer state, position in the schedules and loss scale of the checkpoint are not taken: no_load_optim is about
  /// what the job is given. What it saved itself goes on, if it has them.
  bool leaves_optimizer = false;
  bool went_back = false;  ///< the run had been further and returned to a checkpoint; see restore_back()
  /// The base of the frozen parameters, if the checkpoint was saved without them.
  std::optional<checkpoint::FrozenBase> base = {};
  /// The names of the parameters that were read although they would follow from others (Parameter::derive).
  std::set<std::string> derived = {};
};

/// Whether the run folder has a checkpoint of the run with id `run` of iteration `back_to` or earlier; damaged ones
/// count. Collective.
bool can_go_back(const TrainingSetup& setup, const std::string& run, std::int64_t back_to);

/// Returns a running run to its newest good checkpoint of iteration `back_to` or earlier; later checkpoints are set
/// aside. `kept`: the present progress, from which findings, id of the run and start of its data are kept. Collective.
/// Throws Error if there is no such checkpoint.
Restored restore_back(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const RunFolder& folder,
                      const checkpoint::Progress& kept, std::int64_t back_to);

/// Brings `state`, and the schedule and loss scaler of `setup`, to the point from which the run continues. Sources, in
/// this order, as training_config says: the newest good checkpoint of the run folder; load_checkpoint (everything, or
/// only the weights if resume_training is false); initial weights. Checkpoints of another run in the run folder are
/// ignored as long as there are checkpoints of this run. `folder`: says which run it is and whether this start resumes;
/// null: only training_config decides. Damaged checkpoints are set aside; the notes name them and the number of steps
/// to repeat. Throws ConfigError if a checkpoint was asked for and none is usable, if it belongs to another model (the
/// message names the first tensors that differ), or if its schedule differs and no option says which one is valid. With
/// no_load_optim the optimizer state, schedule and loss scale start from the beginning, unless the job saved the
/// checkpoint. Collective.
Restored restore(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const RunFolder* folder = nullptr);

/// Returns a sentence for the user: how to resume a run that ends now. `saved`: whether it has a checkpoint.
std::string how_to_resume(const TrainingOptions& options, bool saved);

}  // namespace tessera::training
