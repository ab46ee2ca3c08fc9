#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace tessera {

/// Whether a launcher (mpirun, srun with PMI, tsrun) started this process. One that nobody launched never initialises
/// MPI and is alone.
bool is_launched();

/// Whether so many processes are what those promised who started them: WORLD_SIZE (torchrun, tsrun), RANK_SIZE (msrun,
/// tsrun), and Slurm, where srun started this process itself. Throws ConfigError saying who promised what, and what to
/// do: processes that a launcher without MPI started would each train alone.
void check_promised_size(int processes);

/// How bytes travel between processes of one host: through memory that they share, or as messages, as between hosts.
enum class Transport { fastest, messages };

class Run;

/// All processes of a run. Initialises MPI when this process was launched, and ends it when destroyed. Made once, by
/// the program; outlives all groups.
class World {
 public:
  explicit World(Transport transport = Transport::fastest);
  /// Waits for the others and ends MPI. When an exception is under way, or the others do not come within the time-out,
  /// it leaves MPI as it is, so that this process can go.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return all_.rank(); }
  int size() const { return all_.size(); }
  int local_rank() const;           ///< among the processes of this host
  int local_size() const;           ///< processes on this host
  const std::string& host() const;  ///< its name
  const Communicator& all() const { return all_; }

  /// How long an operation waits for the slowest member; forever when zero. 10 minutes at first, as in PyTorch.
  void set_time_out(std::chrono::milliseconds time) const;

  /// End this process at once with `exit_code`, whatever the others do: for a failure that they may not know of and
  /// that would let them wait. Under a plain mpirun or srun all processes of the run end with it; under tsrun this one
  /// goes, and the launcher stops the others. What was printed is flushed; destructors do not run.
  [[noreturn]] void leave(int exit_code) const noexcept;

  /// The group of these ranks of the world, in this order; called by its members, who give the same list. A list of
  /// this rank alone needs no other process.
  Communicator group(const std::string& name, std::span<const int> world_ranks) const;

 private:
  std::shared_ptr<Run> run_;
  Communicator all_;
};

}  // namespace tessera
