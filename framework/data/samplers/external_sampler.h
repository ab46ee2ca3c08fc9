#pragma once

#include "framework/data/dataset.h"

namespace tessera::data {

/// `registry` in which the type `external` exists: the sampler that the user's program registered under this name, else
/// a type that only stands for it and that cannot be made (Megatron-LM's --dataloader-type external).
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
