#pragma once

#include "framework/options/planned.h"

namespace tessera {

/// The options of recipes that are not implemented yet: recipe/planned.yaml, compiled into the program and read once.
const PlannedOptions& planned_options();

}  // namespace tessera
