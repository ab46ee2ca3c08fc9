#pragma once

namespace tessera::tsrun {

/// Number of file descriptors that each process of a job may need on a host with `local` workers: tsrun, mpirun or
/// its daemon. `led`: number of workers of the job that this tsrun leads; `hosts`: number of its hosts; 0: it does not
/// lead.
int descriptors_needed(int local, int led = 0, int hosts = 0);

/// Raises the limit of file descriptors (RLIMIT_NOFILE) of this process, which all processes that it starts inherit,
/// to the number that is needed. Throws ConfigError if the hard limit is lower.
void ensure_descriptors(int local, int led = 0, int hosts = 0);

}  // namespace tessera::tsrun
