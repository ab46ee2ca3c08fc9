#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// How a worker ended, as reported by its supervisor (worker.h).
struct WorkerEnd {
  int rank = -1;
  int code = 0;              ///< exit code; meaningless if `signal` is not 0
  int signal = 0;            ///< signal that ended it; 0: none
  bool for_memory = false;   ///< killed by the system because memory was short
  bool lost_peer = false;    ///< it reported that it ends because another worker failed or is missing
  bool in_mpi_init = false;  ///< it exited while it waited in MPI_Init for the other workers
  bool unfinished = false;   ///< it ended after MPI_Init without reporting that its work is done
  bool alive = false;        ///< it was still running and was stopped by tsrun
  bool hung = false;         ///< it was stopped because a phase took longer than it had announced
  int held = -1;             ///< last iteration whose state is in memory that outlives it; -1: none was reported
  std::string host;
  std::string place;      ///< coordinates and iteration, "tp 0 dp 1 pp 0, iteration 12"; empty: not reported
  std::string reason;     ///< its own error message, or why it could not be started
  std::string operation;  ///< its last operation with other ranks; empty: unknown
  std::vector<std::string> last_lines;  ///< last lines that it printed, also if they are not in its log
  std::string log_problem;              ///< why its log is incomplete; empty: it is complete

  /// Whether it exited inside MPI_Init and said nothing: MPI does so when another worker dies at that moment.
  bool left_mpi_init_silently() const { return in_mpi_init && signal == 0 && reason.empty() && last_lines.empty(); }
  bool good() const { return !alive && code == 0 && signal == 0 && !unfinished; }
  /// Exit code of tsrun if this worker is the root cause: its exit code, 128 + signal, or 1.
  int exit_code() const;
  /// Number of steps that were completed when the iteration in `place` began; -1: not reported.
  int completed_steps() const;
};

/// Returns the worker that caused the others to fail: the first in `ends` (chronological order) that failed by itself;
/// if there is none, the first that left MPI_Init silently; if there is none, the first that only lost a peer. Workers
/// that tsrun stopped are skipped. Null if no worker failed. The pointer refers to an element of `ends`.
const WorkerEnd* root_cause(const std::vector<WorkerEnd>& ends);

/// Text for the screen about the end of a worker: rank, host, coordinates, how it ended, its last lines. `workers`:
/// number of workers of the job.
std::string story(const WorkerEnd& end, int workers);
/// Part of a sentence, for example "was ended by signal 9 (SIGKILL)" or "ended with exit code 3".
std::string how_it_ended(const WorkerEnd& end);

}  // namespace tessera::tsrun
