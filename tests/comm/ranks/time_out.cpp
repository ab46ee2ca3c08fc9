// What an operation says when somebody does not come.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <vector>

#include "framework/comm/group_buffer.h"
#include "tests/ranks/ranks.h"
#include "tests/story.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

/// A group of all ranks that a test may leave in disorder.
class TimeOut : public testing::Test {
 protected:
  TimeOut() {
    MPI_Comm_split(MPI_COMM_WORLD, last() ? 1 : 0, world().rank(), &alike_);
    std::vector<int> ranks(static_cast<std::size_t>(world().size()));
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
    group = world().group(testing::UnitTest::GetInstance()->current_test_info()->name(), ranks);
  }
  ~TimeOut() override {
    world().set_time_out(30s);
    world().all().barrier("end of the test");
    MPI_Comm_free(&alike_);
  }
  /// Returns when every rank of `who` has called it. Beside the communicators under test: whoever waits here is in no
  /// operation of theirs, however long the others take.
  static void meet(MPI_Comm who = MPI_COMM_WORLD) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(who, &request);
    for (int done = 0; done == 0; ::usleep(1000)) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  bool last() const { return world().rank() == world().size() - 1; }
  std::string name_of_last() const { return "rank " + std::to_string(world().size() - 1); }

  Communicator group;
  MPI_Comm alike_ = MPI_COMM_NULL;  ///< all ranks but the last; the last alone
};

TEST_F(TimeOut, NamesWhoHasNotComeAndTheOperationInWhichItIsInstead) {
  float batch = 0;
  if (last()) {
    world().all().receive(std::as_writable_bytes(std::span(&batch, 1)), 0, 5, "a late batch").wait();
    EXPECT_EQ(batch, 1.F);
    return;
  }
  world().set_time_out(1300ms);
  meet(alike_);  // the time-out is that of the last alone, also when the others begin at different times
  std::vector<float> values(100000);
  const std::string story = story_of([&] { group.all_reduce(values, "linear_fc2 of layer 3"); });
  EXPECT_TRUE(says(story, "all_reduce 1 of group NamesWho")) << story;
  EXPECT_TRUE(says(story, "400000 bytes, called by 'linear_fc2 of layer 3'")) << story;
  EXPECT_TRUE(says(story, name_of_last() + " (process ")) << story;
  EXPECT_TRUE(says(story, "of host " + world().host())) << story;
  EXPECT_TRUE(says(story, "is in receive from rank 0, tag 5 of group world, 4 bytes, called by 'a late batch', for"))
      << story;
  for (int r = 0; r < world().size() - 1; ++r)
    EXPECT_FALSE(says(story, text("\n  rank ", r, " "))) << "rank " << r << " has come\n" << story;
  meet(alike_);  // the others find the same before the one goes on
  batch = 1;
  if (world().rank() == 0)
    world().all().send(std::as_bytes(std::span(&batch, 1)), world().size() - 1, 5, "a late batch").wait();
}

TEST_F(TimeOut, NamesWhoIsInNoOperation) {
  group.barrier("the last that all did");
  meet();  // all have left it
  if (last()) return meet();
  world().set_time_out(300ms);
  const std::string story = story_of([&] { group.barrier("test"); });
  EXPECT_TRUE(says(story, "barrier 2 of group NamesWho")) << story;
  EXPECT_TRUE(says(story, name_of_last() + " (process ")) << story;
  EXPECT_TRUE(says(story, "in no operation; its last was barrier 1 of group NamesWho")) << story;
  meet();
}

/// A broadcast whose root does not come names the root, and not the members that would pass its values on.
class TimeOutOfBroadcast : public TimeOut, public testing::WithParamInterface<std::size_t> {};

TEST_P(TimeOutOfBroadcast, NamesTheRoot) {
  if (last()) return meet();
  world().set_time_out(500ms);
  meet(alike_);
  std::vector<std::byte> values(GetParam());
  const std::string story = story_of([&] { group.broadcast(values, world().size() - 1, "weights"); });
  EXPECT_TRUE(says(story, name_of_last() + " (process ")) << story;
  for (int r = 0; r < world().size() - 1; ++r)
    EXPECT_FALSE(says(story, text("\n  rank ", r, " "))) << "rank " << r << " has come\n" << story;
  meet(alike_);  // whoever waits is still in the broadcast when the others look
  meet();
}
INSTANTIATE_TEST_SUITE_P(Sizes, TimeOutOfBroadcast, testing::Values(8, 200'000));

// The caller may have freed that memory: a later use of the group must not continue the operation.
TEST_F(TimeOut, LeavesTheMemoryOfTheOperationAlone) {
  std::vector<float> values(1000, 1.0F), later(1000, 2.0F);
  if (!last()) {
    world().set_time_out(300ms);
    EXPECT_THROW(group.all_reduce(values, "too early"), CommError);
  }
  const auto before = values;
  meet();
  world().set_time_out(300ms);
  try {
    group.all_reduce(later, "after the error");
  } catch (const Error&) {  // the group is unusable, which the ranks find at different moments
  }
  EXPECT_EQ(values, before);
  meet();
}

TEST_F(TimeOut, HoldsForBuffersToo) {
  GroupBuffer buffer(group, 100000);
  if (last()) return meet();
  world().set_time_out(300ms);
  buffer.begin_sum({0, 100000}, true, "gradients");
  const std::string story = story_of([&] { buffer.finish(); });
  EXPECT_TRUE(says(story, "called by 'gradients'")) << story;
  EXPECT_TRUE(says(story, name_of_last() + " (process ")) << story;
  meet();
}

TEST_F(TimeOut, HoldsForMessagesAndForTheMakingOfGroups) {
  if (last()) return meet();
  world().set_time_out(300ms);
  float value = 0;
  const int from = world().size() - 1;
  if (world().rank() == 0) {
    const std::string story =
        story_of([&] { group.receive(std::as_writable_bytes(std::span(&value, 1)), from, 0, "activations").wait(); });
    EXPECT_TRUE(says(story, "receive from " + name_of_last() + ", tag 0 of group HoldsFor")) << story;
    EXPECT_TRUE(says(story, "'activations'")) << story;
    const std::string door = story_of([&] { static_cast<void>(world().group("pair", std::vector<int>{0, from})); });
    EXPECT_TRUE(says(door, "group pair")) << door;
    EXPECT_TRUE(says(door, name_of_last() + " (process ")) << door;
  }
  meet();
}

TEST_F(TimeOut, DifferentOperationsAtOnceAreNamedWithoutWaiting) {
  if (transport() == Transport::messages) GTEST_SKIP() << "messages carry no name";
  float value = 0;
  const std::string story = story_of([&] {
    if (last())
      group.barrier("this");
    else
      group.all_reduce({&value, 1}, "that");
  });
  EXPECT_TRUE(says(story, "another rank of the group called a different operation")) << story;
}

TEST_F(TimeOut, AMessageOfAnotherSizeIsAnError) {
  std::vector<float> values(100);
  const auto bytes = std::as_writable_bytes(std::span(values));
  if (world().rank() == 0) {
    group.send(bytes.first(40), 1, 0, "test").wait();
    group.send(bytes, 1, 1, "test").wait();
  }
  if (world().rank() == 1) {
    EXPECT_TRUE(says(story_of([&] { group.receive(bytes, 0, 0, "test").wait(); }), "expected 400"));
    EXPECT_TRUE(says(story_of([&] { group.receive(bytes.first(40), 0, 1, "test").wait(); }), "truncate"));
  }
}

}  // namespace
}  // namespace tessera::comm
