#include "benchmarks/report.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "framework/kernels/cpu.h"

namespace tessera {
namespace {

std::string output_of(const std::string& command) {
  std::string out;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char part[256];
    while (fgets(part, sizeof part, pipe) != nullptr) out += part;
    pclose(pipe);
  }
  return out;
}

std::string commit_of_checkout() {
  const std::string git = "git -C '" BENCHMARK_SOURCE_DIR "' ";
  std::string commit = output_of(git + "rev-parse --short HEAD 2>/dev/null");
  if (commit.empty()) return "unknown";
  commit.pop_back();
  return output_of(git + "status --porcelain --untracked-files=no 2>/dev/null").empty() ? commit : commit + "+";
}

}  // namespace

double seconds_on(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_head(const char* question, int threads) {
  std::printf("%s\n  %s\n  %d threads; compiler %s, flags %s; commit %s\n", question, kernels::describe_cpu().c_str(),
              threads, __VERSION__, BENCHMARK_FLAGS, commit_of_checkout().c_str());
}

}  // namespace tessera
