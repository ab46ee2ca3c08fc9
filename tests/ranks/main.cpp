// Runs the tests on every rank at once: mpirun -n 4 comm_ranks_test --ranks 4 [--messages]. On too few ranks it
// fails. Rank 0 tells of each test, the others of what failed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/ranks/ranks.h"

namespace tessera {
namespace {
/// Failures of a rank that does not print the usual report.
class Failures : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s: %s:%d: %s\n", world().rank(), name_.c_str(),
                   result.file_name() != nullptr ? result.file_name() : "", result.line_number(), result.message());
  }
  std::string name_;  // asking for it while a failure is told would wait for ever
};

const comm::World* the_world = nullptr;
comm::Transport the_transport = comm::Transport::fastest;
}  // namespace
const comm::World& world() { return *the_world; }
comm::Transport transport() { return the_transport; }
}  // namespace tessera

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int promised = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ranks" && i + 1 < argc) promised = std::atoi(argv[i + 1]);
    if (word == "--messages") tessera::the_transport = tessera::comm::Transport::messages;
  }
  const tessera::comm::World world(tessera::the_transport);
  if (world.size() != promised || promised < 2) {
    std::fprintf(stderr, "started on %d ranks; --ranks promises %d, two at least\n", world.size(), promised);
    return 2;
  }
  world.set_time_out(std::chrono::seconds(30));
  tessera::the_world = &world;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new tessera::Failures);
  }
  const int result = RUN_ALL_TESTS();
  if (result != 0) std::fprintf(stderr, "rank %d: tests failed\n", world.rank());
  float failures = result != 0 ? 1.F : 0.F;
  world.all().all_reduce({&failures, 1}, "failures");
  return failures == 0 ? 0 : 1;
}
