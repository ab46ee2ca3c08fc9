#pragma once

#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::tsrun {

/// Whose words a command line uses. Options of both may stand beside either.
enum class Dialect { either, msrun, torchrun };

/// What `tsrun` was told, in the words of the command line. Defaults are those of the dialect.
struct LaunchOptions {
  Dialect dialect = Dialect::either;

  std::optional<int> worker_num, local_worker_num;  ///< msrun: of the whole job, of this host
  std::optional<int> nnodes, nproc_per_node;        ///< torchrun
  std::string master_addr;                          ///< empty: 127.0.0.1
  std::optional<int> master_port;                   ///< one host: any free port when absent
  int node_rank = -1;                               ///< -1: the leader decides
  std::string hosts, host_file, agent = "ssh";
  std::string spares;   ///< hosts that get ranks only when another one is lost, as `hosts`
  bool spare = false;   ///< this host is one
  bool shrink = false;  ///< --after_host_loss

  std::string secret_file;      ///< the secret of the same line on each host
  bool require_secret = false;  ///< refuse to do without one off the loopback interface

  std::string log_dir;                     ///< empty: the run folder's log/, or ./log
  std::string worker_log_name = "worker";  ///< {ip} and {hostname} are replaced
  std::string tail = "-1";                 ///< which local workers' logs are echoed; -1: all
  bool join = true;
  int cluster_time_out = 600;  ///< seconds; negative: no limit
  std::string bind_core = "False";
  std::optional<int> max_restarts;
  std::optional<int> restart_window;  ///< seconds; none: only restarts in a row count
  std::string left;          ///< "save" or "finish": worker::order_to_save, worker::order_to_finish, and nothing else
  int lease = 15;            ///< seconds that workers which keep their state continue when tsrun was killed
  int host_time_out = 8;     ///< seconds without a message from a host after which it is lost
  int host_lease = 6;        ///< seconds without a message from the leader after which a host ends its workers
  int leader_time_out = 15;  ///< the same for the process beside a worker
  int stop_time_out = 30;    ///< seconds from the end of the first worker that was asked to stop to that of the last
  bool keep_state = true;    ///< ENABLE_TTP: programs may keep their state in memory for the next start
  std::optional<int> save_time_out;  ///< TTP_OT: seconds for the checkpoint of that state when nobody continues with it
  std::string rank_table_file, run_id = "none", role = "default";

  /// Seconds that a checkpoint may take when nobody waits for it.
  int longest_save() const { return save_time_out.value_or(600); }

  std::vector<std::string> program;  ///< with its arguments
  std::vector<std::string> notes;    ///< what was read but changes nothing, a line each
  bool help = false, version = false;
};

/// Read `words` (argv without the program) and the PET_* variables, which give torchrun's options a value that the
/// command line does not. Throws ConfigError with all mistakes, a line each.
LaunchOptions read_options(const std::vector<std::string>& words,
                           const std::map<std::string, std::string>& environment);

/// What --help prints: every option with its dialect and meaning, from the table that reading uses.
void print_help(std::ostream& out);

/// How many workers there are; 0: as many as --hosts says.
struct Sizes {
  int total = 0, local = 0;
  bool one_host = true;
};
/// Throws ConfigError when the numbers do not fit together.
Sizes sizes_of(const LaunchOptions& options);

}  // namespace tessera::tsrun
