#include "framework/tensor/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

TEST(Arena, BlocksAreAlignedAndDoNotOverlap) {
  Arena arena;
  std::mt19937 random(1);
  std::vector<std::pair<Memory, std::byte>> held;
  for (int i = 0; i < 2000; ++i) {
    if (held.size() > 40) {
      const auto at = random() % held.size();
      for (const auto b : held[at].first.bytes()) ASSERT_EQ(b, held[at].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
    auto memory = arena.allocate(random() % 5000);
    const auto mark = static_cast<std::byte>(i);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % 64, 0u);
    for (auto& b : memory.bytes()) b = mark;
    held.emplace_back(std::move(memory), mark);
  }
  held.clear();
  EXPECT_EQ(arena.in_use(), 0u);
}

TEST(Arena, AFreedBlockIsUsedAgainAndNeighboursJoin) {
  Arena arena;
  auto a = arena.allocate(1000), b = arena.allocate(1000), c = arena.allocate(1000);
  const auto* at = a.bytes().data();
  const auto high = arena.high_water();
  a = {};
  b = {};
  const auto d = arena.allocate(2000);
  EXPECT_EQ(d.bytes().data(), at);
  EXPECT_EQ(arena.high_water(), high);
}

TEST(Arena, CopiesShareABlockUntilTheLastIsGone) {
  Arena arena;
  auto a = arena.allocate(64);
  EXPECT_FALSE(a.shared());
  {
    const auto b = a;
    EXPECT_TRUE(a.shared());
    EXPECT_EQ(b.bytes().data(), a.bytes().data());
    a = {};
    EXPECT_EQ(arena.in_use(), 64u);
  }
  EXPECT_EQ(arena.in_use(), 0u);
}

TEST(Arena, SlabsAreCountedOnceAndKept) {
  Arena arena;
  { const auto big = arena.allocate(3 * Arena::slab_bytes); }
  EXPECT_EQ(arena.slabs(), 3u);
  { const auto smaller = arena.allocate(2 * Arena::slab_bytes); }
  EXPECT_EQ(arena.slabs(), 3u);
  { const auto bigger = arena.allocate(3 * Arena::slab_bytes + 1); }
  EXPECT_EQ(arena.slabs(), 4u);
}

TEST(Storage, IsZeroedAndMoves) {
  Storage a(4096);
  for (const auto v : a.floats()) ASSERT_EQ(v, 0.0F);
  a.floats()[3] = 7;
  Storage b = std::move(a);
  EXPECT_EQ(b.floats()[3], 7.0F);
  EXPECT_TRUE(a.bytes().empty());
}

}  // namespace
}  // namespace tessera
