#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/launch.h"
#include "framework/interop/shell/reader.h"
#include "framework/options/mappings.h"

namespace tessera::flags {

/// mappings/launchers/launchers.yaml: programs that start others.
///
///     launchers: {name: row}     the one that starts the training; a name may have several words, "accelerate launch"
///     before: {name: row}        what may stand before it
///     programs: {training: [pattern], not: [pattern]}     what counts as a training
///
/// A row: `bare`, options that take no word, all others take one; `two`, options that take two; `words`, how many words
/// that are no options stand before the program.
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
  /// The row whose name the words from `at` on begin with, "python3 -m torch.distributed.run" in any spelling; null
  /// when there is none. `at` goes behind the name.
  const Row* find(const std::vector<std::string>& words, std::size_t& at) const;

 private:
  std::vector<Row> rows_;  ///< long names first
  std::vector<std::string> training_, others_;
};

/// The launch that a program's start is. Without `program` when it is none.
Launch launch_of(const shell::StartedProgram& run, const std::vector<std::string>& files, const LauncherTable& table,
                 options::Report& report);

}  // namespace tessera::flags
