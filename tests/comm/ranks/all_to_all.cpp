// Each member sends another amount to each other one.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/ranks/ranks.h"
#include "tests/story.h"

namespace tessera::comm {
namespace {

using Sizes = std::vector<std::vector<std::size_t>>;  // [from][to]

std::size_t members() { return static_cast<std::size_t>(world().size()); }
std::size_t own() { return static_cast<std::size_t>(world().rank()); }

std::byte content(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::byte>((i * 7 + i / 251 + from * 31 + to * 101) & 255);
}

std::vector<std::byte> parts(const std::vector<std::size_t>& sizes, const auto& value) {
  std::vector<std::byte> all;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    for (std::size_t i = 0; i < sizes[r]; ++i) all.push_back(value(r, i));
  return all;
}

void expect_exchanged(const Sizes& sizes, const std::string& which) {
  std::vector<std::size_t> from_each;
  for (const auto& row : sizes) from_each.push_back(row[own()]);
  const auto send = parts(sizes[own()], [](std::size_t to, std::size_t i) { return content(own(), to, i); });
  const auto expected = parts(from_each, [](std::size_t from, std::size_t i) { return content(from, own(), i); });
  std::vector<std::byte> receive(expected.size());
  world().all().all_to_all(send, sizes[own()], receive, from_each, "test");
  EXPECT_TRUE(receive == expected) << which;
}

TEST(AllToAll, BringsEveryPartWhereItBelongsWhateverTheSizes) {
  // All ranks draw the same sizes.
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    const std::size_t most = std::vector<std::size_t>{1, 100, 5000, 300'000}[seed % 4];
    Sizes sizes(members(), std::vector<std::size_t>(members()));
    for (auto& row : sizes)
      for (auto& size : row) size = random() % 3 == 0 ? 0 : random() % (most + 1);
    expect_exchanged(sizes, "seed " + std::to_string(seed));
  }
}

TEST(AllToAll, MayBeEmptyOrAllForOneMember) {
  expect_exchanged(Sizes(members(), std::vector<std::size_t>(members(), 0)), "nothing");
  for (std::size_t to = 0; to < members(); ++to) {
    Sizes sizes(members(), std::vector<std::size_t>(members(), 0));
    for (auto& row : sizes) row[to] = 300'007;
    expect_exchanged(sizes, "all for " + std::to_string(to));
    sizes.assign(members(), std::vector<std::size_t>(members(), 0));
    sizes[to].assign(members(), 600'011);
    expect_exchanged(sizes, "all from " + std::to_string(to));
  }
}

TEST(AllToAll, ALongPartGoesInManyPieces) {
  Sizes sizes(members(), std::vector<std::size_t>(members(), 70'003));
  sizes[0][1] = 9'000'001;
  expect_exchanged(sizes, "long");
}

TEST(AllToAll, SizesThatTwoMembersDoNotShareAreAnError) {
  if (transport() == Transport::messages) GTEST_SKIP() << "messages carry no sizes that are not sent";
  std::vector<int> ranks(members());
  std::iota(ranks.begin(), ranks.end(), 0);
  const Communicator group = world().group("uneven", ranks);
  std::vector<std::size_t> send(members(), 4), receive(members(), 4);
  if (own() == 0) receive[1] = 5;
  const std::vector<std::byte> from(4 * members());
  std::vector<std::byte> to(4 * members() + (own() == 0 ? 1 : 0));
  const std::string story = story_of([&] { group.all_to_all(from, send, to, receive, "tokens of experts"); });
  if (own() == 0)
    EXPECT_TRUE(says(story, "rank 1 sends 4 bytes to rank 0, which expects 5")) << story;
  else
    EXPECT_EQ(story, "no error") << "the others have what they expect";
  world().all().barrier("end of the test");
}

TEST(AllToAll, ListsThatDoNotFitTheArraysAreRefused) {
  const std::vector<std::byte> from(8 * members());
  std::vector<std::byte> to(8 * members());
  const std::vector<std::size_t> right(members(), 8), wrong(members(), 7), few(members() - 1, 8);
  const auto story = [&](const auto& send, const auto& receive) {
    return story_of([&] { world().all().all_to_all(from, send, to, receive, "tokens"); });
  };
  EXPECT_TRUE(says(story(wrong, right), "called by 'tokens' sends"));
  EXPECT_TRUE(says(story(right, wrong), "called by 'tokens' sends"));
  EXPECT_TRUE(says(story(few, right), "expected a part for each of"));
}

}  // namespace
}  // namespace tessera::comm
