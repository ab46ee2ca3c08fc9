#pragma once

namespace tessera::tsrun {

/// Runs the supervisor of a worker, `tsrun --as-worker`, which MPI starts once for each worker. It connects to the
/// leader, receives the program, starts it with the worker's environment variables, log and cores, monitors it, and
/// reports how it ended. So the end of a program is known even if it happens before MPI_Init. The program is killed
/// when the supervisor ends. The supervisor ends when the leader is gone; if the program keeps its state in memory,
/// after a lease (guard.h). Returns the exit code.
///
/// Environment variables: TSRUN_LEADER (address:port), TSRUN_KEY (the workers' key, secret.h), TSRUN_ATTEMPT (number of
/// the start), TSRUN_FOLDERS (folders to delete when the leader is gone), OMPI_COMM_WORLD_RANK. Signals do not end it.
int run_worker();

}  // namespace tessera::tsrun
