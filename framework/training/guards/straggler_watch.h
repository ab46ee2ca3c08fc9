#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/reporting/metrics.h"
#include "framework/training/guards/rank_memory.h"

namespace tessera::training {

/// Finds ranks that compute slowly: a throttled processor, another program on the host, a slow disk. All ranks wait for
/// the slowest, so the duration of a step does not show which rank it is. Compared is the duration of a step without
/// the time waiting for other ranks, among ranks of the same pipeline stage, which have the same work (with experts:
/// about the same).
///
/// Steps are collected in windows of about `window_seconds` seconds. A rank is reported if its median is more than
/// `ratio` times the median of its stage in `windows_in_a_row` consecutive windows, and again when it no longer is.
/// Memory is allocated only by the constructor and for lines.
class StragglerWatch {
 public:
  static constexpr double window_seconds = 5;
  static constexpr int windows_in_a_row = 3, first_window = 10, shortest_window = 3, longest_window = 10000;  // steps

  /// What a rank reports about a window, sent as bytes.
  struct Window {
    double computing = 0, step = 0;  ///< median duration of a step, in seconds: without waiting; in total
    std::int64_t stage = 0;
    RankMemory memory = {};
    std::array<char, 64> host = {};  ///< its name, cut to 63 characters, and zeros
  };

  /// `ratio`: threshold; 0: nothing is watched. `stage`: pipeline stage of this rank.
  StragglerWatch(double ratio, int ranks, int stage, const std::string& host);

  /// Adds a step of this rank: its duration in `seconds`, of which it `waited` seconds for other ranks. Returns whether
  /// the window is complete; this happens on all ranks at the same step.
  bool add(double seconds, double waited);
  /// The complete window of this rank, for all_windows(). `memory`: of this rank.
  const Window& window(const RankMemory& memory);
  /// Memory for the windows of all ranks, indexed by rank.
  std::span<Window> all_windows() { return windows_; }
  /// Evaluates all_windows(), which are equal on all ranks, and begins the next window. Returns lines for the log: one
  /// for each rank that has become slow or no longer is.
  std::vector<std::string> close();
  /// The times of the last window, once after each close(). They view this object, until the next close().
  std::optional<reporting::RankTimes> take_rank_times() { return std::exchange(rank_times_, std::nullopt); }

 private:
  void compare_ranks();
  double usual(std::int64_t stage);

  double ratio_;
  Window own_;
  std::vector<double> computing_, steps_;
  std::size_t length_ = first_window;
  std::vector<Window> windows_;       ///< for each rank
  std::vector<double> rank_seconds_;  ///< for each rank: Window::computing
  std::vector<double> of_stage_;      ///< ranks of one stage
  std::vector<int> slow_windows_;     ///< for each rank: number of consecutive slow windows
  std::set<int> reported_;
  std::optional<reporting::RankTimes> rank_times_;
};

}  // namespace tessera::training
