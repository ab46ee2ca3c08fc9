#pragma once

#include <cstdint>
#include <string>

#include "framework/recipe/layout_figures.h"
#include "framework/recipe/memory.h"

namespace tessera::cli {

/// 1234567 as "1 234 567".
std::string grouped(std::int64_t number);
/// "1.23e+12".
std::string operations(double flops);
/// "1.84 MiB (1 929 216 bytes)".
std::string bytes(std::int64_t count);
/// Prints a line of a report: two blanks, `name`, `value`.
void print_line(const std::string& name, const std::string& value);

/// The parallel layout of a run for people: one line per rank, then the pipeline with its bubble and, if it is small
/// enough, a timeline drawing. `ranks_per_host` 0: unknown; nothing is said about hosts.
std::string layout_report(const recipe::LayoutFigures& figures, std::int64_t ranks_per_host);
/// The peak memory of a rank of each stage, by purpose; with experts, also for other routings of the tokens.
std::string memory_report(const std::vector<recipe::MemoryNeed>& needs);

}  // namespace tessera::cli
