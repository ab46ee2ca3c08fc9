#pragma once

#include "framework/interop/hugging_face/converted_config.h"

namespace tessera::hugging_face {

// The rule of config_rules.h about the layers of Falcon, whose three generations differ in heads and norms.

void read_falcon_layers(ConvertedConfig& config);
void write_falcon_layers(ConvertedConfig& config);

}  // namespace tessera::hugging_face
