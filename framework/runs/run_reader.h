#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/folder_use.h"
#include "framework/base/json.h"
#include "framework/runs/appended_lines.h"
#include "framework/runs/curve.h"
#include "framework/runs/run_event.h"

namespace tessera::runs {

/// What the state of a run is, as far as its folder tells.
struct RunStatus {
  enum class State {
    not_begun,  ///< the folder has neither metrics nor events
    running,
    silent,    ///< not known to have ended, but nothing was written for long: `since`
    finished,  ///< after its last step
    stopped,   ///< in order, before its last step; it can be resumed
    ended,     ///< of a folder without events.jsonl: in order, and more is not known
    died       ///< an error, or it was killed
  };
  State state = State::not_begun;
  std::string reason;  ///< root cause if it died, reason why it stopped; empty: none is known. May hold any characters.
  double since = 0;    ///< last change of the folder's files, in seconds since 1970; 0: unknown
};
/// "not begun", "running", "silent", "finished", "stopped", "ended", "died"
const char* state_name(RunStatus::State state);

/// What the curves of a run can be drawn over, beside iterations.
enum class RunAxis { samples, tokens, seconds };

/// The curves of one key of metrics.jsonl.
struct RunSeries {
  std::string key;
  Curve curve;               ///< of a number; empty if the key has lists
  std::vector<Curve> items;  ///< of a list: a curve for each item, in at most 256 columns
};

/// Reads a run folder, also while the run writes to it, and also one of an older or newer version. Never writes to the
/// folder and takes no lock. Everything in the folder counts as hostile: lengths and numbers are limited; what exceeds
/// a limit is left out and counted. Not thread-safe.
class RunReader {
 public:
  /// Reads nothing yet. Throws ConfigError if `folder` does not exist or is not a folder.
  explicit RunReader(std::filesystem::path folder);
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  /// Reads what was written since the last call; false if nothing was. Begins again by itself when the files were cut
  /// or replaced. Throws IoError if a file exists and cannot be read.
  bool refresh();

  const std::filesystem::path& folder() const { return folder_; }
  std::string name() const;  ///< name of the folder

  /// In the order in which the keys first appeared; references remain valid until the files are replaced.
  const std::deque<RunSeries>& series() const { return series_; }
  /// The curve of a number; null if no row has the key.
  const Curve* curve(std::string_view key) const;
  const RunSeries* find(std::string_view key) const;
  /// Cumulative samples, tokens or seconds of training over iterations; null if rows do not tell. Seconds are the sum
  /// of step_seconds, so without evaluations, saves and interruptions.
  const Curve* axis(RunAxis axis) const;

  std::int64_t rows() const { return rows_; }
  std::int64_t last_iteration() const { return last_iteration_; }  ///< of the last row; -1: none
  /// Lines of metrics.jsonl that are no rows: damaged, or too long.
  std::int64_t damaged() const { return damaged_ + metrics_.too_long(); }
  std::int64_t left_out() const { return left_out_; }  ///< values that were not kept because there are too many keys
  const AppendedLines& metrics_file() const { return metrics_; }

  const RunEvents& events() const { return events_; }
  /// run.json; null if there is none, or it cannot be read.
  const Json& record() const { return record_; }
  /// A text of run.json; empty if it has none.
  std::string record_text(std::string_view name) const;
  /// resolved.yaml; empty if there is none.
  const std::string& resolved() const { return resolved_; }

  /// `now`: seconds since 1970.
  RunStatus status(double now) const;
  /// The expected number of iterations: training_iters of run.json, or of resolved.yaml if run.json is of an older
  /// version; 0: unknown.
  std::int64_t iterations() const { return recorded_iterations_ > 0 ? recorded_iterations_ : recipe_iterations_; }

 private:
  struct SmallFile {
    double changed = 0;
    std::uint64_t size = 0;
  };
  std::int64_t begun_at(std::int64_t iteration) const;
  void begin_again();
  void take_row(std::string_view line, std::size_t known);
  bool scan(std::string_view line, std::size_t known);
  std::size_t index_of(std::string_view key, std::size_t member);
  void commit(std::int64_t iteration, bool continued);
  bool read_small(const char* name, SmallFile& seen, std::string& content) const;
  RunStatus silent_or_running(double now, const FolderUse& use) const;

  std::filesystem::path folder_;
  AppendedLines metrics_;
  RunEvents events_;
  Json record_;
  std::string resolved_;
  SmallFile record_seen_, resolved_seen_;
  std::int64_t recorded_iterations_ = 0, recipe_iterations_ = 0;  ///< of run.json and resolved.yaml; 0: unknown

  std::deque<RunSeries> series_;
  std::map<std::string, std::size_t, std::less<>> indices_;
  std::size_t item_curves_ = 0;
  struct Value {
    std::size_t series, item;
    bool in_list;
    double value;
  };
  std::vector<Value> row_;          ///< values of the row that is being read
  std::vector<std::size_t> order_;  ///< the series of the members of the last row, in their order
  Curve seconds_, tokens_;
  double second_sum_ = 0, token_sum_ = 0;
  std::int64_t rows_ = 0, last_iteration_ = -1, last_step_ = -1, damaged_ = 0, left_out_ = 0;
};

}  // namespace tessera::runs
