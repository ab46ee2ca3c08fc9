#include "launch/tsrun/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/error.h"

namespace tessera::tsrun {
namespace {

// What was counted of tsrun and of Open MPI 4.1's mpirun, with room for those that are open only for a moment.
constexpr int of_tsrun = 32, of_mpirun = 32;
constexpr int of_state = 1;          // tsrun, for each local worker: memory for its state (JobFolders::hold)
constexpr int of_mpirun_worker = 6;  // mpirun, for each local worker: pipes and a connection

}  // namespace

int descriptors_needed(int local, int led, int hosts) {
  return std::max(of_tsrun + of_state * local + led + hosts, of_mpirun + of_mpirun_worker * local);
}

void ensure_descriptors(int local, int led, int hosts) {
  const auto needed = static_cast<rlim_t>(descriptors_needed(local, led, hosts));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const auto who = led > local ? text("a job of ", led, " workers needs on this host, which leads it,")
                               : text(local, local == 1 ? " worker needs" : " workers need", " on this host");
  if (limit.rlim_max < needed)
    throw ConfigError(text(who, " up to ", needed, " file descriptors in a process, and the hard limit is ",
                           limit.rlim_max,
                           " (ulimit -Hn): raise it (nofile in /etc/security/limits.conf, LimitNOFILE "
                           "of systemd, --ulimit nofile of docker), or start fewer workers on this host"));
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw ConfigError(text(who, " up to ", needed, " file descriptors in a process, and the limit cannot be raised: ",
                           std::strerror(errno), "; raise it with ulimit -n ", needed));
}

}  // namespace tessera::tsrun
