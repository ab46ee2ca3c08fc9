#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/standard_output.h"
#include "launch/tsrun/follower.h"
#include "launch/tsrun/guard.h"
#include "launch/tsrun/process.h"
#include "launch/tsrun/roles.h"
#include "launch/tsrun/screen.h"
#include "launch/tsrun/shell_completion.h"
#include "launch/tsrun/worker.h"

namespace tessera::tsrun {
namespace {

/// Prints to standard output. Throws IoError if it cannot be written.
int print(const std::function<void(std::ostream&)>& write) {
  StandardOutput output;
  write(std::cout);
  const auto lost = output.finish();
  if (!lost.empty()) throw IoError("standard output: cannot be written: " + lost);
  return 0;
}

int launch(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "--as-worker") return run_worker();
  if (!words.empty() && words[0] == "--as-agent") return run_agent({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "--as-guard") return run_guard({words.begin() + 1, words.end()});
  if (words.size() == 2 && words[0] == "--as-host") return run_listed_host(words[1]);
  const auto options = read_options(words, this_environment());
  if (options.help) return print(print_help);
  if (!options.completion.empty()) return print([&](std::ostream& out) { print_completion(out, options.completion); });
  if (options.manual) return print(print_manual);
  if (options.version) return print([](std::ostream& out) { out << "tsrun " TESSERA_VERSION << std::endl; });
  return take_part(options, words);
}

}  // namespace
}  // namespace tessera::tsrun

int main(int argc, char** argv) {
  using tessera::log::LogLevel;
  tessera::occupy_standard_descriptors();
  auto& screen = tessera::tsrun::Screen::of_process();
  int code = 1;
  try {
    code = tessera::tsrun::launch({argv + 1, argv + argc});
  } catch (const tessera::ConfigError& error) {
    const std::string words = error.what();
    screen.message(LogLevel::error, (words.rfind("tsrun: ", 0) == 0 ? "" : "tsrun: ") + words);
    code = 2;
  } catch (const std::exception& error) {
    screen.message(LogLevel::error, std::string("tsrun: ") + error.what());
  }
  screen.finish();
  return code;
}
