#include "launch/tsrun/memory_kills.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The number behind "oom_kill" in a file of lines "name number".
std::optional<std::uint64_t> count_in(const fs::path& path) {
  std::ifstream file(path);
  std::string name;
  for (std::uint64_t count = 0; file >> name >> count;)
    if (name == "oom_kill") return count;
  return {};
}

/// The file of the group, or of the nearest folder above it that has one: inside a container a part of the path is
/// not to be seen.
std::optional<std::uint64_t> count_of_group(const fs::path& root, std::string group, const char* file) {
  for (;; group = group.substr(0, group.rfind('/'))) {
    if (const auto count = count_in(root / fs::path(group).relative_path() / file)) return count;
    if (group.empty() || group == "/") return {};
  }
}

}  // namespace

std::uint64_t memory_kills() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream parts(line);
    std::string number, controllers, group;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, group);
    std::optional<std::uint64_t> count;
    if (controllers == "memory") count = count_of_group("/sys/fs/cgroup/memory", group, "memory.oom_control");
    if (controllers.empty()) count = count_of_group("/sys/fs/cgroup", group, "memory.events");
    if (count) return *count;
  }
  return count_in("/proc/vmstat").value_or(0);
}

}  // namespace tessera
