#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/options/value.h"

namespace tessera::flags {

/// Options and values that a flag says together with other flags: rows of mappings/flags/ with `derived: RULE`. `value`
/// is the flag's, empty for a bare one; `recipe` what all other flags say.
///
///     shared_experts       value x hidden size of an expert is that of the shared expert
///     first_dense_layers   the first `value` layers have no experts; -1 and 0: all have some
///     experts_over_tensor  tensor-parallel ranks have whole experts: the expert-parallel size is that many times
///                          larger
///     sequence_loss        the sequence-wise load-balancing loss joins a router without another one
///
/// Throws ConfigError with the reason and what to do if the flag cannot be expressed, or BugError for another rule.
/// Source: MindSpeed-LLM, core/transformer/{transformer_block,moe/moe_layer,moe/router}.py.
std::vector<std::pair<std::string, std::string>> derived_settings(const std::string& rule, const std::string& value,
                                                                  const options::Value& recipe);

/// What a rule makes, for docs/flags.md.
std::string describe_rule(const std::string& rule);

}  // namespace tessera::flags
