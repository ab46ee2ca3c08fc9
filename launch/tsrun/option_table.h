#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// One option: how it is written, who has it, what it means and what it does.
struct OptionRow {
  std::string name;   ///< "--worker_num"; names with _ are also read with -
  std::string brief;  ///< "-r", or empty
  Dialect dialect;
  std::string value;  ///< "N" in the help; empty: takes none
  std::string meaning;
  /// Puts the value into the options; throws ConfigError with what is wrong about it.
  std::function<void(LaunchOptions&, const std::string& value)> put;
};

/// Every option of `tsrun`, in the order of the help.
std::vector<OptionRow> option_table();

/// The environment variables of MindIO TTP that tsrun reads, as rows of the table.
std::vector<OptionRow> ttp_table();

}  // namespace tessera::tsrun
