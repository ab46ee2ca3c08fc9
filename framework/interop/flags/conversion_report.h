#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/source.h"

namespace tessera::flags {

/// How many flags have each status, in the order of FlagStatus.
std::vector<std::size_t> count_by_status(const std::vector<ConvertedFlag>& flags);

/// The command that starts the same training with Tessera, in the way the script starts it; empty if there is no
/// launch. `recipe` is the file that was written.
std::string start_line(const Source& source, const std::string& recipe);

/// report.json: {source, kind, from, from_why, launcher: {name, program, options, start, environment},
/// flags: [{flag, values, status, to, why, file, line[, only_where]}], unknown: [{name, used_by, file, line, give}],
/// undecided: [{condition, file, line, needs, flags, remedy}], problems, notes, counts}. Flags of branches that were
/// not taken have `only_where` and do not count.
std::string report_json(const Source& source, const std::string& file, const std::string& recipe,
                        const options::Report& report);

/// The report for people: one line per flag, and the counts. Ignored flags are listed only if `verbose`.
std::string report_table(const Source& source, bool verbose);

/// The values that the script leaves to its caller and that flags of the recipe use, one line each, with the option
/// that sets it.
std::vector<std::string> caller_values(const Source& source);

/// The lines at the head of a written recipe: its source, how to start it, which values to fill in.
std::vector<std::string> head_of(const Source& source, const std::string& file, const std::string& recipe);

}  // namespace tessera::flags
