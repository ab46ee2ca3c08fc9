#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tessera::training {

/// Finds ranks that compute slowly: a throttled processor, another program on the host, a slow disk. All ranks wait for
/// them, so no rank's step shows which one it is. Compared is the time of a step without waiting for other ranks, among
/// ranks of the same pipeline stage, which have the same work (with experts: about the same).
///
/// Steps are collected in windows of about `window_seconds`. A rank whose median is more than `ratio` times the median
/// of its stage in each of `windows_in_a_row` is reported, and again when it no longer is.
class StragglerWatch {
 public:
  static constexpr double window_seconds = 5;
  static constexpr int windows_in_a_row = 3, first_window = 10, shortest_window = 3, longest_window = 10000;  // steps

  /// What a rank tells about a window.
  struct Window {
    double computing = 0, step = 0;  ///< median seconds of a step: without waiting; in all
    int stage = 0;
    std::string host;
  };

  /// `ratio`: 0 watches nothing. `stage`: the pipeline stage of this rank.
  StragglerWatch(double ratio, int ranks, int stage, std::string host);

  /// A step of this rank took `seconds`, of which it waited `waited` for others. Returns whether the window is
  /// complete, which it is on all ranks at the same step.
  bool add(double seconds, double waited);
  /// The complete window of this rank, as words that close() reads.
  std::string window() const;
  /// `all`: the windows of all ranks, by rank, the same on each. Begins the next window. Returns what is to be logged:
  /// a line for each rank that has become slow, or no longer is.
  std::vector<std::string> close(const std::vector<std::string>& all);

 private:
  double ratio_;
  int ranks_, stage_;
  std::string host_;
  std::vector<double> computing_, steps_;
  std::size_t length_ = first_window;
  std::vector<int> slow_windows_;  ///< in a row, by rank
  std::set<int> reported_;
};

}  // namespace tessera::training
