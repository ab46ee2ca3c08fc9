#pragma once

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

/// resilience_config: what happens when processes of the run die.
struct ResilienceOptions {
  Policy policy = Policy::memory;
  bool require_host = false;
  std::optional<double> step_time_out;
  std::vector<std::string> inject_fault;
};
void describe(options::Schema<ResilienceOptions>& s);

}  // namespace tessera::resilience
