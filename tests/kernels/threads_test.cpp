#include "framework/kernels/threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>

#include "framework/base/error.h"
#include "framework/kernels/scratch.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

TEST(Threads, EveryElementIsVisitedOnceWhateverTheCut) {
  for (const int count : {1, 2, 3}) {
    Threads threads(count);
    for (const std::size_t extent : {0, 1, 7, 64, 1000})
      for (const std::size_t tile : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> visits(extent);
        threads.parallel_for(extent, tile, [&](std::size_t first, std::size_t last) {
          EXPECT_EQ(first % tile, 0U);
          for (auto i = first; i < last; ++i) ++visits[i];
        });
        for (const auto& n : visits) EXPECT_EQ(n, 1);
      }
  }
}

TEST(Threads, TheErrorOfATileComesOutAndTheCrewGoesOn) {
  Threads threads(3);
  for (int round = 0; round < 50; ++round) {
    const auto fails = [&](std::size_t first, std::size_t) {
      if (first == 5) throw std::runtime_error("tile 5");
    };
    EXPECT_THROW(threads.parallel_for(20, 1, fails), std::runtime_error);
    std::atomic<int> done = 0;
    threads.parallel_for(20, 1, [&](std::size_t, std::size_t) { ++done; });
    EXPECT_EQ(done, 20);
  }
}

TEST(Threads, ACallInsideATileRunsInline) {
  Threads threads(2);
  std::atomic<int> done = 0;
  threads.parallel_for(
      4, 1, [&](std::size_t, std::size_t) { threads.parallel_for(5, 1, [&](std::size_t, std::size_t) { ++done; }); });
  EXPECT_EQ(done, 20);
}

TEST(Threads, ACrewThatFellAsleepWakesUp) {
  Threads threads(3, 1);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> done = 0;
    threads.parallel_for(9, 1, [&](std::size_t, std::size_t) { ++done; });
    EXPECT_EQ(done, 9);
  }
}

TEST(Threads, ASumHasTheSameBitsOnAnyNumberOfThreadsAlsoWithManyTiles) {
  const auto x = random_normal(5003, 1);
  const auto sum = [&](int count) {
    Threads threads(count);
    return threads.parallel_sum(x.size(), 3, [&](std::size_t first, std::size_t last) {
      double s = 0;
      for (auto i = first; i < last; ++i) s += x[i];
      return s;
    });
  };
  double plain = 0;
  for (const float v : x) plain += v;
  EXPECT_NEAR(sum(1), plain, 1e-10);
  EXPECT_EQ(sum(1), sum(2));
  EXPECT_EQ(sum(1), sum(3));
}

TEST(Threads, DenormalsCountAsZeroInEveryTileWhoeverCalls) {
  Threads threads(3);
  volatile float tiny = 1e-30F;
  std::atomic<int> alive = 0;
  const auto multiply = [&](std::size_t, std::size_t) {
    if (tiny * 1e-10F != 0) ++alive;
  };
  threads.parallel_for(64, 1, multiply);
  std::thread([&] { threads.parallel_for(64, 1, multiply); }).join();
  EXPECT_EQ(alive, 0);
}

TEST(Scratch, LeasesOfAThreadAreApartAndAligned) {
  const Scratch a(1000), b(1000);
  EXPECT_EQ(a.floats().size(), 1000U);
  for (const Scratch* s : {&a, &b}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s->data()) % 64, 0U);
  std::fill(a.floats().begin(), a.floats().end(), 3.0F);
  const Scratch c(10);
  std::fill(b.floats().begin(), b.floats().end(), 4.0F);
  std::fill(c.floats().begin(), c.floats().end(), 5.0F);
  for (const float x : a.floats()) ASSERT_EQ(x, 3);
  for (const float x : b.floats()) ASSERT_EQ(x, 4);
}

TEST(Scratch, AnEndedLeasesMemoryIsUsedAgain) {
  const float* before = nullptr;
  {
    const Scratch a(1000);
    before = a.data();
  }
  const Scratch b(10);
  EXPECT_EQ(b.data(), before);
}

TEST(Scratch, ItGrowsAndHoldsWhatWasAskedFor) {
  const Scratch large(Scratch::ready_floats + 5);
  std::fill(large.floats().begin(), large.floats().end(), 1.0F);
  EXPECT_EQ(large.floats().size(), Scratch::ready_floats + 5);
}

TEST(Scratch, NoFloatsTakeNoBuffer) {
  const Scratch none(0), a(8);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_TRUE(none.floats().empty());
  const float* first = a.data();
  { const Scratch also_none(0); }
  const Scratch b(8);
  EXPECT_NE(b.data(), first);
}

/// Begins `count` leases, one inside the other, then calls `then`.
void lease(std::size_t count, const std::function<void()>& then) {
  if (count == 0) return then();
  const Scratch one(8);
  lease(count - 1, then);
}

TEST(Scratch, TooManyLeasesAreAnErrorAndTheOthersStay) {
  const Scratch first(8);
  first.data()[0] = 7;
  bool refused = false, one_more = false;
  lease(Scratch::most_buffers - 2, [&] {
    {
      const Scratch last(8);
      try {
        const Scratch too_many(8);
      } catch (const BugError&) {
        refused = true;
      }
    }
    const Scratch again(8);
    again.data()[0] = 8;
    one_more = true;
  });
  EXPECT_TRUE(refused && one_more);
  EXPECT_EQ(first.data()[0], 7);
}

TEST(Scratch, WhatTilesLeaseIsNotWorkspace) {
  Threads threads(2);
  forget_workspace();
  const Scratch first(100);
  { const Scratch second(50); }
  for (const std::size_t tiles : {1, 8})
    threads.parallel_for(tiles, 1, [](std::size_t, std::size_t) { const Scratch of_tile(5000); });
  { const Scratch second(60); }
  EXPECT_EQ(workspace_bytes(), 160 * sizeof(float));
  forget_workspace();
  EXPECT_EQ(workspace_bytes(), 0U);
}

TEST(Threads, IdleOnesRunNoTile) {
  Threads idle{Threads::Idle{}};
  EXPECT_TRUE(idle.idle());
  idle.parallel_for(1000, 10, [](std::size_t, std::size_t) { FAIL(); });
  EXPECT_EQ(idle.parallel_sum(1000, 10, [](std::size_t, std::size_t) { return 1.0; }), 0);
}

TEST(Scratch, EachThreadHasItsOwn) {
  Threads threads(3);
  std::mutex lock;
  std::set<std::pair<std::thread::id, float*>> seen;
  threads.parallel_for(300, 1, [&](std::size_t, std::size_t) {
    const Scratch mine(100);
    const std::lock_guard hold(lock);
    seen.emplace(std::this_thread::get_id(), mine.data());
  });
  std::set<std::thread::id> ids;
  std::set<float*> buffers;
  for (const auto& [id, buffer] : seen) ids.insert(id), buffers.insert(buffer);
  EXPECT_EQ(ids.size(), seen.size());
  EXPECT_EQ(buffers.size(), seen.size());
}

}  // namespace
}  // namespace tessera::kernels
