#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// The arguments of Megatron-LM for the run of a recipe, as its namespace has them after parsing and validation: name
/// of the argument -> value (null for None, types and enumerations as Python writes them: "torch.bfloat16").
///
/// Most are rows of `table` read backwards, from our option to their argument; the rest, and what their validation
/// changes, follow from the recipe by the rules of argument_rules(). Arguments whose rows are all `ignored` or
/// `refused` are left out. `recipe` has no mistakes and fits `world` processes. An option whose value no word of theirs
/// stands for is a problem in `report`. Source: Megatron-LM core_v0.12.1, megatron/training/arguments.py.
nlohmann::json megatron_arguments(const recipe::Recipe& recipe, std::int64_t world, const FlagTable& table,
                                  options::Report& report);

/// The arguments that are left out: those of which the table has ignored or refused rows alone.
std::set<std::string> arguments_left_out(const FlagTable& table);

/// What validation makes of arguments beyond the rows of the table, for docs/rules.md: names of rules, "M3".
std::vector<std::string> argument_rules();

}  // namespace tessera::flags
