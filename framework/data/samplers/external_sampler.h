#pragma once

#include "framework/data/dataset.h"

namespace tessera::data {

/// `registry` with a type `external` (Megatron-LM's --dataloader-type external): the sampler that the user's program
/// registered under this name, else a placeholder that cannot be made.
SamplerRegistry with_external(SamplerRegistry registry);

/// Whether `choice` is `external`, but no sampler was registered under this name.
bool external_is_missing(const SamplerRegistry::Choice& choice);

/// How to register one, for messages.
inline constexpr const char* how_to_register_external =
    "register one in your own program, `registries.samplers.add(\"external\", ...)` (docs/extending.md), or choose "
    "single "
    "or "
    "cyclic";

}  // namespace tessera::data
