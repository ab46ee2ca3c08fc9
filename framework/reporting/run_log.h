#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/run_event.h"
#include "framework/reporting/log_lines.h"
#include "framework/reporting/log_style.h"
#include "framework/reporting/metrics.h"
#include "framework/reporting/wandb.h"

namespace tessera::reporting {

/// File in the run folder with the console lines of rank 0 and all messages of its log.
inline constexpr const char* log_file_name = "tessera.log";

/// What the reports of a run must know at its start.
struct RunLogOptions {
  std::string folder;               ///< the run folder, which exists; all files go there
  std::int64_t training_iters = 0;  ///< length of the run
  std::int64_t log_interval = 1;    ///< number of steps between console lines and between metrics objects
  LogStyle log_style = LogStyle::megatron;
  bool tensorboard = true;
  std::int64_t resume_iteration = 0;         ///< steps completed by the checkpoint it resumes from; 0: from scratch
  std::int64_t resume_consumed_samples = 0;  ///< samples consumed by that checkpoint
  bool resume_evaluated = true;              ///< false: the evaluation due after that step will be done again
  bool resume_at_end = false;                ///< the evaluations after the last step will be done again
  Interval interval = {};                    ///< what happened since the last console line
  double gemm_flops_per_second = 0;    ///< FLOP/s of the machines' matrix product, measured at start; 0: not shown
  std::size_t routed_layers = 0;       ///< length of StepRecord::routing
  std::size_t ranks = 0;               ///< length of RankTimes::seconds
  bool events_per_layer = false;       ///< also write the losses of each layer's router to TensorBoard
  std::optional<WandbRun> wandb = {};  ///< absent: no file of Weights & Biases
  std::string wandb_folder = {};       ///< the folder above wandb/; empty: `folder`
  std::string prometheus_file = {};    ///< path of the file in Prometheus's format; empty: none
  std::string name = {};               ///< of the run, for people
  bool progress_bar = true;            ///< draw a bar if the console is a terminal
  int console = 1;                     ///< file descriptor of the console
};

/// All reports of a run: a bar on a terminal or plain lines elsewhere, the log file, metrics.jsonl, events.jsonl,
/// TensorBoard event files, the files of Weights & Biases and Prometheus. Call step() once per step, in order, and
/// evaluation() after each evaluation. In steady state nothing is allocated. A failed write is reported once on the
/// console and does not throw.
class RunLog {
 public:
  /// Throws IoError if a file cannot be created.
  explicit RunLog(const RunLogOptions& options);
  ~RunLog();  ///< keeps the bar as a line of its own

  void step(const StepRecord& record);
  /// Announces an evaluation. `expected_seconds`: its expected duration; 0: unknown. On a terminal it is shown as a
  /// progress line; elsewhere a line announces it if it takes long.
  void evaluation_begins(EvaluationRecord::Set set, std::int64_t iterations, double expected_seconds);
  void evaluation_progress(std::int64_t iterations_done);
  void evaluation(const EvaluationRecord& record);
  /// What happened since the last console line.
  const Interval& interval() const;
  /// Writes text of one or several lines to the console, above the bar.
  void note(std::string_view text);
  /// Appends an event to events.jsonl of the run folder (append_event).
  void event(std::string_view kind, std::int64_t iteration, const Json& facts);

 private:
  struct Outputs;
  std::unique_ptr<Outputs> outputs_;
};

}  // namespace tessera::reporting
