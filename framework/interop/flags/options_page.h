#pragma once

#include <string>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// docs/options.md as text: one table a group, with the type that an option belongs to, its other names
/// and the foreign flags that lead to it; at the end what is planned.
std::string options_page(const options::Facts& facts, const FlagTable& flags);

/// The foreign flags that lead to `key`, "optimizer_config.betas".
std::vector<std::string> flags_to(const FlagTable& flags, const std::string& key);

}  // namespace tessera::flags
