#include "framework/base/watch_clock.h"

#include <algorithm>
#include <chrono>

namespace tessera {

double WatchClock::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double WatchClock::advance(double most) {
  const double now = source_();
  time_ = started_ ? time_ + std::clamp(now - last_, 0.0, most) : now;
  started_ = true;
  last_ = now;
  return time_;
}

}  // namespace tessera
