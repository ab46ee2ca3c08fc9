#include "framework/training/guards/straggler_watch.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StragglerWatch::Window read(const std::string& words) {
  StragglerWatch::Window out;
  std::istringstream in(words);
  in >> out.computing >> out.step >> out.stage;
  std::getline(in >> std::ws, out.host);
  return out;
}

std::string milliseconds(double seconds) { return text(std::fixed, std::setprecision(1), 1000 * seconds, " ms"); }

}  // namespace

StragglerWatch::StragglerWatch(double ratio, int ranks, int stage, std::string host)
    : ratio_(ratio),
      ranks_(ranks),
      stage_(stage),
      host_(std::move(host)),
      slow_windows_(static_cast<std::size_t>(ranks)) {}

bool StragglerWatch::add(double seconds, double waited) {
  if (ratio_ == 0 || ranks_ == 1) return false;
  computing_.push_back(seconds - waited);
  steps_.push_back(seconds);
  return steps_.size() >= length_;
}

std::string StragglerWatch::window() const {
  return text(std::setprecision(9), median(computing_), " ", median(steps_), " ", stage_, " ", host_);
}

std::vector<std::string> StragglerWatch::close(const std::vector<std::string>& all) {
  std::vector<Window> windows;
  std::map<int, std::vector<double>> stages;
  double slowest = 0;
  for (const auto& words : all) {
    const auto& window = windows.emplace_back(read(words));
    stages[window.stage].push_back(window.computing);
    slowest = std::max(slowest, window.step);
  }
  const auto [fastest, last] = std::minmax_element(
      windows.begin(), windows.end(), [](const Window& a, const Window& b) { return a.computing < b.computing; });
  rank_times_ = {fastest->computing, last->computing, last - windows.begin()};
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < windows.size(); ++r) {
    const auto& window = windows[r];
    const double usual = median(stages[window.stage]), factor = window.computing / usual;
    const bool slow = factor > ratio_;  // never for the only rank of a stage
    slow_windows_[r] = slow ? slow_windows_[r] + 1 : 0;
    const auto rank = static_cast<int>(r);
    if (slow_windows_[r] == windows_in_a_row && reported_.insert(rank).second)
      lines.push_back(text("straggler: rank ", rank, " on ", window.host, " computes ", std::fixed,
                           std::setprecision(2), factor, " times as long as the median rank of its pipeline stage, ",
                           milliseconds(window.computing), " of ", milliseconds(usual),
                           " a step; all ranks wait for it"));
    if (!slow && reported_.erase(rank) > 0)
      lines.push_back(text("rank ", rank, " on ", window.host, " is no longer a straggler"));
  }
  length_ = static_cast<std::size_t>(std::clamp(slowest > 0 ? window_seconds / slowest : first_window,
                                                double{shortest_window}, double{longest_window}));
  computing_.clear();
  steps_.clear();
  return lines;
}

}  // namespace tessera::training
