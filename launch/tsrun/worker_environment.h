#pragma once

#include <string>

#include "launch/tsrun/process.h"

namespace tessera::tsrun {

/// What one worker is within the job.
struct WorkerPlace {
  int rank = 0, workers = 1;
  int full_workers = 1;  ///< that the job was started with; more than `workers` while a host is lost
  int local_rank = 0, local_workers = 1;
  int node = 0, nodes = 1;
  int machine = 0;  ///< equal for workers whose hosts are lost together
  std::string master_addr;
  int master_port = 0;
  int cluster_time_out = 600;
  int restart = 0, max_restarts = 0;
  std::string run_id = "none", role = "default", rank_table_file;
  bool torchrun = false;  ///< torchrun's rule for OMP_NUM_THREADS
  std::string job;        ///< names this tsrun among all
};

/// The variables that msrun and torchrun give their workers, both.
Environment dialect_variables(const WorkerPlace& place);

/// `from` without what binds a process to another job of MPI or Slurm.
/// HWLOC_COMPONENTS is -gl unless it is given: no search for X displays, whose ports a run may use itself.
Environment without_other_jobs(const Environment& from);

/// The same without Slurm's: for MPI's launcher and daemons, which are to see only the hosts that we name.
Environment free_of_launchers(const Environment& from);

/// What a worker's program gets: the variables of the tsrun on its host (`host`), those by which MPI knows the process
/// (`mpi`, everything that the MPI launcher gave), the dialects', TESSERA_LAUNCH_JOB and TESSERA_LAUNCH_HOST
/// (launch_link.h).
/// OMP_NUM_THREADS is set when it is not: torchrun's 1, else an equal share of `cores`.
Environment worker_environment(const WorkerPlace& place, const Environment& host, const Environment& mpi, int cores);

}  // namespace tessera::tsrun
