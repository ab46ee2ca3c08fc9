#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// A recipe expressed as another program's flags.
struct WrittenFlags {
  std::vector<GivenFlag> flags;        ///< in the order of the table; `at` names the option that each comes from
  std::vector<options::Finding> lost;  ///< options that no flag of the table can express
};

/// The smallest set of flags of `table` that repeats `recipe`: read back through the table, they give the same options.
/// An option that is null is left out if the other program derives its default too; if that has a default of its own,
/// the derived default is written. Flags without effect that Megatron-LM demands beside others are added, so that its
/// rules hold (megatron_rules.h). --save is written if the recipe gives its folder or an interval; for a run that saves
/// only at the end, with an interval as long as the run. Options in `ours` ("group.key"), which only control how
/// Tessera computes or displays results, are skipped.
WrittenFlags write_flags(const recipe::Recipe& recipe, const FlagTable& table, const std::vector<std::string>& ours);

/// A launch script in Bash that starts `program` with `flags`, an array of words for each group of the recipe.
std::string write_script(const WrittenFlags& flags, const std::string& launcher, const std::string& program,
                         const std::vector<std::string>& head);

}  // namespace tessera::flags
