#include "framework/base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "framework/base/control_group.h"
#include "framework/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void lower(MemoryLimit& limit, std::uint64_t bytes, const std::string& source) {
  if (bytes < limit.bytes) limit = {bytes, source};
}

}  // namespace

MemoryLimit host_memory_limit() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  MemoryLimit limit{static_cast<std::uint64_t>(-1), "no known limit"};
  if (pages > 0 && page > 0)
    limit = {static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page), "the machine's memory"};
  visit_control_groups("memory", "memory.limit_in_bytes", "memory.max", [&limit](const fs::path& path) {
    std::ifstream file(path);
    std::uint64_t bytes = 0;  // the word "max" is not a number, and no limit
    if (file >> bytes) lower(limit, bytes, text("the memory limit of the control group (", path.string(), ")"));
    return false;  // a group above may allow less
  });
  return limit;
}

MemoryLimit process_memory_limit() {
  auto limit = host_memory_limit();
  rlimit one{};
  if (::getrlimit(RLIMIT_AS, &one) == 0 && one.rlim_cur != RLIM_INFINITY)
    lower(limit, one.rlim_cur, "the limit on address space (ulimit -v)");
  if (::getrlimit(RLIMIT_DATA, &one) == 0 && one.rlim_cur != RLIM_INFINITY)
    lower(limit, one.rlim_cur, "the limit on data (ulimit -d)");
  return limit;
}

std::string in_binary_units(double bytes) {
  constexpr std::array<const char*, 7> units = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << bytes << " " << units[unit];
  return out.str();
}

void require_memory(const std::string& what, std::int64_t bytes) {
  const auto limit = process_memory_limit();
  if (bytes > 0 && static_cast<std::uint64_t>(bytes) > limit.bytes)
    throw ConfigError(text(what, " needs ", in_binary_units(static_cast<double>(bytes)),
                           " of memory; this process may have ", in_binary_units(static_cast<double>(limit.bytes)),
                           " (", limit.source, ")"));
}

ConfigError out_of_memory(const std::string& what) {
  const auto limit = process_memory_limit();
  return ConfigError(text(what, ": memory ran out; this process may have ",
                          in_binary_units(static_cast<double>(limit.bytes)), " (", limit.source,
                          "). Allow it more memory, or give it less to read at once"));
}

}  // namespace tessera
