#pragma once

#include <filesystem>
#include <functional>

namespace tessera {

/// Where the system describes the control groups of this process; tests give other places.
struct ControlGroups {
  std::filesystem::path groups = "/proc/self/cgroup";
  std::filesystem::path root = "/sys/fs/cgroup";
};

/// Searches the folders of this process's control group for one controller ("memory", "cpu"), from the group itself up
/// to the root of the hierarchy: inside a container a part of the path is not visible. Calls `visit` with the path of
/// each candidate file: `version1` in a hierarchy of cgroup version 1, `version2` in one of version 2. `visit` returns
/// true to end the search. Returns whether a call of `visit` returned true.
bool visit_control_groups(const char* controller, const char* version1, const char* version2,
                          const std::function<bool(const std::filesystem::path&)>& visit,
                          const ControlGroups& where = {});

}  // namespace tessera
