#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace tessera::log {

/// Limits how often the same message is shown. Internal to this component.
class RepeatLimit {
 public:
  static constexpr double interval = 60;           ///< seconds from one showing to the next
  static constexpr std::size_t most_known = 1024;  ///< messages; beyond, the one shown longest ago is forgotten

  /// A message at `now`, in seconds. Absent: do not show it; otherwise how many were left out since the last showing.
  std::optional<std::int64_t> show(std::string_view message, double now);

 private:
  struct Known {
    double shown = 0;
    std::int64_t left_out = 0;
  };
  std::map<std::size_t, Known> known_;  // by a hash of the message
};

}  // namespace tessera::log
