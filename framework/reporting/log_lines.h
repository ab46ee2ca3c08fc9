#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <utility>

#include "framework/options/limits.h"
#include "framework/reporting/metrics.h"

namespace tessera::reporting {

/// A text of bounded length that is being built; what does not fit is cut off. Does not allocate.
class LogLine {
 public:
  void clear() { used_ = 0; }
  void add(std::string_view words);
  /// Appends formatted text; arguments as for fmt::format.
  template <class... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    const auto room = sizeof bytes_ - used_;
    used_ += std::min(room, fmt::format_to_n(bytes_ + used_, room, format, std::forward<Values>(values)...).size);
  }
  void repeat(char letter, std::size_t count);
  std::string_view text() const { return {bytes_, used_}; }
  std::size_t size() const { return used_; }

 private:
  char bytes_[2048];
  std::size_t used_ = 0;
};

/// What happened since the last progress line.
class Interval {
 public:
  void add(const StepRecord& step);
  void clear() { *this = Interval(); }

  std::int64_t steps() const { return advanced_ + skipped_; }
  std::int64_t skipped() const { return skipped_; }
  std::int64_t nans() const { return nans_; }  ///< number of skipped steps whose loss was not finite
  double loss() const;                         ///< mean over the steps that were not skipped; 0 if there was none
  double seconds_per_step() const;             ///< mean over all steps, in seconds
  /// Means as loss(), for a model with experts or multi-token prediction.
  double load_balancing_loss() const { return mean(load_balancing_sum_); }
  double z_loss() const { return mean(z_sum_); }
  double prediction_loss(std::size_t index) const { return mean(prediction_sums_[index]); }
  /// Mean over the steps that were not skipped; 0 where it is not logged.
  double tokens_per_sample() const { return mean(tokens_per_sample_sum_); }

 private:
  double mean(double sum) const { return sum / static_cast<double>(std::max<std::int64_t>(1, advanced_)); }
  double loss_sum_ = 0, seconds_ = 0, load_balancing_sum_ = 0, z_sum_ = 0, tokens_per_sample_sum_ = 0;
  std::array<double, options::most_predictions> prediction_sums_ = {};
  std::int64_t advanced_ = 0, skipped_ = 0, nans_ = 0;
};

/// What a line in Megatron-LM's iteration format contains besides the step itself.
struct LineContext {
  std::int64_t training_iters = 0;
  std::time_t now = 0;               ///< printed in the local time zone
  double tera_flops_per_second = 0;  ///< per process; shown if above 0
};

/// Appends Megatron-LM's line of an iteration, with a newline. `step` is the last step of `interval`. Loss and time are
/// means over the interval, everything else belongs to `step`; the learning rate is that of the next step. Loss and
/// gradient norm are omitted where Megatron-LM omits them: a mean that is not above 0, a skipped step.
void add_megatron_line(LogLine& out, const StepRecord& step, const Interval& interval, const LineContext& context);

/// Appends MindSpeed-Core-MS's line of a step, with a newline: `INFO - Epoch: 0, Step: 13, Loss: 12.0177145004272461,
/// Time: 15742.81 ms`. The time is that of the step without waiting for data.
void add_core_ms_line(LogLine& out, const StepRecord& step);

/// Appends Megatron-LM's three lines of an evaluation: the text between two rows of dashes. Perplexity: see
/// perplexity().
void add_validation_lines(LogLine& out, const EvaluationRecord& evaluation);

/// exp(min(20, loss)), as Megatron-LM reports it.
double perplexity(double loss);

}  // namespace tessera::reporting
