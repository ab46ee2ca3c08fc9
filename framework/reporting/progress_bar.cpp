#include "framework/reporting/progress_bar.h"

#include <algorithm>
#include <cmath>

namespace tessera::reporting {
namespace {

constexpr double shortest_pause = 0.1;  // between two drawings, in seconds

}  // namespace

void add_duration(LogLine& out, double seconds) {
  const auto all = static_cast<long long>(std::min(std::max(seconds, 0.0), 1e9));
  const auto days = all / 86400, hours = all / 3600 % 24, minutes = all / 60 % 60;
  if (days > 0)
    out.put("{}d {:02}:{:02}", days, hours, minutes);
  else if (hours > 0)
    out.put("{}:{:02}:{:02}", hours, minutes, all % 60);
  else
    out.put("{}:{:02}", minutes, all % 60);
}

void add_scaled(LogLine& out, double value) {
  constexpr const char* units[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  out.put("{:.{}f}{}", value, digits, units[unit]);
}

void add_bar(LogLine& out, const ProgressState& s, int columns) {
  const double share = s.training_iters > 0
                           ? std::min(1.0, static_cast<double>(s.iteration) / static_cast<double>(s.training_iters))
                           : 0;
  LogLine parts[6];  // in the order in which they are given up, last first
  parts[0].put("  loss {:.4g}", s.loss);
  if (s.seconds_left >= 0) {
    parts[1].add("  ");
    add_duration(parts[1], s.seconds_left);
    parts[1].add(" left");
  }
  parts[2].put(" {}/{}", s.iteration, s.training_iters);
  parts[3].add("  ");
  add_scaled(parts[3], s.tokens_per_second);
  parts[3].add(" tok/s");
  parts[4].put("  lr {:.2e}", s.learning_rate);
  if (s.flops_per_second > 0) {
    parts[5].add("  ");
    add_scaled(parts[5], s.flops_per_second);
    parts[5].add("FLOP/s");
    if (s.share_of_gemm > 0) parts[5].put(" ({:.0f}% of GEMM)", s.share_of_gemm * 100);
  }
  constexpr std::size_t percentage = 4, brackets = 3, narrowest = 8, widest = 30;
  const auto room = static_cast<std::size_t>(std::max(0, columns));
  std::size_t used = percentage, kept = 0;
  while (kept < std::size(parts) && used + parts[kept].size() <= room) used += parts[kept++].size();
  if (room < percentage) return;
  out.put("{:3}%", static_cast<int>(share * 100));
  if (used + brackets + narrowest <= room) {
    const auto width = std::min(widest, room - used - brackets),
               full = static_cast<std::size_t>(share * static_cast<double>(width));
    out.add(" [");
    out.repeat('=', full);
    if (full < width) out.add(">");
    out.repeat(' ', full < width ? width - full - 1 : 0);
    out.add("]");
  }
  for (const std::size_t at : {2, 0, 4, 3, 1, 5})
    if (at < kept) out.add(parts[at].text());
}

void add_evaluation(LogLine& out, const EvaluationState& s, int columns) {
  const auto done = static_cast<long long>(s.done), all = static_cast<long long>(s.all);
  LogLine percentage, words, left;
  percentage.put("{:3}%", all > 0 ? 100 * done / all : 0);
  words.put(" evaluating the {} {}/{}", s.what, done, all);
  if (s.seconds_left >= 0) {
    left.add("  ");
    add_duration(left, s.seconds_left);
    left.add(" left");
  }
  auto room = static_cast<std::size_t>(std::max(0, columns));
  for (const auto* part : {&percentage, &words, &left}) {
    if (part->size() > room) return;
    out.add(part->text());
    room -= part->size();
  }
}

void ProgressBar::step(const StepRecord& record) {
  const bool first = first_iteration_ < 0;
  if (first) {
    first_iteration_ = record.iteration;
    since_first_.lap();
  }
  const double weight = first ? 1 : 0.1;  // of the new value: about ten steps are seen
  const auto smooth = [&](double& mean, double value) { mean += weight * (value - mean); };
  smooth(step_seconds_, record.step_seconds);
  smooth(tokens_per_second_, record.tokens_per_second);
  smooth(flops_, record.flops);
  if (!record.skipped) loss_ = record.loss;
  last_ = record;
  if (!line_.visible() || since_drawn_.seconds() >= shortest_pause || record.iteration >= o_.training_iters) draw();
}

void ProgressBar::begin_evaluation(std::string_view what, std::int64_t iterations, double expected_seconds) {
  evaluation_ = {what, 0, iterations, expected_seconds > 0 ? expected_seconds : -1};
  since_evaluation_.lap();
  draw();
}

void ProgressBar::evaluation(std::int64_t done) {
  evaluation_.done = done;
  if (since_drawn_.seconds() >= shortest_pause || done >= evaluation_.all) draw();
}

void ProgressBar::end_evaluation() {
  evaluation_ = {};
  hide();
}

EvaluationState ProgressBar::evaluation_state() const {
  auto s = evaluation_;
  if (s.done > 0)
    s.seconds_left = since_evaluation_.seconds() * static_cast<double>(s.all - s.done) / static_cast<double>(s.done);
  return s;
}

ProgressState ProgressBar::state() const {
  ProgressState s{.iteration = last_.iteration,
                  .training_iters = o_.training_iters,
                  .loss = loss_,
                  .learning_rate = last_.learning_rate,
                  .tokens_per_second = tokens_per_second_};
  const auto done = last_.iteration - first_iteration_;
  const auto left = static_cast<double>(std::max<std::int64_t>(0, o_.training_iters - last_.iteration));
  const double all_seconds = since_first_.seconds();  // evaluations and checkpoints included
  s.seconds_left = left * std::max(step_seconds_, done > 0 ? all_seconds / static_cast<double>(done) : 0);
  if (flops_ > 0 && step_seconds_ > 0) {
    s.flops_per_second = flops_ / step_seconds_;
    if (o_.gemm_flops_per_second > 0) s.share_of_gemm = s.flops_per_second / o_.gemm_flops_per_second;
  }
  return s;
}

void ProgressBar::draw() {
  const bool evaluating = evaluation_.all > 0;
  if (!evaluating && first_iteration_ < 0) return;
  LogLine text;
  const auto width = line_.columns() - 1;  // the last column would make some terminals wrap
  if (evaluating)
    add_evaluation(text, evaluation_state(), width);
  else
    add_bar(text, state(), width);
  line_.show(text.text());
  since_drawn_.lap();
}

void ProgressBar::hide() { line_.hide(); }

void ProgressBar::leave() {
  if (first_iteration_ < 0) return;
  draw();
  line_.leave();
  first_iteration_ = -1;
}

}  // namespace tessera::reporting
