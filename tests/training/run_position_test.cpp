#include "framework/training/step/run_position.h"

#include <gtest/gtest.h>

namespace tessera::training {
namespace {

RunPosition position_with(const std::string& frozen) {
  RunPosition position;
  position.saved_at = 7;
  position.progress.iteration = 9;
  position.progress.run = "0123456789abcdef";
  position.frozen = checkpoint::FrozenBase{frozen, 0xfedcba9876543210};
  return position;
}

TEST(RunPosition, IsReadAsItWasWritten) {
  const auto read = read_position(write_position(position_with("/models/a base of\nits own")));
  EXPECT_EQ(read.saved_at, 7);
  EXPECT_EQ(read.progress.iteration, 9);
  EXPECT_EQ(read.progress.run, "0123456789abcdef");
  ASSERT_TRUE(read.frozen.has_value());
  EXPECT_EQ(read.frozen->name, "/models/a base of\nits own");
  EXPECT_EQ(read.frozen->digest, 0xfedcba9876543210);
}

/// The bytes of the version that did not know where frozen parameters come from: numbers and progress.
TEST(RunPosition, OfAnOlderVersionIsReadWithoutThatOfFrozenParameters) {
  const auto known = position_with("/base");
  const PositionNumbers numbers = known;
  const auto old =
      std::string(reinterpret_cast<const char*>(&numbers), sizeof numbers) + checkpoint::write_progress(known.progress);
  const auto read = read_position(old);
  EXPECT_EQ(read.progress.iteration, 9);
  EXPECT_FALSE(read.frozen.has_value());
  EXPECT_EQ(write_position(read), old);
}

TEST(RunPosition, LeavesOutThatOfFrozenParametersWhereThereIsNoRoom) {
  const auto read = read_position(write_position(position_with(std::string(most_position_bytes, 'x'))));
  EXPECT_EQ(read.progress.iteration, 9);
  EXPECT_FALSE(read.frozen.has_value());
}

}  // namespace
}  // namespace tessera::training
