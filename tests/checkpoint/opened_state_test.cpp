// Snapshots that copy what is about to change, read while threads change the state.
#include "framework/checkpoint/opened_state.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <random>
#include <thread>

#include "framework/base/error.h"
#include "tests/sanitized.h"

namespace tessera::checkpoint {
namespace {

using Reading = OpenedState::Reading;
constexpr auto block_elements = OpenedState::block_bytes / sizeof(float);

/// A state in one piece of memory, and ranges of it with gaps between them.
struct Ranges {
  std::vector<float> memory;
  std::vector<TensorRange> ranges;
  std::vector<std::size_t> first;  ///< of each range

  explicit Ranges(const std::vector<std::size_t>& lengths, std::size_t gap = 64) {
    std::size_t all = gap;
    for (const auto length : lengths) first.push_back(all), all += length + gap;
    memory.resize(all);
    for (std::size_t i = 0; i < all; ++i) memory[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      ranges.push_back(whole(text("r", i), Tensor(std::span(memory).subspan(first[i], lengths[i]),
                                                  Shape{static_cast<std::int64_t>(lengths[i])})));
    // Not in the order of their memory.
    std::reverse(ranges.begin(), ranges.end());
    std::reverse(first.begin(), first.end());
  }
  std::shared_ptr<OpenedState> open(Reading reading = Reading::once) {
    return std::make_shared<OpenedState>(ranges, Blobs{}, reading);
  }
  void change(OpenedState& opened, std::size_t begin, std::size_t count) {
    const auto part = std::span(memory).subspan(begin, count);
    opened.before_change(std::as_bytes(part));
    for (auto& x : part) x = -x - 1;
  }
};

std::vector<float> read(const StateSnapshot& snapshot, std::size_t index, std::size_t piece_bytes) {
  std::vector<float> out(static_cast<std::size_t>(snapshot.ranges()[index].tensor.elements()));
  const auto bytes = std::as_writable_bytes(std::span(out));
  for (std::size_t at = 0; at < bytes.size();) {
    const auto piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
    const auto got = snapshot.bytes(index, at, piece);
    if (got.data() != piece.data()) std::copy(got.begin(), got.end(), piece.begin());
    at += piece.size();
  }
  return out;
}

TEST(OpenedState, TakesTheMemoryOfTheSnapshotBeforeUnlessThatStillLives) {
  const auto copies = std::make_shared<CopyMemory>();
  auto first = copies->take(3000);
  const auto* const place = first.bytes().data();
  EXPECT_NE(copies->take(10).bytes().data(), place);  // it is in use
  copies->give_back(std::move(first));
  copies->give_back(Storage(10));  // the larger one is kept
  {
    Ranges state({700, 20});
    const OpenedState opened(state.ranges, {}, Reading::once, copies);
    EXPECT_NE(copies->take(10).bytes().data(), place);
  }
  first = copies->take(2000);
  EXPECT_EQ(first.bytes().data(), place);
  copies->give_back(std::move(first));
  EXPECT_EQ(copies->take(4000).bytes().size(), 4000U);
}

TEST(OpenedState, MemoryThatIsUsedAgainHasTheElementsOfTheNewSnapshot) {
  Ranges state({3 * block_elements, 10});
  const auto copies = std::make_shared<CopyMemory>();
  for (int time = 0; time < 3; ++time) {
    OpenedState opened(state.ranges, {}, Reading::any, copies);
    const auto before = state.memory;
    state.change(opened, 0, state.memory.size());
    for (std::size_t index = 0; index < 2; ++index) {
      const auto values = read(opened, index, 100'000);
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], before[state.first[index] + i]) << time;
    }
  }
}

TEST(OpenedState, CopiesOnlyBlocksThatChangeBeforeTheyAreRead) {
  Ranges state({3 * block_elements, 10});
  const auto opened = state.open();
  const auto big = state.ranges[0].name == "r0" ? 0U : 1U;
  state.change(*opened, state.first[big] + block_elements + 5, 3);
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes);
  state.change(*opened, state.first[big] + block_elements + 700, 3);  // the same block again
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes);
  state.change(*opened, state.first[big] - 20, 10);  // in no range
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes);
  const auto values = read(*opened, big, 100'000);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(state.first[big] + i)) << i;
  state.change(*opened, state.first[big], 3 * block_elements);  // it is read
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes);
  state.change(*opened, state.first[1 - big] - 1, 3);  // the part of it that is in a range
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes + 10 * sizeof(float));
  opened->end_reading();
  state.change(*opened, 0, state.memory.size());
  EXPECT_EQ(opened->copied_bytes(), OpenedState::block_bytes + 10 * sizeof(float));
}

TEST(OpenedState, OneThatIsReadOnceRefusesToBeReadAgainOrOutOfOrder) {
  Ranges state({100});
  const auto opened = state.open();
  std::vector<std::byte> buffer(200);
  EXPECT_THROW(opened->bytes(0, 4, buffer), BugError);
  opened->bytes(0, 0, buffer);
  EXPECT_THROW(opened->bytes(0, 0, buffer), BugError);
  const auto any = state.open(Reading::any);
  any->bytes(0, 4, buffer);
  any->bytes(0, 0, buffer);
  EXPECT_THROW(any->bytes(0, 300, buffer), BugError);
}

TEST(OpenedState, OverlappingRangesAreRefused) {
  Ranges state({100});
  auto twice = state.ranges;
  twice.push_back(twice.front());
  EXPECT_THROW(OpenedState(twice, {}, Reading::once), BugError);
}

/// A block whose last page changes when it is read for the first time: a read that another thread overtakes.
class OvertakenBlock {
 public:
  OvertakenBlock() {
    memory_ = static_cast<float*>(
        ::mmap(nullptr, OpenedState::block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(memory_ != MAP_FAILED, "the system has memory");
    for (std::size_t i = 0; i < block_elements; ++i) memory_[i] = static_cast<float>(i);
  }
  ~OvertakenBlock() { ::munmap(memory_, OpenedState::block_bytes); }
  OvertakenBlock(const OvertakenBlock&) = delete;
  OvertakenBlock& operator=(const OvertakenBlock&) = delete;

  /// The elements of a snapshot that are read while they change.
  std::vector<float> read_overtaken(Reading reading) {
    const Tensor all(std::span(memory_, block_elements), Shape{static_cast<std::int64_t>(block_elements)});
    OpenedState opened({whole("r", all)}, {}, reading);
    const auto last_page = std::span(memory_, block_elements).last(4096 / sizeof(float));
    change_ = [&] {
      ::mprotect(last_page.data(), 4096, PROT_READ | PROT_WRITE);
      opened.before_change(std::as_bytes(last_page));
      for (auto& x : last_page) x = -x - 1;
    };
    struct sigaction act = {}, before = {};
    act.sa_handler = [](int) { change_(); };
    ::sigaction(SIGSEGV, &act, &before);
    ::mprotect(last_page.data(), 4096, PROT_NONE);
    const auto values = read(opened, 0, OpenedState::block_bytes);
    ::sigaction(SIGSEGV, &before, nullptr);
    EXPECT_EQ(opened.copied_bytes(), OpenedState::block_bytes);
    return values;
  }

 private:
  static inline std::function<void()> change_;
  float* memory_ = nullptr;
};

TEST(OpenedState, ABlockThatChangesWhileItIsReadIsReadFromItsCopy) {
  if (sanitized) GTEST_SKIP() << "the signal of a read that is not allowed belongs to the sanitizer";
  for (const auto reading : {Reading::once, Reading::any}) {
    OvertakenBlock block;
    const auto values = block.read_overtaken(reading);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i)) << i;
  }
}

TEST(OpenedState, WhatIsReadWhileThreadsChangeTheStateIsTheStateWhenItWasOpened) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto draw = [&](std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random);
  };
  for (int round = 0; round < 12; ++round) {
    std::vector<std::size_t> lengths(draw(1, 6));
    for (auto& length : lengths) length = draw(0, 3) == 0 ? draw(0, 70) : draw(1, 9) * block_elements + draw(0, 99);
    Ranges state(lengths, draw(0, 2) * 64);
    const auto before = state.memory;
    const auto reading = round % 2 == 0 ? Reading::once : Reading::any;
    const auto opened = state.open(reading);
    // Each thread has its own elements, which begin and end anywhere in blocks, as pieces of an update do.
    const auto threads = draw(1, 4), piece = draw(500, 50'000);
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> changing;
    for (std::size_t t = 0; t < threads; ++t)
      changing.emplace_back([&] {
        for (auto at = next.fetch_add(piece); at < state.memory.size(); at = next.fetch_add(piece))
          state.change(*opened, at, std::min(piece, state.memory.size() - at));
      });
    const auto bytes_at_once = draw(1, 300'000);
    bool equal = true;
    for (std::size_t i = 0; i < state.ranges.size(); ++i)
      for (int times = reading == Reading::any ? 2 : 1; times > 0; --times) {
        const auto values = read(*opened, i, bytes_at_once);
        const auto* expected = before.data() + state.first[i];
        equal = equal && std::equal(values.begin(), values.end(), expected);
      }
    for (auto& thread : changing) thread.join();
    ASSERT_TRUE(equal) << "seed " << seed << ", round " << round;
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(state.memory[i], -before[i] - 1);
  }
}

}  // namespace
}  // namespace tessera::checkpoint
