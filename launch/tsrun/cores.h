#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// The cores this process may use, those that share a physical core side by side.
std::vector<int> usable_cores();

/// What --bind_core means for worker `local` of `locals` on a host with these `cores`: empty for False (not bound);
/// for True its equal share of whole neighbouring cores, shared when there are fewer cores than workers; for a map
/// {"device0": ["0-3", "8"], ...} the cores of "device<local>". Throws ConfigError when the map does not say or says
/// what it may not use.
std::vector<int> bound_cores(const std::string& bind_core, int local, int locals, const std::vector<int>& cores);

/// "0-3,8".
std::string core_list(std::vector<int> cores);

}  // namespace tessera::tsrun
