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
  std::string_view word;                    ///< of a scalar
  std::span<const std::string_view> items;  ///< of a list
};

/// One row of a table of planned options. Rows are constants that the build generates: options/planned_source.h.
struct PlannedRow {
  std::string_view group, name;
  std::string_view type;  ///< "int or null"
  std::string_view text;
  std::string_view no_flag;                   ///< why no flag of another program sets it; may be empty
  std::span<const std::string_view> aliases;  ///< other names it is read by
  std::span<const PlannedValue> takes;        ///< the values that do not change a run; the first is the default
};

/// The type that a row calls `name`; null if a planned option cannot have it.
const ValueType* planned_type(std::string_view name);

/// Options that are known and not implemented yet, group by group. Each takes only the values that do not change a run.
class PlannedOptions {
 public:
  /// `rows` of one group follow each other; `declared_in` is the path of their table, "framework/recipe/planned.yaml".
  /// Throws BugError for a row that planned_source would have refused.
  PlannedOptions(std::span<const PlannedRow> rows, const std::string& declared_in);

  /// The groups of the table, in its order.
  std::vector<std::string> groups() const;
  /// Takes the options of the group's name from `group`; any value that would change the run is reported.
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
