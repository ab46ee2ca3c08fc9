#include "framework/training/log_lines.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace tessera {

void Line::add(std::string_view words) {
  const auto count = std::min(words.size(), sizeof bytes_ - used_);
  std::memcpy(bytes_ + used_, words.data(), count);
  used_ += count;
}

void Line::addf(const char* format, ...) {
  const auto room = sizeof bytes_ - used_;
  std::va_list values;
  va_start(values, format);
  const int wanted = std::vsnprintf(bytes_ + used_, room, format, values);
  va_end(values);
  if (wanted > 0 && room > 0) used_ += std::min(static_cast<std::size_t>(wanted), room - 1);
}

void Line::repeat(char letter, std::size_t count) {
  count = std::min(count, sizeof bytes_ - used_);
  std::memset(bytes_ + used_, letter, count);
  used_ += count;
}

void Interval::add(const StepRecord& step) {
  seconds_ += step.step_seconds;
  if (!step.skipped) {
    loss_sum_ += step.loss;
    ++advanced_;
    return;
  }
  ++skipped_;
  if (!std::isfinite(step.loss)) ++nans_;
}

double Interval::loss() const { return loss_sum_ / static_cast<double>(std::max<std::int64_t>(1, advanced_)); }

double Interval::seconds_per_step() const { return seconds_ / static_cast<double>(std::max<std::int64_t>(1, steps())); }

namespace {

/// A count as Python prints a float: the shortest text, with at least one digit after the point.
void add_float(Line& out, double value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view words(digits, static_cast<std::size_t>(end - digits));
  out.add(words);
  if (words.find_first_of(".en") == std::string_view::npos) out.add(".0");
}

}  // namespace

void add_megatron_line(Line& out, const StepRecord& step, const Interval& interval, const LineContext& context) {
  std::tm now{};
  localtime_r(&context.now, &now);
  out.addf(" [%04d-%02d-%02d %02d:%02d:%02d]", now.tm_year + 1900, now.tm_mon + 1, now.tm_mday, now.tm_hour, now.tm_min,
           now.tm_sec);
  out.addf(" iteration %8lld/%8lld |", static_cast<long long>(step.iteration),
           static_cast<long long>(context.training_iters));
  out.addf(" consumed samples: %12lld |", static_cast<long long>(step.consumed_samples));
  if (step.skipped_samples > 0) out.addf(" skipped samples: %12lld |", static_cast<long long>(step.skipped_samples));
  out.addf(" elapsed time per iteration (ms): %.1f |", interval.seconds_per_step() * 1000);
  if (context.tera_flops_per_second > 0)
    out.addf(" throughput per GPU (TFLOP/s/GPU): %.1f |", context.tera_flops_per_second);
  out.addf(" learning rate: %.6E |", step.next_learning_rate);
  if (step.decoupled_learning_rate) out.addf(" decoupled learning rate: %.6E |", *step.decoupled_learning_rate);
  out.addf(" global batch size: %5lld |", static_cast<long long>(step.global_batch_size));
  if (interval.loss() > 0) out.addf(" lm loss: %.6E |", interval.loss());
  out.addf(" loss scale: %.1f |", step.loss_scale);
  if (!step.skipped) out.addf(" grad norm: %.3f |", step.grad_norm);
  if (step.num_zeros && !step.skipped) {
    out.add(" num zeros: ");
    add_float(out, *step.num_zeros);
    out.add(" |");
  }
  if (step.params_norm) out.addf(" params norm: %.3f |", *step.params_norm);
  out.addf(" number of skipped iterations: %3lld |", static_cast<long long>(interval.skipped()));
  out.addf(" number of nan iterations: %3lld |\n", static_cast<long long>(interval.nans()));
}

void add_core_ms_line(Line& out, const StepRecord& step) {
  const auto in_epoch = step.step_in_epoch > 0 ? step.step_in_epoch : step.iteration;
  out.addf("INFO - Epoch: %lld, Step: %lld, Loss: %.16f, Time: %.2f ms\n", static_cast<long long>(step.epoch),
           static_cast<long long>(in_epoch), step.loss, (step.step_seconds - step.data_wait_seconds) * 1000);
}

void add_validation_lines(Line& out, const EvaluationRecord& evaluation) {
  const char* where = evaluation.set == EvaluationRecord::Set::final_validation ? " on validation set"
                      : evaluation.set == EvaluationRecord::Set::test           ? " on test set"
                                                                                : "";
  char words[512];
  const int length = std::snprintf(
      words, sizeof words, " validation%.*s loss at iteration %lld%s | lm loss value: %.6E | lm loss PPL: %.6E | ",
      static_cast<int>(evaluation.suffix.size()), evaluation.suffix.data(),
      static_cast<long long>(evaluation.iteration), where, evaluation.loss, perplexity(evaluation.loss));
  const auto dashes = static_cast<std::size_t>(length) + 1;
  out.repeat('-', dashes);
  out.addf("\n%s\n", words);
  out.repeat('-', dashes);
  out.add("\n");
}

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace tessera
