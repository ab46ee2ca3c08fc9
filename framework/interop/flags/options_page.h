#pragma once

#include <string>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// The text of docs/options.md: one table per group, with the type that an option belongs to, its aliases and the flags
/// of other programs that set it; at the end the options not implemented yet.
std::string options_page(const options::Facts& facts, const FlagTable& flags);

/// The flags of the table that set `key`, "optimizer_config.betas".
std::vector<std::string> flags_to(const FlagTable& flags, const std::string& key);

}  // namespace tessera::flags
