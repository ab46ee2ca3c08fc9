#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/format.h"
#include "framework/comm/communicator.h"
#include "framework/training/training_options.h"

namespace tessera::training {

/// run.json in a run folder: which run wrote what is there.
struct RunRecord {
  std::string run;                           ///< id of the run, 16 hex digits; empty: not known
  std::map<std::string, std::int64_t> jobs;  ///< job_starts() of the start that wrote this
  /// load_checkpoint as that start was given it, and where it lies since it was set aside; empty: where it was.
  std::string load_checkpoint, moved_to;
};

/// The run folder of a run: claimed by its first rank against other processes, and known to all ranks. Nothing that
/// another run wrote there is overwritten: it is set aside first, moved by renaming into the new folder
/// `<output_dir>.<n>`, the first n that is free. That are checkpoints/, metrics.jsonl, tensorboard/, resolved.yaml,
/// run.json, log/ (unless this process's output goes there), and iter_* folders of other programs' formats and tracker;
/// all else stays. A process that ends midway leaves setting_aside.json, and the next start completes the move.
class RunFolder {
 public:
  /// Collective. Throws ConfigError when the folder cannot be written, another process uses it, a symbolic link in it
  /// leads out of it, or a move that was cut short cannot be completed.
  /// `formats` must outlive this.
  RunFolder(const comm::Communicator& world, const TrainingOptions& options,
            const checkpoint::CheckpointFormats& formats);

  /// What run.json said when this start began.
  const RunRecord& found() const { return found_; }
  /// This start is a restart within the job whose run is in the folder: it resumes, whatever resume_training says.
  bool is_restart() const { return is_restart_; }
  /// Whether checkpoints of the folder's own run are resumed from.
  bool resumes() const { return is_restart_ || options_.resume_training != Resume::never; }
  /// Where load_checkpoint lies now: elsewhere when it was set aside with an earlier run. Throws ConfigError when it is
  /// gone from there.
  std::filesystem::path given_checkpoint() const;

  /// Collective, after loading and before anything is written: set an earlier run aside unless this one continues it,
  /// and write run.json. `continues`: a checkpoint of the folder was resumed from; `checkpoint_run`: the run's id
  /// there. `recipe`: resolved.yaml to be; a run that never saved anything starts again in place when its recipe is the
  /// same: `same_recipe` says whether a text of resolved.yaml is. Returns the id of the run.
  std::string begin(bool continues, const std::string& checkpoint_run, const std::string& recipe,
                    const std::function<bool(const std::string& resolved)>& same_recipe);

  /// Lines to be told.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string take_over(bool continues, const std::string& checkpoint_run, const std::string& recipe,
                        const std::function<bool(const std::string& resolved)>& same_recipe);
  void write_unless_restarted(bool same_run, const std::function<void()>& write);
  bool is_same_run(const std::function<bool(const std::string& resolved)>& same_recipe) const;
  std::filesystem::path place_after(const std::filesystem::path& source, const std::filesystem::path& to,
                                    const std::vector<std::filesystem::path>& moving) const;

  const comm::Communicator& world_;
  const TrainingOptions& options_;
  const checkpoint::CheckpointFormats& formats_;
  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;  ///< of the first rank, which writes all files but its part of checkpoints
  RunRecord found_;
  bool is_restart_ = false;
  std::vector<std::string> notes_;
};

}  // namespace tessera::training
