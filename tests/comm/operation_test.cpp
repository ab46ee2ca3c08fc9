// How long an operation waits.
#include "framework/comm/operation.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "framework/comm/group_state.h"
#include "tests/story.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

/// A collective of several parts, each done some time after the one before.
class SlowExchange final : public Exchange {
 public:
  SlowExchange(int parts, std::chrono::milliseconds each) : parts_(parts), each_(each) {}
  void begin(const Collective& collective) override { name_ = collective.name; }
  bool advance() override {
    const auto now = std::chrono::steady_clock::now();
    if (done_ < parts_ && now - since_ >= each_) {
      ++done_;
      since_ = now;
    }
    return done_ == parts_;
  }
  std::uint64_t moved() const override { return static_cast<std::uint64_t>(done_); }
  Missing missing() const override { return {0}; }
  const OperationName& oldest() const override { return name_; }
  void abandon() noexcept override {}

 private:
  int parts_;
  std::chrono::milliseconds each_;
  int done_ = 0;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  OperationName name_;
};

void all_reduce_by(std::unique_ptr<Exchange> exchange, std::chrono::milliseconds time_out) {
  Communicator::State group;
  group.world = std::make_shared<WorldState>();
  group.world->time_out = time_out;
  group.world->record = worker::OperationRecord::create(0);
  group.exchange = std::move(exchange);
  group.run({.kind = Collective::Kind::all_reduce}, "all_reduce", 0, "test");
}

TEST(Operation, MayTakeLongerThanTheTimeOutWhileItsPartsAreDone) {
  EXPECT_NO_THROW(all_reduce_by(std::make_unique<SlowExchange>(4, 400ms), 1s));
}

TEST(Operation, EndsWhenNoPartIsDoneWithinTheTimeOut) {
  const std::string story = story_of([] { all_reduce_by(std::make_unique<SlowExchange>(2, 5s), 300ms); });
  EXPECT_TRUE(says(story, "all_reduce 1 of group alone")) << story;
  EXPECT_TRUE(says(story, "has waited 0.3 s")) << story;
}

double seconds_of_test = 0;

/// Pauses as often as the process looks at the clock once; returns whether the time-out has not passed.
bool next_look(Patience& patience, double later) {
  seconds_of_test += later;
  bool patient = true;
  for (int i = 0; i < 32 && patient; ++i) patient = patience.pause();
  return patient;
}

TEST(Patience, ATimeInWhichThisProcessWasStoppedIsNoTimeThatOthersTook) {
  WorldState world;
  world.spins = 0;
  world.time_out = 2s;
  Patience patience(world, [] { return seconds_of_test; });
  EXPECT_TRUE(next_look(patience, 0));
  EXPECT_TRUE(next_look(patience, 3600));
  for (int look = 0; look < 17; ++look) ASSERT_TRUE(next_look(patience, .1)) << look;
  EXPECT_FALSE(next_look(patience, .15)) << "0.2 + 1.7 + 0.15 s";
}

TEST(Patience, AWaitThatLastsSleepsAfterItsYields) {
  const auto sleeps = [](int yields) {
    WorldState world;
    world.spins = 0;
    world.yields = yields;
    Patience patience(world);
    const auto so_far = [] {
      rusage used{};
      getrusage(RUSAGE_THREAD, &used);
      return used.ru_nvcsw;  // a yield is no voluntary switch
    };
    const auto before = so_far();
    for (int i = 0; i < 100; ++i) patience.pause();
    return so_far() - before;
  };
  // Of 80 sleeps; one whose timer ends before the thread has left its core is no switch.
  EXPECT_GE(sleeps(20), 40);
  EXPECT_LT(sleeps(1000), 40);
}

}  // namespace
}  // namespace tessera::comm
