#pragma once

#include <string>

#include "framework/recipe/layout_figures.h"

namespace tessera::cli {

/// Computes which losses of ranks and hosts a run under tsrun survives, if each host has `ranks_per_host` consecutive
/// ranks.
resilience::Coverage coverage_of(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                                 std::int64_t ranks_per_host);
/// A report of coverage_of for people, with the memory of the rank that needs the most. `ranks_per_host` 0: unknown;
/// nothing is said about hosts.
std::string coverage_report(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                            std::int64_t ranks_per_host);

}  // namespace tessera::cli
