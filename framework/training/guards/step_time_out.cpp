#include "framework/training/guards/step_time_out.h"

#include <algorithm>

namespace tessera::training {

void StepTimeOut::add(double seconds, std::int64_t samples) {
  if (++steps_ <= warm_up_steps) return;
  const double per_sample = seconds / static_cast<double>(samples);
  second_slowest_ = std::max(second_slowest_, std::min(slowest_, per_sample));
  slowest_ = std::max(slowest_, per_sample);
}

double StepTimeOut::seconds(std::int64_t samples) const {
  if (given_) return std::min(*given_, longest_);
  if (!known()) return longest_;
  return std::min(std::max(least_seconds, times_longest * second_slowest_ * static_cast<double>(samples)), longest_);
}

double StepTimeOut::evaluation_seconds(std::int64_t samples, std::int64_t iterations) const {
  if (given_) return std::min(*given_ * static_cast<double>(iterations), longest_);
  return seconds(samples * iterations);
}

}  // namespace tessera::training
