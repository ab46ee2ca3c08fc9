#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/progress.h"
#include "framework/comm/communicator.h"
#include "framework/training/options/training_options.h"

namespace tessera::training {

/// Content of run.json in a run folder: which run wrote the other files.
struct RunRecord {
  std::string run;                           ///< id of the run, 16 hexadecimal digits; empty: unknown
  std::map<std::string, std::int64_t> jobs;  ///< worker::job_starts() of the start that wrote this
  std::int64_t began_after = -1;  ///< RunFolder::began_after() of that start; -1: an older version wrote this
  /// Which options of that start leave out parts of a checkpoint. A start of the same job that gives others is no
  /// restart of it, as in a job script of several phases: then they are applied again.
  std::string taken;
  /// load_checkpoint as given to that start, and its path after it was set aside; empty: it was not set aside.
  std::string load_checkpoint, moved_to;
  Json facts = {};  ///< what else is written of the run, for people and programs (docs/metrics.md); never read here
};

/// The files and folders that a run writes into its folder, of those that are there: of its metrics, events, recipe and
/// checkpoints. Not the iter_* folders of other programs' formats.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& folder);

/// The run folder of a run: locked by rank 0 against other processes, and known to all ranks. Files of another run in
/// it are never overwritten: they are first set aside, moved by renaming into the new folder `<output_dir>.<n>` with
/// the lowest free n. This applies to checkpoints/, metrics.jsonl, events.jsonl, tensorboard/, resolved.yaml, run.json,
/// log/ (unless the output of this process goes there), and the iter_* folders and tracker of other programs' formats;
/// all other files stay. A process that is interrupted leaves setting_aside.json, and the next start completes the
/// move.
class RunFolder {
 public:
  /// Collective. Throws ConfigError if the folder cannot be written, another process uses it, a symbolic link in it
  /// leads out of it, or an interrupted move cannot be completed. All references must outlive this object.
  RunFolder(const comm::Communicator& world, const TrainingOptions& options,
            const checkpoint::CheckpointFormats& formats);

  /// Content of run.json when this start began.
  const RunRecord& found() const { return found_; }
  /// Whether this start is a restart within the job whose run is in the folder; then it resumes, whatever
  /// resume_training is.
  bool is_restart() const { return is_restart_; }
  /// Whether this start resumes from checkpoints of the folder's own run.
  bool resumes() const { return is_restart_ || options_.resume_training != Resume::never; }
  /// The iteration after which the job of this start began, or to which it went back if that is earlier; -1: unknown.
  std::int64_t began_after() const { return began_after_; }
  /// Whether this job saved the run's checkpoint of `iteration`, and was not given it. Options that say what is taken
  /// from a checkpoint were applied when the job began: they are not about what it saved since.
  bool saved_in_job(std::int64_t iteration) const { return began_after_ >= 0 && iteration > began_after_; }
  /// Present path of load_checkpoint, which differs from the given one if it was set aside with an earlier run. Throws
  /// ConfigError if nothing is there.
  std::filesystem::path given_checkpoint() const;

  /// Call it after loading and before anything is written. Sets an earlier run aside unless this start continues it,
  /// writes run.json, and returns the id of the run. `continues`: a checkpoint of the folder was resumed from; `from`:
  /// the progress that was restored. `recipe`: the new content of resolved.yaml. `same_recipe`: whether a text of
  /// resolved.yaml describes the same recipe; a run that has saved nothing then starts again in the same folder.
  /// `facts`: RunRecord::facts. Collective.
  std::string begin(bool continues, const checkpoint::Progress& from, const std::string& recipe,
                    const std::function<bool(const std::string& resolved)>& same_recipe, const Json& facts = {});
  /// The run has gone back to its checkpoint of `iteration`. All ranks call it after begin().
  void went_back(std::int64_t iteration);

  /// Writes run.json anew with another fact (RunRecord::facts), which replaces one of the same name. Only on rank 0,
  /// after begin(). Throws IoError.
  void add_fact(const std::string& name, Json fact);

  /// Messages for the log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string take_over(bool continues, const std::string& checkpoint_run, const std::string& recipe,
                        const std::function<bool(const std::string& resolved)>& same_recipe, const Json& facts);
  void write_unless_restarted(bool same_run, const std::function<void()>& write);
  bool is_same_run(const std::function<bool(const std::string& resolved)>& same_recipe) const;
  std::filesystem::path place_after(const std::filesystem::path& source, const std::filesystem::path& to,
                                    const std::vector<std::filesystem::path>& moving) const;

  const comm::Communicator& world_;
  const TrainingOptions& options_;
  const checkpoint::CheckpointFormats& formats_;
  std::filesystem::path folder_;
  std::optional<FolderLock>
      lock_;               ///< held by rank 0, which writes all files except the other ranks' parts of checkpoints
  RunRecord found_, own_;  ///< own_: what this start wrote; only on rank 0
  bool is_restart_ = false;
  std::int64_t began_after_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace tessera::training
