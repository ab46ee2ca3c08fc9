#pragma once

#include <cstdint>

#include "framework/base/clock.h"
#include "framework/log/log.h"
#include "framework/reporting/log_lines.h"
#include "framework/reporting/metrics.h"

namespace tessera::reporting {

/// The content of a progress bar.
struct ProgressState {
  std::int64_t iteration = 0, training_iters = 0;
  double loss = 0, learning_rate = 0;
  double tokens_per_second = 0;
  double seconds_left = -1;     ///< estimated remaining time; below 0: unknown
  double flops_per_second = 0;  ///< FLOP/s of the model; 0: not shown
  double share_of_gemm = 0;     ///< fraction of the FLOP/s that the machine's matrix product reaches; 0: not shown
};

/// Appends the bar in at most `columns` characters, without a newline:
/// ` 12% [=====>            ] 120/1000  loss 3.214  lr 3.00e-04  12.3k tok/s  4:12 left  85.1 GFLOP/s (61% of GEMM)`.
/// If there are few columns, less important parts are omitted completely; at least the percentage is shown.
void add_bar(LogLine& out, const ProgressState& state, int columns);

/// The content of the progress line of an evaluation.
struct EvaluationState {
  std::string_view what;           ///< for example "validation split"
  std::int64_t done = 0, all = 0;  ///< iterations completed, and in total
  double seconds_left = -1;        ///< estimated remaining time; below 0: unknown
};

/// Appends ` 34% evaluating the validation split 34/100  0:12 left` in at most `columns` characters, without a newline.
void add_evaluation(LogLine& out, const EvaluationState& state, int columns);

/// Appends a duration: "4:12", "1:02:33", "2d 03:04".
void add_duration(LogLine& out, double seconds);
/// Appends a number with a unit prefix: "512", "12.3k", "1.05M".
void add_scaled(LogLine& out, double value);

/// A progress bar on the last line of a terminal, redrawn at most ten times per second, as wide as the terminal.
class ProgressBar {
 public:
  struct Options {
    int console = 1;  ///< file descriptor of a terminal
    std::int64_t training_iters = 0;
    double gemm_flops_per_second = 0;  ///< 0: not shown
  };
  explicit ProgressBar(const Options& options) : o_(options), line_(options.console) {}
  ~ProgressBar() { leave(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void step(const StepRecord& record);
  /// Shows an evaluation instead until end_evaluation(). `expected_seconds`: its expected duration; 0: unknown.
  void begin_evaluation(std::string_view what, std::int64_t iterations, double expected_seconds);
  void evaluation(std::int64_t done);
  void end_evaluation();
  /// Removes the bar so that other text can be written; the next step() or draw() shows it again.
  void hide();
  void draw();
  /// Draws the last state and keeps it as a line of its own.
  void leave();

 private:
  ProgressState state() const;
  EvaluationState evaluation_state() const;

  Options o_;
  StepRecord last_;
  Stopwatch since_first_, since_drawn_;
  std::int64_t first_iteration_ = -1;                            // first iteration seen; -1: none
  double step_seconds_ = 0, tokens_per_second_ = 0, flops_ = 0;  // smoothed
  double loss_ = 0;
  EvaluationState evaluation_;  // all > 0: an evaluation runs; seconds_left: its expected duration
  Stopwatch since_evaluation_;
  log::StatusLine line_;
};

}  // namespace tessera::reporting
