#pragma once

#include "framework/cli/command.h"
#include "framework/report/page.h"

namespace tessera::cli {

/// Throws ConfigError if `count` runs are more than a page names by letters (26).
void check_number_of_runs(std::size_t count);

/// `tessera report`: runs as one HTML page.
void add_report_commands(Command& app, CommandContext& context);

/// What the page of `runs`, which are refreshed, shows: beside what their folders tell, the layout by their recipes,
/// the differences of these, and their checkpoints. What cannot be computed is said in the page. `runs` must outlive
/// the result.
report::Page page_of(const std::vector<const runs::RunReader*>& runs, const CommandContext& context);

}  // namespace tessera::cli
