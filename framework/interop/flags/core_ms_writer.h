#pragma once

#include "framework/options/group.h"
#include "framework/options/mappings.h"

namespace tessera::flags {

/// `resolved`, a recipe with every option, as the flat recipe of MindSpeed-Core-MS: what differs from its defaults or
/// from ours. What it has no key for goes to `report`. mappings/recipes/core_ms.yaml:
///
///     groups: {group: {key: default}}         its keys; one without a default must be given
///     renamed: {group.key: key}               ours -> theirs
///     words: {group.key: {ours: theirs}}
options::Value write_flat_core_ms(const options::Value& resolved, const options::Facts& facts,
                                  const options::Mappings& mappings, options::Report& report);

/// The same as its nested recipe, by mappings/recipes/nested.yaml read backwards. Options without a path there stand in
/// groups of our own beside it, which we read and it does not.
options::Value write_nested_core_ms(const options::Value& resolved, const options::Facts& facts,
                                    const options::Mappings& mappings, options::Report& report);

}  // namespace tessera::flags
