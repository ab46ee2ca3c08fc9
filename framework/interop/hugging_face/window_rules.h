#pragma once

#include <string>
#include <vector>

#include "framework/interop/hugging_face/converted_config.h"

namespace tessera::hugging_face {

// The rules of config_rules.h about sliding windows.

void read_upper_windows(ConvertedConfig& config);
void read_alternate_windows(ConvertedConfig& config);
void read_periodic_windows(ConvertedConfig& config);
void read_common_window(ConvertedConfig& config);
void write_layer_windows(ConvertedConfig& config);
void write_listed_windows(ConvertedConfig& config);
void write_common_window(ConvertedConfig& config);

}  // namespace tessera::hugging_face
