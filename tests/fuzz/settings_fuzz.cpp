// JSON files of settings that a script of MindSpeed-MM names (model.json, data.json, tools.json): problems are told, or
// each key has a status.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/json_keys.h"
#include "framework/recipe/recipe.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const auto table = flags::FlagTable::named("mindspeed-mm", options::Mappings());
  static const auto facts = recipe::all_facts(recipe::Registries{});
  static const int file = memfd_create("settings", 0);
  require(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  options::Report report;
  const auto keys = flags::keys_of_file("/proc/self/fd/" + std::to_string(file), table, report);
  require(report.complete() || !report.good());
  const auto converted = table.convert(keys, facts, report);
  require(converted.flags.size() >= keys.size() || !report.good());
  return 0;
}
