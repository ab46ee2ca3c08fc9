#pragma once

#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "framework/base/error.h"

namespace tessera {

/// An upper limit on memory.
struct MemoryLimit {
  std::uint64_t bytes = 0;  ///< the limit, in bytes
  std::string source;       ///< what sets it: "the machine's memory", "the memory limit of the control group (PATH)"
};

/// Maximum memory that all processes of this user on this host may use together: the machine's physical memory, or the
/// smallest limit of this process's control group (version 1 or 2) and the groups above it. Swap is not counted.
MemoryLimit host_memory_limit();

/// Throws ConfigError, "WHAT needs 4.00 TiB of memory; this process may have 23.43 GiB (the machine's memory)", if
/// `bytes` is above process_memory_limit(). Call it before allocating; `what` begins the message.
void require_memory(const std::string& what, std::int64_t bytes);

/// `bytes` in the largest binary unit that gives at least 1, with two decimals: "1.50 GiB"; below 1 KiB "12 bytes".
std::string in_binary_units(double bytes);

/// Maximum memory that this process may use: the smallest of host_memory_limit() and this process's limits on address
/// space and data (ulimit -v, -d).
MemoryLimit process_memory_limit();

/// The error for an allocation that failed: "WHAT: memory ran out; this process may have 1.00 GiB (ulimit -v). ...".
ConfigError out_of_memory(const std::string& what);

/// Calls `work()`. An allocation in it that fails (std::bad_alloc, std::length_error) becomes out_of_memory(what);
/// `what` names the input that was read.
template <class Work>
decltype(auto) within_memory(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw out_of_memory(what);
  } catch (const std::length_error&) {
    throw out_of_memory(what);
  }
}

}  // namespace tessera
