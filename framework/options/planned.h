#pragma once

#include <string>
#include <vector>

#include "framework/options/group.h"
#include "framework/options/option_type.h"

namespace tessera {

/// Options that are known and not implemented yet: rows of a YAML table, group by group. Each takes only the values that
/// do not change a run. The form of a row: recipe/planned.yaml.
class PlannedOptions {
 public:
  /// `table` is the text of the table, `name` its path for messages. Throws BugError if it has another form, or a row a
  /// value that its own type does not read.
  PlannedOptions(const std::string& table, const std::string& name);

  /// The groups of the table, in its order.
  std::vector<std::string> groups() const;
  /// Takes the options of the group's name from `group`; any value that would change the run is reported.
  void read(Group& group) const;

 private:
  struct Option {
    OptionFacts facts;
    const ValueType* type;
  };
  struct Options {
    std::string group;
    std::vector<Option> all;
  };
  std::vector<Options> groups_;
};

}  // namespace tessera
