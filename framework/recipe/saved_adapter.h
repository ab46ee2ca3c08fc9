#pragma once

#include "framework/options/report.h"

namespace tessera::recipe {

struct Recipe;

/// Reports each way in which the adapter in lora_config.adapter differs from what lora_config says: other layers, ranks
/// or scales, other parameters beside them. How options are written does not count. A folder that is not there is not
/// reported. Constructs the model.
void check_saved_adapter(const Recipe& recipe, options::Report& report);

}  // namespace tessera::recipe
