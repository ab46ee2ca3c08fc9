#pragma once

namespace tessera::tsrun {

/// The process that MPI starts for each worker: `tsrun --as-worker`. It tells the leader that it has come, gets the
/// program from there, starts it with the worker's variables, log and cores, watches it, and tells how it ended. So
/// whatever becomes of the program, also before MPI_Init, somebody has seen it. The program dies with it, and it ends
/// when the leader is gone; if the program keeps its state in memory, after a lease (guard.h).
///
/// It reads TSRUN_LEADER (address:port), TSRUN_KEY (what it proves, secret.h), TSRUN_FOLDERS (what to delete when the
/// leader is gone) and OMPI_COMM_WORLD_RANK; signals mean nothing to it.
int run_worker();

}  // namespace tessera::tsrun
