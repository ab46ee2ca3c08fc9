#pragma once

#include <string>
#include <string_view>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// The text of docs/options.md: one table per group, with the type that an option belongs to, its aliases and the flags
/// of other programs that set it; at the end the options not implemented yet.
std::string options_page(const options::Facts& facts, const FlagTable& flags);

/// `words` for a Markdown page: what a browser would take for an HTML tag, as in "<s>", is escaped outside of code.
std::string without_tags(std::string_view words);

/// The flags of the table that set `key`, "optimizer_config.betas".
std::vector<std::string> flags_to(const FlagTable& flags, const std::string& key);

}  // namespace tessera::flags
