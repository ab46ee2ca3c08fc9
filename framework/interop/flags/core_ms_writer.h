#pragma once

#include "framework/options/group.h"
#include "framework/options/mappings.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// Converts `recipe` to the flat recipe of MindSpeed-Core-MS: the options that differ from its defaults or from ours.
/// For an option that is null, its derived default counts. Options for which it has no key are reported to `report`.
/// mappings/recipes/core_ms.yaml:
///
///     groups: {group: {key: default}}         its keys; `required`: it has no default
///     renamed: {group.key: key}               ours -> theirs
///     words: {group.key: {ours: theirs}}
options::Value write_flat_core_ms(const recipe::Recipe& recipe, const options::Mappings& mappings,
                                  options::Report& report);

/// Converts `resolved` to the nested recipe of MindSpeed-Core-MS, by mappings/recipes/nested.yaml in reverse. Options
/// without a path there are written in groups of our own, which Tessera reads and MindSpeed-Core-MS does not.
options::Value write_nested_core_ms(const options::Value& resolved, const options::Facts& facts,
                                    const options::Mappings& mappings, options::Report& report);

}  // namespace tessera::flags
