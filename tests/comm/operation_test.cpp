// How long an operation waits.
#include "framework/comm/operation.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::comm
