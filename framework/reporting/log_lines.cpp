#include "framework/reporting/log_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace tessera::reporting {

void LogLine::add(std::string_view words) {
  const auto count = std::min(words.size(), sizeof bytes_ - used_);
  std::memcpy(bytes_ + used_, words.data(), count);
  used_ += count;
}

void LogLine::repeat(char letter, std::size_t count) {
  count = std::min(count, sizeof bytes_ - used_);
  std::memset(bytes_ + used_, letter, count);
  used_ += count;
}

void Interval::add(const StepRecord& step) {
  seconds_ += step.step_seconds;
  if (!step.skipped) {
    loss_sum_ += step.loss;
    load_balancing_sum_ += step.load_balancing_loss.value_or(0);
    z_sum_ += step.z_loss.value_or(0);
    tokens_per_sample_sum_ += step.tokens_per_sample.value_or(0);
    for (std::size_t k = 0; k < step.prediction_losses.size(); ++k) prediction_sums_[k] += step.prediction_losses[k];
    ++advanced_;
    return;
  }
  ++skipped_;
  if (!std::isfinite(step.loss)) ++nans_;
}

double Interval::loss() const { return mean(loss_sum_); }

double Interval::seconds_per_step() const { return seconds_ / static_cast<double>(std::max<std::int64_t>(1, steps())); }

namespace {

/// A count as Python prints a float: the shortest text, with at least one digit after the point.
void add_float(LogLine& out, double value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view words(digits, static_cast<std::size_t>(end - digits));
  out.add(words);
  if (words.find_first_of(".en") == std::string_view::npos) out.add(".0");
}

}  // namespace

void add_megatron_line(LogLine& out, const StepRecord& step, const Interval& interval, const LineContext& context) {
  std::tm now{};
  localtime_r(&context.now, &now);
  out.put(" [{:04}-{:02}-{:02} {:02}:{:02}:{:02}]", now.tm_year + 1900, now.tm_mon + 1, now.tm_mday, now.tm_hour,
          now.tm_min, now.tm_sec);
  out.put(" iteration {:8}/{:8} |", step.iteration, context.training_iters);
  out.put(" consumed samples: {:12} |", step.consumed_samples);
  if (step.skipped_samples > 0) out.put(" skipped samples: {:12} |", step.skipped_samples);
  out.put(" elapsed time per iteration (ms): {:.1f} |", interval.seconds_per_step() * 1000);
  if (context.tera_flops_per_second > 0)
    out.put(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", context.tera_flops_per_second);
  out.put(" learning rate: {:.6E} |", step.next_learning_rate);
  if (step.decoupled_learning_rate) out.put(" decoupled learning rate: {:.6E} |", *step.decoupled_learning_rate);
  out.put(" global batch size: {:5} |", step.global_batch_size);
  if (interval.tokens_per_sample() > 0) out.put(" tokens per sample: {:.6E} |", interval.tokens_per_sample());
  if (interval.loss() > 0) out.put(" lm loss: {:.6E} |", interval.loss());
  const auto add_loss = [&](const char* name, double loss) {
    if (loss > 0) out.put(" {}: {:.6E} |", name, loss);
  };
  if (step.load_balancing_loss) add_loss("load_balancing_loss", interval.load_balancing_loss());
  if (step.z_loss) add_loss("z_loss", interval.z_loss());
  for (std::size_t k = 0; k < step.prediction_losses.size(); ++k)
    if (const auto loss = interval.prediction_loss(k); loss > 0) out.put(" mtp_{} loss: {:.6E} |", k + 1, loss);
  out.put(" loss scale: {:.1f} |", step.loss_scale);
  if (!step.skipped) out.put(" grad norm: {:.3f} |", step.grad_norm);
  if (step.num_zeros && !step.skipped) {
    out.add(" num zeros: ");
    add_float(out, *step.num_zeros);
    out.add(" |");
  }
  if (step.params_norm) out.put(" params norm: {:.3f} |", *step.params_norm);
  out.put(" number of skipped iterations: {:3} |", interval.skipped());
  out.put(" number of nan iterations: {:3} |\n", interval.nans());
}

void add_core_ms_line(LogLine& out, const StepRecord& step) {
  out.put("INFO - Epoch: {}, Step: {}, Loss: {:.16f}, Time: {:.2f} ms\n", step.epoch,
          step.step_in_epoch > 0 ? step.step_in_epoch : step.iteration, step.loss,
          (step.step_seconds - step.data_wait_seconds) * 1000);
}

void add_validation_lines(LogLine& out, const EvaluationRecord& evaluation) {
  const char* set = evaluation.set == EvaluationRecord::Set::final_validation ? " on validation set"
                    : evaluation.set == EvaluationRecord::Set::test           ? " on test set"
                                                                              : "";
  LogLine words;
  words.put(" validation{} loss at iteration {}{} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ", evaluation.suffix,
            evaluation.iteration, set, evaluation.loss, perplexity(evaluation.loss));
  const auto dashes = words.size() + 1;
  out.repeat('-', dashes);
  out.put("\n{}\n", words.text());
  out.repeat('-', dashes);
  out.add("\n");
}

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

}  // namespace tessera::reporting
