#pragma once

#include <filesystem>
#include <vector>

#include "framework/resilience/resolution.h"

namespace tessera::resilience {

/// Content of the state file of a rank, read without changing it.
struct LeftState {
  int rank = 0, ranks = 1;  ///< rank, and number of ranks of the run
  bool ready = false;       ///< another process can continue with it
  JournalState journal{};
};

/// Reads the state files of all ranks in a launcher's folder (worker::state_file, worker::held_state_file); sorted by
/// rank. Leaves out files of another version and files that cannot be read.
std::vector<LeftState> left_states(const std::filesystem::path& folder);

/// The iteration from which these ranks would continue; -1: no file is ready.
std::int64_t step_of(const std::vector<LeftState>& states);

}  // namespace tessera::resilience
