#include "framework/base/home.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera {
namespace {

std::string home() {
  if (const char* given = std::getenv("HOME"); given != nullptr && *given != '\0') return given;
  const auto* user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
}

}  // namespace

std::string with_home(const std::string& path) {
  if (path != "~" && path.rfind("~/", 0) != 0) return path;
  const auto folder = home();
  return folder.empty() ? path : folder + path.substr(1);
}

}  // namespace tessera
