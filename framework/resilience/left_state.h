#pragma once

#include <filesystem>
#include <vector>

#include "framework/resilience/resolution.h"

namespace tessera::resilience {

/// What is in the state file of a rank, read without changing it.
struct LeftState {
  int rank = 0, ranks = 1;  ///< of the run
  bool ready = false;       ///< another process may continue with it
  JournalState journal{};
};

/// Of the state files of all ranks in a launcher's folder (worker::state_file, worker::held_state_file), by rank. Files
/// of another version are left out.
std::vector<LeftState> left_states(const std::filesystem::path& folder);

/// The iteration from which these ranks continue; -1: there is none.
std::int64_t step_of(const std::vector<LeftState>& states);

}  // namespace tessera::resilience
