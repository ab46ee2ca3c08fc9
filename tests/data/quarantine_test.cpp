#include "framework/data/quarantine.h"

#include <algorithm>
#include <random>

#include "framework/data/no_tokens.h"
#include "tests/chosen.h"

namespace tessera::data {
namespace {

TEST(Quarantine, ReplacesItsSamplesAloneAndByOthersWhateverTheOrderInWhichTheyWereFound) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto samples = static_cast<std::int64_t>(2 + random() % 50);
    std::vector<std::int64_t> bad(static_cast<std::size_t>(samples));
    std::iota(bad.begin(), bad.end(), 0);
    std::shuffle(bad.begin(), bad.end(), random);
    bad.resize(random() % static_cast<std::size_t>(samples));  // all but one at most
    Quarantine one(samples), other(samples);
    for (const auto index : bad) EXPECT_TRUE(one.add(index)) << seed;
    std::shuffle(bad.begin(), bad.end(), random);
    for (const auto index : bad) EXPECT_TRUE(other.add(index)) << seed;
    for (std::int64_t index = 0; index < samples; ++index) {
      const bool is_bad = std::count(bad.begin(), bad.end(), index) > 0;
      const auto chosen = one.chosen(index);
      EXPECT_EQ(other.chosen(index), chosen) << seed;
      EXPECT_EQ(chosen != index, is_bad) << seed;
      EXPECT_TRUE(chosen >= 0 && chosen < samples && std::count(bad.begin(), bad.end(), chosen) == 0) << seed;
      if (is_bad) {
        EXPECT_FALSE(one.add(index)) << seed;
      }
    }
  }
}

TEST(Quarantine, LeavesOneSampleAndRefusesThoseThatAreNotThere) {
  Quarantine two(2);
  expect_refused([&] { two.add(2); }, {"sample 2 is in quarantine", "2 samples"});
  expect_refused([&] { two.add(-1); }, {"sample -1 is in quarantine"});
  two.add(1);
  expect_refused([&] { two.add(0); }, {"all 2 samples of the split are in quarantine"});
  EXPECT_EQ(two.chosen(1), 0);
}

TEST(Quarantines, CountWhatTheRunFoundAndNotWhatItWasGiven) {
  const NoTokens train(10, 4), valid(5, 4);
  Quarantines all;
  const auto& of_train = all.add_split("train", train);
  all.add_split("valid-a", valid);
  EXPECT_EQ(all.split_of(valid), "valid-a");
  const auto file = read_quarantine(
      "{\"split\": \"train\", \"sample\": 3, \"reason\": \"x\"}\n\n{\"sample\":4,\"split\":\"valid-a\"}", "f");
  EXPECT_EQ(file, (std::vector<SplitSample>{{"train", 3}, {"valid-a", 4}}));
  all.add_known(file);
  EXPECT_TRUE(all.found().empty());
  EXPECT_FALSE(all.add({"train", 3}));
  EXPECT_TRUE(all.add({"train", 2}));
  all.restore({{"train", 2}, {"train", 5}, {"train", 10}, {"gone", 1}});  // the last two are of other data
  EXPECT_EQ(all.found(), (std::set<SplitSample>{{"train", 2}, {"train", 5}}));
  EXPECT_EQ(of_train.indices(), (std::set<std::int64_t>{2, 3, 5}));
}

TEST(Quarantines, NameWhatIsWrongWithAFile) {
  const NoTokens train(10, 4);
  Quarantines all;
  all.add_split("train", train);
  expect_refused([&] { all.add({"test", 1}); }, {"split 'test'", "the run has only: train"});
  expect_refused([&] { all.add({"train", 10}); }, {"sample 10", "split 'train'", "10 samples"});
  for (const auto* line : {"{\"split\": \"train\"}", "{\"split\": 1, \"sample\": 1}", "[]", "{\"split\": \"train\", ",
                           "{\"split\": \"train\", \"sample\": \"1\"}"})
    expect_refused([&] { read_quarantine(std::string("{\"split\":\"train\",\"sample\":1}\n") + line, "file"); },
                   {"file:2: expected an object such as"});
}

}  // namespace
}  // namespace tessera::data
