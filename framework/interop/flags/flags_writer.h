#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// A recipe expressed as another program's flags.
struct WrittenFlags {
  std::vector<GivenFlag> flags;        ///< in the order of the table; `at` names the option that each comes from
  std::vector<options::Finding> lost;  ///< options that no flag of the table can express
};

/// The smallest set of flags of `table` that repeats `resolved`, a recipe with every option: read back through the
/// table, they give the same options. An option that is null is left to its default, which is also the other program's.
/// Options in `ours` ("group.key"), which only control how Tessera computes or displays results, are skipped.
WrittenFlags write_flags(const options::Value& resolved, const FlagTable& table, const options::Facts& facts,
                         const std::vector<std::string>& ours);

/// A launch script in Bash that starts `program` with `flags`, an array of words for each group of the recipe.
std::string write_script(const WrittenFlags& flags, const std::string& launcher, const std::string& program,
                         const std::vector<std::string>& head);

}  // namespace tessera::flags
