#include "framework/base/cpu_limit.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "framework/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The quota in one file, in cores; 0: none. Version 2 has "QUOTA PERIOD" in one file, with "max" for no quota;
/// version 1 has two files, with -1 for no quota. Both in microseconds.
double quota_in(const fs::path& path) {
  std::ifstream file(path);
  double quota = 0, period = 0;
  if (!(file >> quota) || quota <= 0) return 0;
  if (!(file >> period)) std::ifstream(path.parent_path() / "cpu.cfs_period_us") >> period;
  return period > 0 ? quota / period : 0;
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const ControlGroups& where) {
  std::optional<CpuQuota> smallest;
  visit_control_groups(
      "cpu", "cpu.cfs_quota_us", "cpu.max",
      [&smallest](const fs::path& path) {
        const double cores = quota_in(path);
        if (cores > 0 && (!smallest || cores < smallest->cores))
          smallest = {cores, text("the CPU quota of the control group (", path.string(), ")")};
        return false;  // a group above may allow less
      },
      where);
  return smallest;
}

int allowed_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return CPU_COUNT(&set);
}

int usable_core_count(int allowed) {
  const auto quota = cpu_quota();
  return quota ? static_cast<int>(std::clamp<double>(quota->cores, 1, allowed)) : allowed;
}

int usable_core_count() { return usable_core_count(allowed_cores()); }

}  // namespace tessera
