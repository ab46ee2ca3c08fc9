#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace tessera::comm {

/// Whether a launcher with MPI support (mpirun, srun with PMI, tsrun) started this process. Otherwise MPI is never
/// initialized, and the run has one rank.
bool is_launched();

/// Name and version of the MPI library that is loaded, for example "Open MPI v4.1.4". MPI need not be initialized.
std::string describe_mpi();

/// Throws ConfigError unless `processes`, the number of ranks, is the number that the environment announces: WORLD_SIZE
/// (torchrun, tsrun), RANK_SIZE (msrun, tsrun), and Slurm's step size if srun started this process directly. Otherwise
/// a launcher without MPI may have started the processes, and each would train alone. The message names the variable
/// and the remedy.
void check_promised_size(int processes);

/// How ranks of one host communicate: through shared memory if possible, or always by MPI messages, as between hosts.
enum class Transport { fastest, messages };

class WorldState;

/// All ranks of a run. Initializes MPI if a launcher started this process, and finalizes it when destroyed. The program
/// constructs one such object; it must outlive all groups. MPI is called from one thread only (MPI_THREAD_FUNNELED).
class World {
 public:
  /// Throws CommError if not all ranks arrive within the time-out.
  explicit World(Transport transport = Transport::fastest);
  /// The first `ranks` ranks of `whole`, which outlives this object, as a run of their own: several runs follow each
  /// other in the same processes. Collective over these ranks, and waits for them without a time-out.
  World(const World& whole, int ranks);
  /// Waits for the other ranks and finalizes MPI. If an exception is being handled, or the others do not arrive within
  /// the time-out, MPI is not finalized, because MPI_Finalize would block.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return all_.rank(); }  ///< rank of this process in the run
  int size() const { return all_.size(); }  ///< number of ranks of the run
  int local_rank() const;                   ///< rank among the processes of this host
  int local_size() const;                   ///< number of processes on this host
  const std::string& host() const;          ///< name of this host
  /// The group of all ranks.
  const Communicator& all() const { return all_; }

  /// Sets how long an operation waits for the slowest member; zero: for ever. Default: 10 minutes, as in PyTorch.
  void set_time_out(std::chrono::milliseconds time) const;

  /// Ends this process at once with `exit_code`, after a failure that the other ranks may not know of and that would
  /// make them wait. Under plain mpirun or srun all ranks are aborted; under tsrun only this process ends, and the
  /// launcher stops the others. Output is flushed; destructors do not run.
  [[noreturn]] void leave(int exit_code) const noexcept;

  /// Creates the group of these world ranks, in this order. Collective over its members, which must pass the same list.
  /// A list with only this rank needs no communication. Throws CommError if the members' lists differ or a member does
  /// not arrive.
  Communicator group(const std::string& name, std::span<const int> world_ranks) const;

 private:
  explicit World(std::shared_ptr<WorldState> state);

  std::shared_ptr<WorldState> state_;
  Communicator all_;
};

/// Calls MPI_Abort, as a library may do: all processes of the run end. Tessera itself does not call it under tsrun.
[[noreturn]] void abort_all_ranks(int exit_code);

}  // namespace tessera::comm
