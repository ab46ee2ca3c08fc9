#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/launch.h"
#include "framework/interop/shell/reader.h"
#include "framework/options/mappings.h"

namespace tessera::flags {

/// mappings/launchers/launchers.yaml: programs that start other programs.
///
///     launchers: {name: row}     programs that start the training; a name may have several words, "accelerate launch"
///     before: {name: row}        programs that may precede them
///     programs: {training: [pattern], not: [pattern]}     program names that are, or are not, a training
///
/// A row: `bare`, options without a value, all others have one; `two`, options with two values; `words`, the number of
/// positional arguments before the program.
class LauncherTable {
 public:
  explicit LauncherTable(const options::Mappings& mappings);

  struct Row {
    std::string name;
    std::vector<std::string> bare, two;
    int words = 0;
    bool before = false;
  };

  /// Whether a program of this name, "examples/pretrain_gpt.py", trains.
  bool trains(const std::string& program) const;
  /// The row whose name matches the words from `at` on, "python3 -m torch.distributed.run" in any spelling; null if
  /// there is none. `at` is moved past the name. Owned by this object.
  const Row* find(const std::vector<std::string>& words, std::size_t& at) const;

 private:
  std::vector<Row> rows_;  ///< long names first
  std::vector<std::string> training_, others_;
};

/// Converts the start of a program to a launch; its `program` is empty if it is not a training launch.
Launch launch_of(const shell::StartedProgram& run, const std::vector<std::string>& files, const LauncherTable& table,
                 options::Report& report);

}  // namespace tessera::flags
