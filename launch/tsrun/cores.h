#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// The cores (logical processors, as the system numbers them) that this process may use. Hyperthreads of one physical
/// core and cores of one socket are next to each other.
std::vector<int> usable_cores();

/// Returns the cores for local worker `local` of `locals` workers on a host whose usable cores are `cores`, as
/// --bind_core says:
///
///   False                          empty: the worker is not bound
///   True                           an equal share of neighbouring cores; with fewer cores than workers one core, which
/// several workers may share
///   {"device0": ["0-3", "8"], ...}  the cores of "device<local>"
///
/// Throws ConfigError if the map is malformed, has no entry for `local`, or names a core that is not in `cores`.
std::vector<int> bound_cores(const std::string& bind_core, int local, int locals, const std::vector<int>& cores);

/// Formats a set of cores as ranges, for example "0-3,8".
std::string core_list(std::vector<int> cores);

}  // namespace tessera::tsrun
