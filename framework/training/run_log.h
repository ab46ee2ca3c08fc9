#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "framework/training/log_lines.h"
#include "framework/training/metrics.h"
#include "framework/training/training_options.h"

namespace tessera::training {

/// In the run folder: the console lines of the first rank and all messages of its log.
inline constexpr const char* log_file_name = "tessera.log";

/// What the reports of a run need to know before it begins.
struct RunLogOptions {
  std::string folder;               ///< the run folder, which exists; all files go there
  std::int64_t training_iters = 0;  ///< length of the run
  std::int64_t log_interval = 1;    ///< steps from one console line and one metrics object to the next
  LogStyle log_style = LogStyle::megatron;
  bool tensorboard = true;
  std::int64_t resume_iteration =
      0;  ///< steps done by the checkpoint the run continues from; 0: it starts from scratch
  std::int64_t resume_consumed_samples = 0;  ///< samples that it had consumed
  bool resume_evaluated = true;  ///< the evaluation after that step, if one is due, is done; else it will be repeated
  bool resume_at_end = false;    ///< the evaluations after the last step will be repeated
  Interval interval = {};        ///< what happened since the last console line
  double flops_per_step = 0;     ///< of the model, for the bar; 0: not shown
  double gemm_flops_per_second = 0;  ///< what the machine's matrix product reaches, measured at start; 0: not shown
  bool log_throughput = false;       ///< TFLOP/s in the plain lines
  std::size_t routed_layers = 0;     ///< length of StepRecord::routing
  bool events_per_layer = false;     ///< TensorBoard gets the losses of each layer's router too
  bool progress_bar = true;          ///< draw a bar where the console is a terminal
  int console = 1;                   ///< file descriptor: standard output
};

/// Everything that a run reports: a bar on a terminal or plain lines elsewhere, the log file, metrics.jsonl,
/// TensorBoard event files. The loop calls `step` once per step, in order, and `evaluation` after each evaluation. In
/// steady state nothing here allocates, and a failed write is told once on the console and never thrown.
class RunLog {
 public:
  /// Throws IoError when a file cannot be made.
  explicit RunLog(const RunLogOptions& options);
  ~RunLog();  ///< leaves the bar on a line of its own

  void step(const StepRecord& record);
  /// An evaluation begins; `expected_seconds` is what it will take as far as can be told, 0: nothing can. On a
  /// terminal it gets a line that counts; elsewhere it is announced in a line when it takes long.
  void evaluation_begins(EvaluationRecord::Set set, std::int64_t iterations, double expected_seconds);
  void evaluation_progress(std::int64_t iterations_done);
  void evaluation(const EvaluationRecord& record);
  /// What happened since the last console line.
  const Interval& interval() const;
  /// One line (or several) of text for the console, above the bar.
  void note(std::string_view text);

 private:
  struct Outputs;
  std::unique_ptr<Outputs> outputs_;
};

}  // namespace tessera::training
