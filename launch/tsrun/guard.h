#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/tsrun/job.h"

namespace tessera::tsrun {

// What becomes of the workers when the leading tsrun is killed. If their program keeps its state in memory, they go on
// for --lease seconds; then their supervisors (worker.h) ask them to stop, and they save. On the leader's host the
// guard waits for that, on other hosts the tsrun there. Who saved needs its state no more; else it stays for the same
// command.

/// The line that starts a guard, which starts mpirun, dies with neither of the two, and inherits `folders.lock()`.
/// `log`: what it has to say goes there; empty: nowhere.
std::vector<std::string> guard_words(const Job& job, const JobFolders& folders, const std::string& log);
/// For its environment, instead of LD_PRELOAD, which is for mpirun alone.
inline constexpr const char* guard_preload = "TSRUN_PRELOAD";

/// What `--as-guard` does: runs mpirun, and ends as that does. Its standard input is a pipe that ends when tsrun is
/// gone.
int run_guard(const std::vector<std::string>& words);

/// Wait until no worker of this host is left, at most `longest` seconds and `stop_time_out` after the first; kill what
/// is still there. `poll_once` is called meanwhile.
void outlive_leader(double longest, double stop_time_out, const std::function<void()>& poll_once);
/// Whether all these workers ended well after the leader was gone (worker::saved_file).
bool all_saved(const std::string& memory, int first, int ranks);
/// "the same command continues from the state in /dev/shm/tsrun.x.shm; ...".
std::string how_to_adopt(const std::string& id);

}  // namespace tessera::tsrun
