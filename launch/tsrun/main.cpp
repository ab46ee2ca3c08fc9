#include <iostream>
#include <string>
#include <vector>

#include "launch/tsrun/follower.h"
#include "launch/tsrun/guard.h"
#include "launch/tsrun/process.h"
#include "launch/tsrun/roles.h"
#include "launch/tsrun/screen.h"
#include "launch/tsrun/shell_completion.h"
#include "launch/tsrun/worker.h"

namespace tessera::tsrun {
namespace {

int launch(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "--as-worker") return run_worker();
  if (!words.empty() && words[0] == "--as-agent") return run_agent({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "--as-guard") return run_guard({words.begin() + 1, words.end()});
  if (words.size() == 2 && words[0] == "--as-host") return run_listed_host(words[1]);
  const auto options = read_options(words, this_environment());
  if (options.help) {
    print_help(std::cout);
    return 0;
  }
  if (!options.completion.empty()) {
    print_completion(std::cout, options.completion);
    return 0;
  }
  if (options.manual) {
    print_manual(std::cout);
    return 0;
  }
  if (options.version) {
    std::cout << "tsrun " TESSERA_VERSION << std::endl;
    return 0;
  }
  return take_part(options, words);
}

}  // namespace
}  // namespace tessera::tsrun

int main(int argc, char** argv) {
  using tessera::log::LogLevel;
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
