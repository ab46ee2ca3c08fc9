#include "framework/base/control_group.h"

#include <fstream>
#include <sstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool visit_upwards(const fs::path& root, std::string group, const char* file,
                   const std::function<bool(const fs::path&)>& visit) {
  for (;; group = group.substr(0, group.rfind('/'))) {
    if (visit(root / fs::path(group).relative_path() / file)) return true;
    if (group.empty() || group == "/") return false;
  }
}

/// Whether the list "cpu,cpuacct" has the controller.
bool has(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

/// The mount point of a version 1 hierarchy: named after the controller, or after all that share it.
fs::path hierarchy(const fs::path& root, const std::string& controllers, const std::string& controller) {
  std::error_code absent;
  return root / (fs::exists(root / controller, absent) ? controller : controllers);
}

}  // namespace

bool visit_control_groups(const char* controller, const char* version1, const char* version2,
                          const std::function<bool(const fs::path&)>& visit, const ControlGroups& where) {
  std::ifstream groups(where.groups);
  for (std::string line; std::getline(groups, line);) {
    std::istringstream parts(line);
    std::string number, controllers, group;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, group);
    if (has(controllers, controller) &&
        visit_upwards(hierarchy(where.root, controllers, controller), group, version1, visit))
      return true;
    if (controllers.empty() && visit_upwards(where.root, group, version2, visit)) return true;
  }
  return false;
}

}  // namespace tessera
