#include "framework/training/guards/run_stop.h"

#include <array>
#include <span>

#include "framework/base/error.h"
#include "framework/worker/stop_signals.h"

namespace tessera::training {

void RunStop::agree() {
  const auto minutes = options_.exit_duration_in_mins.value_or(0);
  const bool late = minutes > 0 && running_.seconds() >= 60.0 * static_cast<double>(minutes);
  std::array<float, 2> seen = {static_cast<float>(signal_.signal()), late ? 1.0F : 0.0F};
  world_.all_reduce_max(std::span(seen), "whether to stop");
  received_ = static_cast<int>(seen[0]);
  late_ = seen[1] != 0;
}

std::string RunStop::reason(std::int64_t iteration) const {
  if (asked()) return text("stopped by ", worker::name_of_signal(received_));
  if (options_.exit_interval.value_or(0) > 0 && iteration % *options_.exit_interval == 0)
    return text("stopped by exit_interval ", *options_.exit_interval);
  if (late_) return text("stopped by exit_duration_in_mins ", *options_.exit_duration_in_mins);
  return "";
}

}  // namespace tessera::training
