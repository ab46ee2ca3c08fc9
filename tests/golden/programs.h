#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::golden {

/// The programs that repeat runs of several processes, as users start them.
struct Programs {
  std::filesystem::path tessera, tsrun;
  /// Those of the build that this was made in.
  static Programs built();
};

/// Run a program to its end. What it says, on both streams, is added to the file `log`. Returns its exit code, 128 + N
/// for one that a signal ended, 127 for one that cannot be started.
int run_program(const std::vector<std::string>& words, const std::filesystem::path& log);

}  // namespace tessera::golden
