#pragma once

#include <string>

#include "framework/report/page.h"

// Parts of the page, as HTML; empty if there is nothing to show.
namespace tessera::report {

/// What the runs are: name, id, state, hosts, sizes, and the line that repeats each. `keys_without_chart`:
/// ChartList::left_out.
std::string runs_section(const Page& page, std::size_t keys_without_chart);
std::string events_section(const Page& page);
/// Foreseen memory beside the measured peak, by purpose.
std::string memory_section(const Page& page);
/// Loads of experts over layers and iterations.
std::string experts_section(const Page& page);
/// The time of a step: by the trace of the profiler if the run has one, else by its metrics.
std::string timeline_section(const Page& page);
std::string layout_section(const Page& page);
std::string recipe_section(const Page& page);
std::string differences_section(const Page& page);
std::string checkpoints_section(const Page& page);

/// "2026-01-31 23:59:59 UTC"; empty for a time before 1970 or after the year 9000.
std::string date_text(double seconds);

/// What stands before a part that belongs to one run: nothing if there is only one.
std::string run_heading(const Page& page, std::size_t run);

}  // namespace tessera::report
