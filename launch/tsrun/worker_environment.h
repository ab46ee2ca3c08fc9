#pragma once

#include <string>

#include "launch/tsrun/process.h"

namespace tessera::tsrun {

/// Describes one worker within the job.
struct WorkerPlace {
  int rank = 0, workers = 1;
  int full_workers = 1;  ///< number of workers at the start of the job; more than `workers` after a host was lost
  int local_rank = 0, local_workers = 1;
  int node = 0, nodes = 1;
  int machine = 0;  ///< equal for workers that are lost together: those on one machine
  std::string master_addr;
  int master_port = 0;
  /// Seconds.
  int cluster_time_out = 600;
  int restart = 0, max_restarts = 0;
  std::string run_id = "none", role = "default", rank_table_file;
  bool torchrun = false;  ///< use torchrun's rule for OMP_NUM_THREADS
  std::string job;        ///< id of the job
};

/// The environment variables that msrun and torchrun give their workers, of both launchers.
Environment dialect_variables(const WorkerPlace& place);

/// Returns `from` without the variables that make a process part of another job of MPI or tsrun. Sets HWLOC_COMPONENTS
/// unless it is given, so that hwloc looks neither for X displays, whose ports a run may use itself, nor at PCI
/// devices.
Environment without_other_jobs(const Environment& from);

/// Returns without_other_jobs(from) without Slurm's variables. For MPI's launcher and daemons, which must use only the
/// hosts that tsrun names.
Environment free_of_launchers(const Environment& from);

/// Returns the environment of a worker's program. The first source that has a variable wins:
///
///   TESSERA_LAUNCH_*       set by this function (launch_link.h)
///   variables of `mpi`     those by which MPI knows the process; `mpi` is the environment that MPI's launcher gave
///   dialect_variables()
///   variables of `host`    environment of the tsrun on that host, after without_other_jobs()
///
/// If there are several local workers and OMP_NUM_THREADS is absent, it is set: to 1 for torchrun, else to an equal
/// share of `cores`, the number of usable cores.
Environment worker_environment(const WorkerPlace& place, const Environment& host, const Environment& mpi, int cores);

}  // namespace tessera::tsrun
