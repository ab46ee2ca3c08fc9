#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// What a row of a flag table comes to, whatever value the flag has.
enum class RowStatus {
  runs,     ///< it sets options that are built, or that change nothing whatever they are
  ignored,  ///< dropping it changes no result
  planned,  ///< a value that changes something is refused by name until its option is built
  refused   ///< the converter stops at it
};
std::string word_of(RowStatus status);
RowStatus status_of(const FlagRow& row, const options::Facts& facts);

/// How many flags of `table` have which status.
std::map<RowStatus, int> count_by_status(const FlagTable& table, const options::Facts& facts);

/// docs/flags.md as text: the flags of every table of mappings/flags/ with what they become and why, and how many have
/// which status. Of a table with a base only what differs from that is listed; its counts have all.
std::string flags_page(const options::Facts& facts, const options::Mappings& mappings);

/// What the tables say of one flag, a block of lines for those that say the same; `flag` is "--adam-beta2", or the
/// name of its argument, "adam_beta2". Throws ConfigError with the nearest flag when there is none.
std::string flag_details(const std::string& flag, const options::Facts& facts, const options::Mappings& mappings);

}  // namespace tessera::flags
