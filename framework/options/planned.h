#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options/group.h"
#include "framework/options/option_type.h"

namespace tessera::options {

/// A value of a planned option: null, one word or a list of words.
struct PlannedValue {
  Value::Kind kind = Value::Kind::none;
  std::string_view word;                    ///< of kind scalar
  std::span<const std::string_view> items;  ///< of kind list
};

/// One row of a table of planned options. Rows are constants that the build generates: options/planned_source.h.
struct PlannedRow {
  std::string_view group, name;
  std::string_view type;  ///< "int or null"
  std::string_view text;
  std::string_view no_flag;                   ///< why no flag of another program sets it; may be empty
  std::span<const std::string_view> aliases;  ///< other accepted names
  std::span<const PlannedValue> takes;  ///< the accepted values, which do not change a run; the first is the default
};

/// The type with this name in a row; null if planned options do not support it. Valid as long as the program runs.
const ValueType* planned_type(std::string_view name);

/// Options that are known but not implemented yet, group by group. Each accepts only values that do not change a run.
class PlannedOptions {
 public:
  /// `rows` of one group follow each other; `declared_in` is the path of their table, "framework/recipe/planned.yaml".
  /// Throws BugError for a row that planned_source would have refused.
  PlannedOptions(std::span<const PlannedRow> rows, const std::string& declared_in);

  /// The groups of the table, in its order.
  std::vector<std::string> groups() const;
  /// Takes the planned options of the group's name from `group`, and reports every value that would change the run.
  void read(Group& group) const;

 private:
  struct Option {
    OptionFacts facts;
    const ValueType* type;
  };
  struct OptionsOfGroup {
    std::string group;
    std::vector<Option> all;
  };
  std::vector<OptionsOfGroup> groups_;
};

}  // namespace tessera::options
