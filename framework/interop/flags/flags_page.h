#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// Status of a row of a flag table, independent of the flag's value.
enum class RowStatus {
  runs,     ///< it sets implemented options, or options that never change anything
  ignored,  ///< dropping it changes no result
  planned,  ///< a value that changes something is refused until its option is implemented
  refused   ///< the converter stops at it
};
std::string word_of(RowStatus status);
RowStatus status_of(const FlagRow& row, const options::Facts& facts);

/// Number of flags of `table` with each status.
std::map<RowStatus, int> count_by_status(const FlagTable& table, const options::Facts& facts);

/// The text of docs/flags.md: the flags of every table of mappings/flags/, their conversion and its reason, and the
/// number of flags with each status. For a table with a base, only differences from the base are listed; its counts
/// include all flags.
std::string flags_page(const options::Facts& facts, const options::Mappings& mappings);

/// Describes one flag in all tables, one block of lines for tables with the same row. `flag` is "--adam-beta2", or the
/// name of its argument, "adam_beta2". Throws ConfigError with the nearest flag if there is none.
std::string flag_details(const std::string& flag, const options::Facts& facts, const options::Mappings& mappings);

}  // namespace tessera::flags
