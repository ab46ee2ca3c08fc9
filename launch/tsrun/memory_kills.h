#pragma once

#include <cstdint>

namespace tessera::tsrun {

/// Number of processes that the system's out-of-memory killer has killed so far: in this process's cgroup (version 1 or
/// 2), or on the whole machine if the cgroup does not count them. 0 if unknown.
std::uint64_t memory_kills();

}  // namespace tessera::tsrun
