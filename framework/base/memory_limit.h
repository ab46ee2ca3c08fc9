#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tessera {

/// Look for a file of this process's control group for memory, from the group itself up to the root: inside a container
/// a part of the path is not visible. `visit` gets the path of each candidate, the file `version1` or `version2` by the
/// version of the hierarchy, and returns true to end the search. Returns whether it did.
bool visit_memory_group(const char* version1, const char* version2,
                        const std::function<bool(const std::filesystem::path&)>& visit);

/// A number of bytes, and what sets it: "the machine's memory", "the memory limit of the control group (PATH)".
struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string source;
};

/// Most memory that the processes of this user on this host may have together: the machine's, or the smallest limit of
/// their control group (version 1 or 2) and of the groups above it. Swap does not count.
MemoryLimit host_memory_limit();

/// Throws ConfigError, "WHAT needs 4.00 TiB of memory; this process may have 23.43 GiB (the machine's memory)", when
/// this process may not have so many bytes. To be asked before they are allocated.
void require_memory(const std::string& what, std::int64_t bytes);

/// "1.50 GiB"
std::string in_binary_units(double bytes);

/// Most memory that this process may have: the above, or its limit on address space or data (ulimit -v, -d).
MemoryLimit process_memory_limit();

}  // namespace tessera
