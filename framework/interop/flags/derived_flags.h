#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/options/value.h"

namespace tessera::flags {

/// Options and values that depend on a flag together with other flags: rows of mappings/flags/ with `derived: RULE`.
/// `value` is the flag's value, empty for a bare flag; `recipe` has the options set by all other flags.
///
///     shared_experts       `value` x hidden size of an expert is the hidden size of the shared expert
///     first_dense_layers   the first `value` layers have no experts; -1 and 0: all layers may have experts
///     experts_over_tensor  each tensor-parallel rank has whole experts: the expert-tensor-parallel size is 1, and the
///                          expert-parallel size is multiplied by the tensor-parallel size
///     sequence_loss        adds the sequence-wise load-balancing loss to a router without another one
///
/// Throws ConfigError with the reason and advice if the flag cannot be expressed; BugError for an unknown rule. Source:
/// MindSpeed-LLM, core/transformer/{transformer_block,moe/moe_layer,moe/router}.py.
std::vector<std::pair<std::string, std::string>> derived_settings(const std::string& rule, const std::string& value,
                                                                  const options::Value& recipe);

/// A description of a rule, for docs/flags.md.
std::string describe_rule(const std::string& rule);

}  // namespace tessera::flags
