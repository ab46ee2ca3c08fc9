#include "framework/training/guards/rank_memory.h"

#include <gtest/gtest.h>

namespace tessera::training {
namespace {

TEST(MeasuredMemoryTest, KeepsTheGreatestOfEachRankAndTellsWhetherAnyGrew) {
  MeasuredMemory measured(2);
  reporting::MemoryRecord used = {
      .weights = 1, .gradients = 2, .optimizer = 3, .activations = 4, .workspace = 5, .messages = 6};
  EXPECT_TRUE(measured.add(1, {.used = used, .process_peak = 100}));
  EXPECT_FALSE(measured.add(1, {.used = used, .process_peak = 100}));
  EXPECT_FALSE(measured.add(1, {.used = used, .process_peak = 101}));
  for (auto* bytes :
       {&used.weights, &used.gradients, &used.optimizer, &used.activations, &used.workspace, &used.messages}) {
    *bytes += 10;
    EXPECT_TRUE(measured.add(1, {.used = used}));
    *bytes -= 5;
    EXPECT_FALSE(measured.add(1, {.used = used}));
  }
  EXPECT_EQ(measured.json().dump(),
            R"([{"rank":0,"weights":0,"gradients":0,"optimizer":0,"activations":0,"workspace":0,"messages":0,)"
            R"("process_peak":0},{"rank":1,"weights":11,"gradients":12,"optimizer":13,"activations":14,)"
            R"("workspace":15,"messages":16,"process_peak":101}])");
}

}  // namespace
}  // namespace tessera::training
