#pragma once

#include "framework/checkpoint/format.h"

namespace tessera::formats {

/// Adds every format of another program's checkpoints: "hf" (Hugging Face Transformers),
/// "mindspeed_mm" (MindSpeed-MM) and "torch" (Megatron-LM).
void add_all_formats(checkpoint::CheckpointFormats& formats);

}  // namespace tessera::formats
