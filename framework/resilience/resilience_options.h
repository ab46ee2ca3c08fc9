#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/schema.h"

namespace tessera::resilience {

/// Where weights and optimizer state are kept, so that a failure does not lose steps.
enum class Policy {
  off,     ///< in the processes: a failure costs the steps since the last checkpoint
  memory,  ///< in a state file of each rank, in memory that outlives the process
  replica  ///< as `memory`, plus copies on another host of state that exists on one host only
};
inline options::Words<Policy> words(Policy) {
  return {{"off", Policy::off}, {"memory", Policy::memory}, {"replica", Policy::replica}};
}

/// What happens with a step whose numbers are wrong, and still wrong when it is computed again.
enum class BadStep {
  stop,  ///< the run ends
  skip   ///< no weight changes; after `roll_back_after` steps in a row the run returns to a checkpoint
};
inline options::Words<BadStep> words(BadStep) { return {{"stop", BadStep::stop}, {"skip", BadStep::skip}}; }

/// resilience_config: what happens when processes of the run die or numbers are wrong. describe() documents the
/// options.
struct ResilienceOptions {
  Policy policy = Policy::memory;
  bool require_host = false;
  std::optional<double> step_time_out;
  BadStep bad_step = BadStep::stop;
  std::int64_t roll_back_after = 3;
  std::int64_t check_state_interval = 100;
  bool check_updates = true;
  double straggler_ratio = 1.4;
  std::vector<std::string> inject_fault;
};
void describe(options::Schema<ResilienceOptions>& s);

}  // namespace tessera::resilience
