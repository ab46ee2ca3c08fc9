#pragma once

#include <string>

#include "framework/base/json.h"
#include "framework/checkpoint/format.h"

namespace tessera::megatron {

/// Megatron-LM's arguments ('args' of a checkpoint) of the run that `save` describes. Throws ConfigError if its recipe
/// has no words for them.
Json megatron_arguments(const checkpoint::ForeignSave& save);

/// Whether such arguments give the embedding and the output layer a learning rate of their own.
bool has_decoupled_rate(const Json& arguments);

/// The recipe groups that arguments of Megatron-LM, an object, describe. Throws ConfigError, beginning with `speaker`,
/// for arguments that have no words here.
options::Value recipe_of_arguments(const Json& arguments, const std::string& speaker,
                                   const options::Mappings& mappings);

}  // namespace tessera::megatron
