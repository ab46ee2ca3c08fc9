#include "benchmarks/report.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "framework/base/error.h"
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

std::int64_t count_argument(int argc, char** argv, int index, std::int64_t otherwise) {
  if (index >= argc) return otherwise;
  char* end = nullptr;
  const long long count = std::strtoll(argv[index], &end, 10);
  if (end == argv[index] || *end != '\0' || count < 1) refuse_argument(argv[index], "a whole number of at least 1");
  return count;
}

int threads_argument(int argc, char** argv, int index) {
  constexpr std::int64_t most = 1024;
  const std::int64_t processors = std::max(1U, std::thread::hardware_concurrency());
  const auto count = count_argument(argc, argv, index, processors);
  if (count > most) refuse_argument(argv[index], text("at most ", most, " threads"));
  return static_cast<int>(count);
}

void refuse_argument(const char* argument, const std::string& expected) {
  std::fprintf(stderr, "argument '%s': expected %s\n", argument, expected.c_str());
  std::exit(2);
}

double seconds_on(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double stalled_seconds() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  std::getline(file, line);
  const auto at = line.find("total=");
  return at == std::string::npos ? 0 : 1e-6 * std::atof(line.c_str() + at + 6);
}

Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9), static_cast<int>(seconds.size())};
}

Repetitions summary(const std::vector<Repetition>& all) {
  std::vector<double> every, clean, processor;
  for (const auto& one : all) {
    every.push_back(one.wall);
    processor.push_back(one.processor);
    if (one.clean) clean.push_back(one.wall);
  }
  const auto undisturbed = static_cast<int>(clean.size());
  return {timing_of(clean.size() >= std::min<std::size_t>(3, all.size()) ? std::move(clean) : std::move(every)),
          timing_of(std::move(processor)), undisturbed, static_cast<int>(all.size())};
}

Storage random_floats(std::int64_t size, unsigned seed) {
  Storage values(static_cast<std::size_t>(size) * sizeof(float));
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (auto& v : values.floats()) v = draw(rng);
  return values;
}

void print_head(const char* question, int threads) {
  std::printf("%s\n  %s\n  %d threads; compiler %s, flags %s; commit %s\n", question, kernels::describe_cpu().c_str(),
              threads, __VERSION__, BENCHMARK_FLAGS, commit_of_checkout().c_str());
}

}  // namespace tessera
