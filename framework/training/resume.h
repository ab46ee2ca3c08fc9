#pragma once

#include <string>
#include <vector>

#include "framework/training/model_state.h"
#include "framework/training/run_folder.h"
#include "framework/training/training_setup.h"

namespace tessera {

/// How far a run is: all that a checkpoint holds besides tensors, files, the schedule and the loss scale.
struct Progress {
  std::int64_t iteration = 0;               ///< steps done
  std::int64_t updates = 0;                 ///< of these, steps that changed weights
  std::int64_t consumed_samples = 0;        ///< of the training split
  std::int64_t skipped_samples = 0;         ///< of these, passed over by iterations_to_skip
  std::int64_t consumed_valid_samples = 0;  ///< of the validation split
  std::int64_t data_start = 0;              ///< consumed_samples when the data began: not 0 after new_dataset
  std::uint64_t seed = 0;                   ///< of dropout
  std::string run;                          ///< id of the run; empty in checkpoints of before there were ids
};

/// Where a run came from, and what is to be told about it.
struct Restored {
  Progress progress;
  /// The checkpoint that it resumes from; empty when it begins anew.
  std::filesystem::path folder = {};
  std::vector<std::string> notes = {};
  bool continues = false;  ///< the run whose checkpoints the run folder holds; else a new run begins
  bool is_saved = false;   ///< checkpoint_path() of this iteration is the checkpoint it comes from
};

/// Folder of the run's own checkpoints.
std::filesystem::path checkpoint_folder(const TrainingOptions& options);
/// The checkpoint that `save` writes of that iteration, in the run's format.
std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration);

/// Bring `state`, and the schedule and loss scaler of `setup`, to where the run goes on, as training_config says: the
/// newest good checkpoint of the run folder; else load_checkpoint (everything, or with resume_training false the
/// weights alone); else initial weights. Checkpoints that another run left in the run folder are passed over as long as
/// there are own ones. `folder` says whose it is and whether this start resumes; null: training_config alone says it.
/// Damaged checkpoints are set aside and named in the notes, with the steps that costs. Throws ConfigError when a
/// checkpoint was asked for and none is usable, it belongs to another model (naming the first tensors that differ), or
/// its schedule is another and nothing says whose counts. With no_load_optim the optimizer, schedule and scaler begin
/// anew.
Restored restore(TrainingSetup& setup, ModelState& state, Threads& threads, const RunFolder* folder = nullptr);

/// How to continue a run that ends now, a sentence: `saved` says whether it has a checkpoint.
std::string how_to_resume(const TrainingOptions& options, bool saved);

/// Save everything and prune old checkpoints of this run, `progress.run`; a checkpoint of another run that has the name
/// is renamed. Throws IoError when the disk refuses; the last good checkpoint stays.
void save(const TrainingSetup& setup, ModelState& state, const Progress& progress);

/// Save the weights of all processes of `world` as one checkpoint <root>/iter_0000005, which any layout can load, and
/// return its folder. Collective. Throws on all when the disk of one refuses: IoError; earlier checkpoints stay.
std::filesystem::path save_weights(const Communicator& world, const std::filesystem::path& root, std::int64_t iteration,
                                   ModelState& state, const Blobs& blobs = {});

/// Load the weights of one checkpoint folder into `state`.
void load_weights(const Checkpoint& checkpoint, ModelState& state, bool check_crc);

}  // namespace tessera
