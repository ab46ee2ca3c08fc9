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

/// All processes of a run. Initialises MPI when this process was launched, and ends it when destroyed. Made once, by
/// the program; outlives all groups.
class World {
 public:
  World();
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

  /// The group of these ranks of the world, in this order; called by its members, who give the same list. A list of
  /// this rank alone needs no other process.
  Communicator group(const std::string& name, std::span<const int> world_ranks) const;

 private:
  struct Process;
  std::unique_ptr<Process> process_;
  Communicator all_;
};

}  // namespace tessera
