#pragma once

#include <cstdint>
#include <string>

#include "framework/recipe/layout_figures.h"
#include "framework/recipe/memory.h"

namespace tessera::cli {

/// 1234567 as "1 234 567".
std::string grouped(std::int64_t number);
/// "1.84 MiB (1 929 216 bytes)".
std::string bytes(std::int64_t count);
/// A line of a report: two blanks, the name, the value.
void print_line(const std::string& name, const std::string& value);

/// The cut of a run for people: a line for each rank, then the pipeline with its bubble and, where it is small enough,
/// a drawing over time. `ranks_per_host` 0: hosts are not told.
std::string layout_report(const recipe::LayoutFigures& figures, std::int64_t ranks_per_host);
/// The peak of the memory of a rank of each stage by kind; with experts also what it is for other choices of the
/// tokens.
std::string memory_report(const std::vector<recipe::MemoryNeed>& needs);

}  // namespace tessera::cli
