#pragma once

#include <set>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// The arguments of Megatron-LM for the run of a recipe, as its namespace has them after parsing and validation: name
/// of the argument -> value (null for None; types and enumerations as Python prints them: "torch.bfloat16").
///
/// Most follow from rows of `table` in reverse, from our option to their argument; the others, and the changes made by
/// validation, follow by the rules of argument_rules(). Arguments that have only `ignored` or `refused` rows are
/// omitted. `recipe` has no mistakes and fits `world` ranks. An option whose value no word of Megatron-LM expresses is
/// a problem in `report`. Source: Megatron-LM core_v0.12.1, megatron/training/arguments.py.
Json megatron_arguments(const recipe::Recipe& recipe, std::int64_t world, const FlagTable& table,
                        options::Report& report);

/// The omitted arguments: those for which the table has only ignored or refused rows.
std::set<std::string> arguments_left_out(const FlagTable& table);

/// Names ("M3") of the rules by which validation changes arguments beyond the rows of the table, for docs/rules.md.
std::vector<std::string> argument_rules();

}  // namespace tessera::flags
