#pragma once

#include "framework/checkpoint/format.h"

namespace tessera {

/// Adds every format of another program's checkpoints: "hf" (Hugging Face Transformers) and "torch" (Megatron-LM).
void add_all_formats(CheckpointFormats& formats);

/// A registry with these.
CheckpointFormats all_formats();

}  // namespace tessera
