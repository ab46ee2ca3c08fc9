#pragma once

#include <span>

#include "framework/options/planned.h"

namespace tessera::recipe {

/// The rows of recipe/planned.yaml. Defined in a source that the build generates: options/planned_table.cmake.
std::span<const options::PlannedRow> planned_rows();
/// The recipe options that are not implemented yet. The object is made once and lives as long as the program.
const options::PlannedOptions& planned_options();

}  // namespace tessera::recipe
