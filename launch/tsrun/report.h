#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// How a worker ended, as the process that watched it tells.
struct WorkerEnd {
  int rank = -1;
  int code = 0;             ///< exit code; meaningless with a signal
  int signal = 0;           ///< the signal that ended it, or 0
  bool for_memory = false;  ///< the system killed it because memory was short
  bool lost_peer = false;   ///< it says that another worker failed it
  bool unfinished = false;  ///< it had joined and ended without having said that it is done
  bool alive = false;       ///< it had to be stopped: it had not ended by itself
  bool hung = false;        ///< it had to be stopped, because it did not end a phase within the time that it had said
  int held = -1;            ///< the last iteration whose state is in memory that outlives it, if it told; else -1
  std::string host;
  std::string place;                    ///< "tp 0 dp 1 pp 0, iteration 12", if it told
  std::string reason;                   ///< its own words, or how it could not be started
  std::string operation;                ///< what it did with others when it ended or was stopped, if known
  std::vector<std::string> last_lines;  ///< that it printed, also when they are not in its log
  std::string log_problem;              ///< why its log lacks something; empty: it is complete

  bool good() const { return !alive && code == 0 && signal == 0 && !unfinished; }
  /// What tsrun ends with because of it.
  int exit_code() const;
};

/// The one that brought the others down: the first in `ends`, which is in the order of time, that failed by itself;
/// those that only lost a peer, or were stopped, come after. Null when nobody failed.
const WorkerEnd* root_cause(const std::vector<WorkerEnd>& ends);

/// The last words on the screen about it: rank, host, place, how it ended, its last lines.
std::string story(const WorkerEnd& end, int workers);
/// "killed for memory (signal 9)", "exit code 3".
std::string how_it_ended(const WorkerEnd& end);

}  // namespace tessera::tsrun
