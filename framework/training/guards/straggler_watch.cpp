#include "framework/training/guards/straggler_watch.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <type_traits>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

static_assert(std::is_trivially_copyable_v<StragglerWatch::Window>);

/// Changes the order of the values.
double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string milliseconds(double seconds) { return text(std::fixed, std::setprecision(1), 1000 * seconds, " ms"); }

}  // namespace

StragglerWatch::StragglerWatch(double ratio, int ranks, int stage, const std::string& host)
    : ratio_(ranks > 1 ? ratio : 0) {
  if (ratio_ == 0) return;
  own_.stage = stage;
  host.copy(own_.host.data(), own_.host.size() - 1);
  const auto count = static_cast<std::size_t>(ranks);
  for (auto* steps : {&computing_, &steps_}) steps->reserve(longest_window);
  windows_.resize(count);
  rank_seconds_.resize(count);
  of_stage_.reserve(count);
  slow_windows_.resize(count);
}

bool StragglerWatch::add(double seconds, double waited) {
  if (ratio_ == 0) return false;
  computing_.push_back(seconds - waited);
  steps_.push_back(seconds);
  return steps_.size() >= length_;
}

const StragglerWatch::Window& StragglerWatch::window(const RankMemory& memory) {
  own_.computing = median(computing_);
  own_.step = median(steps_);
  own_.memory = memory;
  computing_.clear();
  steps_.clear();
  return own_;
}

void StragglerWatch::compare_ranks() {
  for (std::size_t r = 0; r < windows_.size(); ++r) rank_seconds_[r] = windows_[r].computing;
  const auto [fastest, slowest] = std::minmax_element(rank_seconds_.begin(), rank_seconds_.end());
  rank_times_ = {*fastest, *slowest, slowest - rank_seconds_.begin(), rank_seconds_};
}

/// The median of a stage's ranks.
double StragglerWatch::usual(std::int64_t stage) {
  of_stage_.clear();
  for (const auto& window : windows_)
    if (window.stage == stage) of_stage_.push_back(window.computing);
  return median(of_stage_);
}

std::vector<std::string> StragglerWatch::close() {
  compare_ranks();
  std::vector<std::string> lines;
  double slowest = 0, usual_seconds = 0;
  for (std::size_t r = 0; r < windows_.size(); ++r) {
    const auto& window = windows_[r];
    slowest = std::max(slowest, window.step);
    if (r == 0 || window.stage != windows_[r - 1].stage) usual_seconds = usual(window.stage);
    const double factor = window.computing / usual_seconds;
    const bool slow = factor > ratio_;  // never for the only rank of a stage
    slow_windows_[r] = slow ? slow_windows_[r] + 1 : 0;
    const auto rank = static_cast<int>(r);
    if (slow_windows_[r] == windows_in_a_row && reported_.insert(rank).second)
      lines.push_back(text("straggler: rank ", rank, " on ", window.host.data(), " computes ", std::fixed,
                           std::setprecision(2), factor, " times as long as the median rank of its pipeline stage, ",
                           milliseconds(window.computing), " of ", milliseconds(usual_seconds),
                           " a step; all ranks wait for it"));
    if (!slow && reported_.erase(rank) > 0)
      lines.push_back(text("rank ", rank, " on ", window.host.data(), " is no longer a straggler"));
  }
  length_ = static_cast<std::size_t>(std::clamp(slowest > 0 ? window_seconds / slowest : first_window,
                                                double{shortest_window}, double{longest_window}));
  return lines;
}

}  // namespace tessera::training
