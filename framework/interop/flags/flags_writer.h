#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// A recipe in another program's flags.
struct WrittenFlags {
  std::vector<GivenFlag> flags;        ///< in the order of the table; `at` says which option each is from
  std::vector<options::Finding> lost;  ///< options that say something which no flag of the table says
};

/// The fewest flags of `table` that repeat `resolved`, a recipe with every option: read back through the table they
/// give the same options. An option that is null is left to its default, which is theirs too. Options that only tell
/// how results are computed or shown here (`ours`, "group.key") are passed over.
WrittenFlags write_flags(const options::Value& resolved, const FlagTable& table, const options::Facts& facts,
                         const std::vector<std::string>& ours);

/// A launch script in Bash that starts `program` with `flags`, an array of words for each group of the recipe.
std::string write_script(const WrittenFlags& flags, const std::string& launcher, const std::string& program,
                         const std::vector<std::string>& head);

}  // namespace tessera::flags
