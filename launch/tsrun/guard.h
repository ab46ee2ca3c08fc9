#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/tsrun/job.h"

namespace tessera::tsrun {

// What happens to the workers when the leading tsrun is killed. If their program keeps its state in memory, they
// continue for --lease seconds; then their supervisors (worker.h) ask them to stop, and they write a checkpoint. The
// guard on the leader's host, and the tsrun on every other host, wait for that. If all workers have saved, the state in
// memory is deleted; otherwise it stays, and the same command continues from it.

/// Command line that starts a guard, without the words of mpirun, which the caller appends. The guard starts mpirun. It
/// inherits `folders.lock()`, so the folders stay locked after tsrun was killed. `log`: path of the file for its
/// messages; empty: no messages.
std::vector<std::string> guard_words(const Job& job, const JobFolders& folders, const std::string& log);
/// Environment variable with mpirun's LD_PRELOAD. The guard sets LD_PRELOAD from it for mpirun only.
inline constexpr const char* guard_preload = "TSRUN_PRELOAD";

/// Implements `--as-guard`: runs mpirun and returns its exit code. Standard input is a pipe whose end means that tsrun
/// is gone; the guard then waits for the workers, kills what is left and returns 1. `words`: the words of guard_words()
/// after "--as-guard". Throws Error if there are too few.
int run_guard(const std::vector<std::string>& words);

/// Waits until no worker of the `ranks` on this host runs: for at most `longest` seconds, and at most `stop_time_out`
/// seconds after the first worker has ended, or from now on if one had ended before. Kills the workers that are left.
/// Calls `poll_once` about every 0.1 s while it waits.
void outlive_leader(int ranks, double longest, double stop_time_out, const std::function<void()>& poll_once);
/// Whether all workers of the ranks [first, first + ranks), and of all ranks with state in the folder, have saved their
/// state after the leader was gone (worker::saved_file). `memory`: the job's folder in memory.
bool all_saved(const std::string& memory, int first, int ranks);
/// Text for the user: where the state of job `id` is, that the same command continues from it, and how to delete it.
std::string how_to_adopt(const std::string& id);

}  // namespace tessera::tsrun
