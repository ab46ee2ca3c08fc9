// Words of commands that scripts start, and MODEL_ARGS files: each a launch, or a problem that is told.
#include <sstream>

#include "framework/base/error.h"
#include "framework/interop/flags/launcher_table.h"
#include "framework/interop/flags/model_args.h"

namespace {

using namespace tessera;

void read_words(const std::string& words) {
  static const flags::LauncherTable table{options::Mappings()};
  shell::StartedProgram run;
  run.at = {0, 1};
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ' ');) run.words.push_back(word);
  if (run.words.empty()) return;
  options::Report report;
  const auto launch = flags::launch_of(run, {"fuzz"}, table, report);
  if (launch.program.empty() && !launch.flags.empty()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string words(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      for (auto& c : words)
        if (c == shell::place_begin || c == shell::place_end) c = ' ';  // places are the reader's own
      read_words(words);
      return 0;
    }
    options::Report report;
    const auto reading = flags::read_model_args(words, "fuzz", report);
    if (reading.launches.empty() && report.good()) __builtin_trap();
  } catch (const ConfigError&) {
  }
  return 0;
}
