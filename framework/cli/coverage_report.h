#pragma once

#include <string>

#include "framework/recipe/layout_figures.h"

namespace tessera::cli {

/// What a run under tsrun survives if each host has `ranks_per_host` neighbouring ranks. Pure.
resilience::Coverage coverage_of(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                                 std::int64_t ranks_per_host);
/// The same for people, with the memory of the rank that needs most. `ranks_per_host` 0: hosts are not told.
std::string coverage_report(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                            std::int64_t ranks_per_host);

}  // namespace tessera::cli
