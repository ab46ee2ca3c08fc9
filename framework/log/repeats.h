#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace tessera::log {

/// Limits how often the same message is shown: at most once per `interval`. Internal to this component.
class RepeatLimit {
 public:
  static constexpr double interval = 60;  ///< minimum time between two showings of a message, in seconds
  /// messages remembered; beyond this, the one shown longest ago is forgotten
  static constexpr std::size_t most_known = 1024;

  /// Decides whether to show `message`, which is logged at time `now`, in seconds. Returns nothing if it must not be
  /// shown; otherwise the number of repetitions left out since it was last shown.
  std::optional<std::int64_t> show(std::string_view message, double now);

 private:
  struct Known {
    double shown = 0;
    std::int64_t left_out = 0;
  };
  std::map<std::size_t, Known> known_;  // by a hash of the message
};

}  // namespace tessera::log
