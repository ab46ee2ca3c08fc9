#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/schema.h"

namespace tessera::resilience {

/// Where what training changes is kept, so that a fault does not lose it.
enum class Policy {
  off,     ///< in the processes: a fault costs the steps since the last checkpoint
  memory,  ///< in a state file of each rank, which outlives the processes
  replica  ///< so, and copies of what no other host has are on another host
};
inline options::Words<Policy> words(Policy) {
  return {{"off", Policy::off}, {"memory", Policy::memory}, {"replica", Policy::replica}};
}

/// What becomes of a step whose numbers are wrong, and stay so when it is computed again.
enum class BadStep {
  stop,  ///< the run ends
  skip   ///< no weight changes; after several in a row the run goes back to a checkpoint
};
inline options::Words<BadStep> words(BadStep) { return {{"stop", BadStep::stop}, {"skip", BadStep::skip}}; }

/// resilience_config: what happens when processes of the run die, or numbers are wrong.
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
