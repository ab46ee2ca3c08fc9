#include "launch/tsrun/memory_kills.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "framework/base/control_group.h"

namespace tessera::tsrun {
namespace {

namespace fs = std::filesystem;

/// The number after "oom_kill" in a file with lines "name number".
std::optional<std::uint64_t> count_in(const fs::path& path) {
  std::ifstream file(path);
  std::string name;
  for (std::uint64_t count = 0; file >> name >> count;)
    if (name == "oom_kill") return count;
  return {};
}

}  // namespace

std::uint64_t memory_kills() {
  std::optional<std::uint64_t> count;
  visit_control_groups("memory", "memory.oom_control", "memory.events", [&count](const fs::path& path) {
    count = count_in(path);
    return count.has_value();
  });
  return count ? *count : count_in("/proc/vmstat").value_or(0);
}

}  // namespace tessera::tsrun
