#include "framework/log/repeats.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace tessera::log {

std::optional<std::int64_t> RepeatLimit::show(std::string_view message, double now) {
  const std::size_t key = std::hash<std::string_view>()(message);
  const auto found = known_.find(key);
  if (found != known_.end() && now - found->second.shown < interval) {
    ++found->second.left_out;
    return std::nullopt;
  }
  if (found == known_.end() && known_.size() == most_known)
    known_.erase(std::min_element(known_.begin(), known_.end(),
                                  [](const auto& a, const auto& b) { return a.second.shown < b.second.shown; }));
  Known& message_state = known_[key];
  message_state.shown = now;
  return std::exchange(message_state.left_out, 0);
}

}  // namespace tessera::log
