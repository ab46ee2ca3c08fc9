#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/reporting/metrics.h"

namespace tessera::training {

/// Finds ranks that compute slowly: a throttled processor, another program on the host, a slow disk. All ranks wait for
/// the slowest, so the duration of a step does not show which rank it is. Compared is the duration of a step without
/// the time waiting for other ranks, among ranks of the same pipeline stage, which have the same work (with experts:
/// about the same).
///
/// Steps are collected in windows of about `window_seconds` seconds. A rank is reported if its median is more than
/// `ratio` times the median of its stage in `windows_in_a_row` consecutive windows, and again when it no longer is.
class StragglerWatch {
 public:
  static constexpr double window_seconds = 5;
  static constexpr int windows_in_a_row = 3, first_window = 10, shortest_window = 3, longest_window = 10000;  // steps

  /// What a rank reports about a window.
  struct Window {
    double computing = 0, step = 0;  ///< median duration of a step, in seconds: without waiting; in total
    int stage = 0;
    std::string host;
  };

  /// `ratio`: threshold; 0: nothing is watched. `stage`: pipeline stage of this rank.
  StragglerWatch(double ratio, int ranks, int stage, std::string host);

  /// Adds a step of this rank: its duration in `seconds`, of which it `waited` seconds for other ranks. Returns whether
  /// the window is complete; this happens on all ranks at the same step.
  bool add(double seconds, double waited);
  /// The complete window of this rank, encoded as text for close().
  std::string window() const;
  /// Evaluates a window and begins the next one. `all`: window() of all ranks, indexed by rank, equal on all ranks.
  /// Returns lines for the log: one for each rank that has become slow or no longer is.
  std::vector<std::string> close(const std::vector<std::string>& all);
  /// The times of the last window, once after each close().
  std::optional<reporting::RankTimes> take_rank_times() { return std::exchange(rank_times_, std::nullopt); }

 private:
  double ratio_;
  int ranks_, stage_;
  std::string host_;
  std::vector<double> computing_, steps_;
  std::size_t length_ = first_window;
  std::vector<int> slow_windows_;  ///< for each rank: number of consecutive slow windows
  std::set<int> reported_;
  std::optional<reporting::RankTimes> rank_times_;
};

}  // namespace tessera::training
