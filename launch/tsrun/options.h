#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::tsrun {

/// Which launcher's options a command line uses. Options of `either` can be combined with those of both launchers.
enum class Dialect { either, msrun, torchrun };

/// The options of `tsrun`, named as on the command line. An option that was not given has the default of its dialect.
struct LaunchOptions {
  Dialect dialect = Dialect::either;

  std::optional<int> worker_num, local_worker_num;  ///< msrun: workers of the job and of this host
  std::optional<int> nnodes, nproc_per_node;        ///< torchrun: hosts, and workers of each host
  std::string master_addr;                          ///< empty: 127.0.0.1
  std::optional<int> master_port;                   ///< absent: any free port on one host, else the dialect's default
  int node_rank = -1;                               ///< rank of this host; -1: the leader decides
  std::string hosts, host_file, agent = "ssh";
  std::string spares;   ///< list of spare hosts, in the format of `hosts`; they get ranks only when a host is lost
  bool spare = false;   ///< this host is a spare host
  bool shrink = false;  ///< --after_host_loss shrink: continue with fewer workers if the remaining hosts lack room

  std::string secret_file;      ///< file with the secret that all hosts share, for the same command on each host
  bool require_secret = false;  ///< refuse to start without a secret, unless the leader is on the loopback interface

  std::string log_dir;                     ///< empty: log/ in the run folder, or ./log
  std::string worker_log_name = "worker";  ///< prefix of log files; {ip} and {hostname} are replaced
  std::string tail = "-1";                 ///< local workers whose logs are shown, for example "0,2"; -1: all
  /// Stay in the foreground and show the logs; false: continue in the background.
  bool join = true;
  int cluster_time_out = 600;  ///< seconds to wait for hosts and workers; negative: no limit
  /// "False", "True" or a JSON map of cores; see bound_cores() in cores.h.
  std::string bind_core = "False";
  /// Absent: Restarts::of_held_state for a program that keeps its state in memory, else 0.
  std::optional<int> max_restarts;
  std::optional<int> restart_window;  ///< seconds in which all restarts count; absent: only restarts in a row count
  std::string left;                   ///< worker::order_to_save or worker::order_to_finish; empty: a normal start
  int lease = 15;                     ///< seconds that workers with state in memory continue after tsrun was killed
  int host_time_out = 8;              ///< seconds without a message from a host after which it is lost
  int host_lease = 6;                 ///< seconds without a message from the leader after which a host ends its workers
  int leader_time_out = 15;           ///< the same for the supervisor of a worker
  int stop_time_out = 30;             ///< seconds between the ends of the first and the last worker asked to stop
  bool keep_state = true;             ///< ENABLE_TTP: programs may keep their state in memory for the next start
  std::optional<int> save_time_out;   ///< TTP_OT: seconds for the final checkpoint of that state; absent: no limit
  std::string rank_table_file, run_id = "none", role = "default";

  /// Seconds that workers may take for a checkpoint after tsrun was killed.
  int longest_save() const { return save_time_out.value_or(600); }
  /// How long workers go on at most after the leading tsrun was killed: for the lease, then they save.
  int longest_without_leader() const {
    return static_cast<int>(std::min<std::int64_t>(INT_MAX, std::int64_t{lease} + longest_save()));
  }

  std::vector<std::string> program;  ///< command line of the program
  std::vector<std::string> notes;    ///< messages about options that are accepted and have no effect
  bool help = false, version = false, manual = false;
  std::string completion;  ///< shell whose completion script is asked for; empty: none
};

/// Reads `words` (argv without the name of the program), the PET_* variables of `environment`, which set torchrun's
/// options that are not on the command line, and the variables of MindIO TTP. Throws ConfigError that lists all
/// mistakes, one per line.
LaunchOptions read_options(const std::vector<std::string>& words,
                           const std::map<std::string, std::string>& environment);

/// Prints the text of --help: every option with its dialect and meaning, from option_table().
void print_help(std::ostream& out);

/// Numbers of workers of the job (`total`) and of this host (`local`). 0: the list of hosts decides.
struct Sizes {
  int total = 0, local = 0;
  bool one_host = true;
};
/// Returns the numbers of workers that `options` ask for. Throws ConfigError if the options are missing or contradict
/// each other.
Sizes sizes_of(const LaunchOptions& options);

}  // namespace tessera::tsrun
