#pragma once

#include "framework/base/json.h"
#include "framework/checkpoint/format.h"

namespace tessera::megatron {

/// Megatron-LM's arguments ('args' of a checkpoint) of the run that `save` describes. Throws ConfigError if its recipe
/// has no words for them.
Json megatron_arguments(const checkpoint::ForeignSave& save);

}  // namespace tessera::megatron
