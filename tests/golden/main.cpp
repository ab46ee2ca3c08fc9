// golden_runner [--tessera PATH] [--tsrun PATH] DIR: judges every recorded case under DIR, one line each, and sums up.
// Runs of several processes are started with these programs (default: those of the same build). Exit code 1 when a case
// failed, 2 when DIR holds none.

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "tests/golden/kinds.h"

namespace {

struct Words {
  std::string folder;
  tessera::golden::Programs programs = tessera::golden::Programs::built();
};

bool read(const std::vector<std::string>& argv, Words& words) {
  for (std::size_t i = 0; i < argv.size(); ++i)
    if (argv[i] == "--tessera" && i + 1 < argv.size())
      words.programs.tessera = std::filesystem::absolute(argv[++i]);
    else if (argv[i] == "--tsrun" && i + 1 < argv.size())
      words.programs.tsrun = std::filesystem::absolute(argv[++i]);
    else if (!words.folder.empty() || argv[i].rfind("--", 0) == 0)
      return false;
    else
      words.folder = argv[i];
  return !words.folder.empty();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tessera::golden;
  Words words;
  if (!read({argv + 1, argv + argc}, words)) {
    std::cerr << "golden_runner [--tessera PATH] [--tsrun PATH] DIR\n";
    return 2;
  }
  try {
    const auto results = run_cases(
        words.folder, case_kinds(words.programs), [](const auto& result) { std::cout << line_of(result) << std::endl; },
        [](const auto& line) { std::cout << line << std::endl; });
    std::cout << summary_of(results) << "\n";
    for (const auto& result : results)
      if (result.verdict == tessera::CaseResult::Verdict::failed) return 1;
    if (!results.empty()) return 0;
    std::cerr << words.folder << ": holds no cases\n";
  } catch (const tessera::Error& error) {
    std::cerr << error.what() << "\n";
  }
  return 2;
}
