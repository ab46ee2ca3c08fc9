#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// One option: how it is written, which dialect has it, what it means and what it does.
struct OptionRow {
  std::string name;   ///< for example "--worker_num"; '-' and '_' inside the name are equivalent
  std::string brief;  ///< short form such as "-r"; empty: none
  Dialect dialect;
  std::string value;  ///< placeholder of the value in the help, for example "N"; empty: the option takes no value
  std::string meaning;
  /// Stores `value` in the options. Throws ConfigError, without the option's name, if the value is wrong.
  std::function<void(LaunchOptions&, const std::string& value)> put;
};

/// Every option of `tsrun`, in the order of the help.
std::vector<OptionRow> option_table();

/// The environment variables of MindIO TTP that tsrun reads, in the same form.
std::vector<OptionRow> ttp_table();

}  // namespace tessera::tsrun
