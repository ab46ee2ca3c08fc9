// golden_runner DIR: judges every recorded case under DIR, one line each, and sums up. Exit code 1 when one failed, 2
// when DIR holds none.

#include <iostream>

#include "framework/base/error.h"
#include "tests/golden/kinds.h"

int main(int argc, char** argv) {
  using namespace tessera::golden;
  if (argc != 2) {
    std::cerr << "golden_runner DIR\n";
    return 2;
  }
  try {
    const auto results =
        run_cases(argv[1], case_kinds(), [](const auto& result) { std::cout << line_of(result) << std::endl; });
    std::cout << summary_of(results) << "\n";
    for (const auto& result : results)
      if (result.verdict == tessera::CaseResult::Verdict::failed) return 1;
    if (!results.empty()) return 0;
    std::cerr << argv[1] << ": holds no cases\n";
  } catch (const tessera::Error& error) {
    std::cerr << error.what() << "\n";
  }
  return 2;
}
