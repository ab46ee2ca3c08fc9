#include "launch/tsrun/cores.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace tessera::tsrun {
namespace {

/// Logical processors in the order of hwloc's tree: hyperthreads of a core and cores of a socket are neighbours.
std::vector<int> order_of_the_machine() {
  std::vector<int> order;
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) != 0) return order;
  hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");  // as for the workers' MPI
  if (hwloc_topology_load(machine) == 0) {
    const int count = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_PU);
    for (int i = 0; i < count; i++)
      order.push_back(
          static_cast<int>(hwloc_get_obj_by_type(machine, HWLOC_OBJ_PU, static_cast<unsigned>(i))->os_index));
  }
  hwloc_topology_destroy(machine);
  return order;
}

void add_range(const std::string& range, std::vector<int>& cores) {
  const auto dash = range.find('-');
  try {
    const int first = std::stoi(range), last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
    if (first < 0 || last < first) throw std::out_of_range("order");
    for (int core = first; core <= last; core++) cores.push_back(core);
  } catch (const std::logic_error&) {
    throw ConfigError(text("--bind_core: '", range, "' is not a range of cores such as 0-3"));
  }
}

std::vector<int> mapped_cores(const std::string& map, int local) {
  const auto all = parse_json(map);
  if (!all.is_object())
    throw ConfigError(text("--bind_core: '", map, "' is not a JSON map such as {\"device0\": [\"0-3\"]}"));
  const auto device = all.find(text("device", local));
  if (device == nullptr) throw ConfigError(text("--bind_core: the map has no entry \"device", local, "\""));
  std::vector<int> cores;
  for (const auto& entry : device->is_array() ? *device : Json::array({*device})) {
    std::istringstream ranges(entry.is_string() ? entry.string() : entry.dump());
    for (std::string range; std::getline(ranges, range, ',');) add_range(range, cores);
  }
  return cores;
}

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {0};
  auto order = order_of_the_machine();
  if (order.empty())
    for (int core = 0; core < CPU_SETSIZE; core++) order.push_back(core);
  order.erase(std::remove_if(order.begin(), order.end(),
                             [&](int core) { return !CPU_ISSET(static_cast<std::size_t>(core), &allowed); }),
              order.end());
  return order;
}

std::vector<int> bound_cores(const std::string& bind_core, int local, int locals, const std::vector<int>& cores) {
  if (!bind_core.empty() && bind_core[0] == '{') {
    const auto chosen = mapped_cores(bind_core, local);
    for (const int core : chosen)
      if (std::find(cores.begin(), cores.end(), core) == cores.end())
        throw ConfigError(
            text("--bind_core: device", local, " wants core ", core, "; this process may use ", core_list(cores)));
    return chosen;
  }
  if (bind_core.empty() || (bind_core[0] != 'T' && bind_core[0] != 't')) return {};
  const auto count = static_cast<std::ptrdiff_t>(cores.size());
  if (count < locals) return {cores[static_cast<std::size_t>(local) % cores.size()]};
  return {cores.begin() + count * local / locals, cores.begin() + count * (local + 1) / locals};
}

std::string core_list(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  std::string all;
  for (std::size_t i = 0; i < cores.size();) {
    auto last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) last++;
    if (!all.empty()) all += ",";
    all += last > i ? text(cores[i], "-", cores[last]) : text(cores[i]);
    i = last + 1;
  }
  return all;
}

}  // namespace tessera::tsrun
