#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "framework/comm/group_buffer.h"
#include "framework/comm/world.h"
#include "tests/story.h"

namespace tessera::comm {
namespace {

TEST(Alone, NobodyLaunchedThisTest) { EXPECT_FALSE(is_launched()); }

TEST(Alone, AProcessThatNobodyLaunchedIsTheWholeWorld) {
  const World world;
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.local_size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
  EXPECT_FALSE(world.host().empty());
  const std::vector<int> members = {0};
  EXPECT_EQ(world.group("tensor", members).name(), "tensor");
  EXPECT_THROW(world.group("tensor", std::vector<int>{1}), BugError);
}

TEST(Alone, OperationsLeaveTheValuesAsTheyAre) {
  const Communicator group;
  EXPECT_EQ(group.size(), 1);
  EXPECT_TRUE(group.on_one_host());
  std::vector<float> values = {1, 2, 3}, copy(3);
  group.barrier("test");
  group.all_reduce(values, "test");
  group.all_reduce_max(values, "test");
  group.broadcast(std::as_writable_bytes(std::span(values)), 0, "test");
  group.reduce_scatter(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(copy)), DType::float32,
                       "test");
  EXPECT_EQ(copy, values);
  group.all_gather(std::as_bytes(std::span(copy)), std::as_writable_bytes(std::span(values)), "test");
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(group.all_gather("words", "test"), std::vector<std::string>{"words"});
  EXPECT_EQ(group.broadcast("words", 0, "test"), "words");
}

TEST(Alone, SizesThatDoNotFitAreNamed) {
  const Communicator group;
  std::vector<std::byte> three(3), four(4);
  EXPECT_TRUE(says(story_of([&] { group.all_reduce(three, DType::bfloat16, "gradients"); }), "'gradients'"));
  EXPECT_TRUE(says(story_of([&] { group.all_gather(three, four, "weights"); }), "3 from each of 1 members"));
  EXPECT_TRUE(says(story_of([&] { group.reduce_scatter(four, three, DType::uint8, "x"); }), "4 bytes in all"));
  EXPECT_TRUE(says(story_of([&] { static_cast<void>(group.send(four, 0, 1, "x")); }), "message to member 0"));
}

TEST(Alone, ABufferIsMemoryAndItsSumsAreWhatWasThere) {
  GroupBuffer buffer(Communicator(), 4000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % 64, 0U);
  buffer.floats()[999] = 5;
  buffer.begin_sum({0, 4000}, true, "test");
  buffer.progress();
  buffer.begin_gather({256, 1000}, sizeof(float), "test");
  buffer.finish();
  EXPECT_EQ(buffer.floats()[999], 5);
  GroupBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.floats()[999], 5);
}

TEST(Alone, AnUnconnectedGroupChecksArgumentsAndChangesNothing) {
  const std::vector<int> members = {4, 7, 9};
  const auto group = Communicator::unconnected("data", members, 1);
  EXPECT_FALSE(group.connected());
  EXPECT_TRUE(Communicator().connected());
  EXPECT_EQ(group.size(), 3);
  EXPECT_EQ(group.rank(), 1);
  std::vector<float> values = {1, 2, 3};
  group.all_reduce(values, "test");
  group.all_reduce_max(values, "test");
  group.broadcast(std::as_writable_bytes(std::span(values)), 2, "test");
  group.barrier("test");
  group.send(std::as_bytes(std::span(values)), 2, 0, "test").wait();
  group.receive(std::as_writable_bytes(std::span(values)), 0, 0, "test").wait();
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  EXPECT_THROW(group.all_gather(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(values)), "test"),
               ShapeError);
  EXPECT_EQ(group.message_bytes(), 0U);
}

TEST(Alone, TransfersMayBeEmpty) {
  Transfer none;
  EXPECT_TRUE(none.done());
  none.wait();
}

TEST(PromisedSize, IsHeldToWhatTheLauncherSaid) {
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  for (const char* variable : {"WORLD_SIZE", "RANK_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    ::setenv(variable, "4", 1);
    EXPECT_NO_THROW(check_promised_size(4));
    EXPECT_THROW(check_promised_size(1), ConfigError) << variable;
    ::unsetenv(variable);
    EXPECT_NO_THROW(check_promised_size(1));
  }
}

}  // namespace
}  // namespace tessera::comm
