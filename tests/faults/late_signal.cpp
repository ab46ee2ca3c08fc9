// Preloaded into a program (LD_PRELOAD): a rank that has left main gets SIGTERM once more, as from a launcher that was
// slow to pass it on. LATE_SIGNAL_RANK: that rank (RANK of its environment).
#include <errno.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>

namespace {

__attribute__((destructor)) void signal_late() {
  const auto *rank = std::getenv("RANK"), *wanted = std::getenv("LATE_SIGNAL_RANK");
  if (rank == nullptr || wanted == nullptr || std::strcmp(rank, wanted) != 0) return;
  if (std::strcmp(program_invocation_short_name, "tessera") == 0) raise(SIGTERM);
}

}  // namespace
