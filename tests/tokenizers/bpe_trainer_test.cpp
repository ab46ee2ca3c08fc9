#include "framework/tokenizers/bpe_trainer.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/tokenizers/tokenizer.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using TrainBpe = InOwnFolder;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> chapters() {
  std::ifstream file(std::string(TESTS_DATA) + "/golden_data/corpus/chapters.jsonl");
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line)["text"]);
  return all;
}

TrainedBpe learn(const std::vector<std::string>& texts, std::int64_t vocab_size, std::int64_t min_frequency = 2) {
  BpeTrainer trainer;
  for (const auto& text : texts) trainer.add(text);
  return trainer.train(vocab_size, min_frequency);
}

// The rule said plainly: count all pairs anew for every merge.
Merges learn_slowly(const std::vector<std::string>& words, std::size_t merges) {
  std::vector<std::vector<std::string>> split;
  std::vector<std::string> order;  // the order of ids, for ties: 'a' to 'z' stand in it as in ASCII
  for (char c = 'a'; c <= 'z'; ++c) order.emplace_back(1, c);
  for (const auto& word : words) {
    split.emplace_back();
    for (const char c : word) split.back().emplace_back(1, c);
  }
  Merges made;
  const auto rank = [&](const std::string& t) { return std::find(order.begin(), order.end(), t) - order.begin(); };
  while (made.size() < merges) {
    std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, int> counts;
    for (const auto& word : split)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{rank(word[i]), rank(word[i + 1])}];
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it)
      if (it->second > best->second) best = it;
    if (best == counts.end() || best->second < 2) break;
    const auto left = order[static_cast<std::size_t>(best->first.first)],
               right = order[static_cast<std::size_t>(best->first.second)];
    made.emplace_back(left, right);
    if (std::find(order.begin(), order.end(), left + right) == order.end()) order.push_back(left + right);
    for (auto& word : split)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == left && word[i + 1] == right) {
          word[i] += right;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return made;
}

TEST(BpeTrainer, FindsWhatCountingAnewFinds) {
  std::vector<std::string> words;
  std::uint32_t state = 1;
  for (int i = 0; i < 150; ++i) {
    std::string word;
    for (int l = 0; l < 9; ++l) word += static_cast<char>('a' + ((state = state * 1664525U + 1013904223U) >> 24U) % 4);
    words.push_back(word);
  }
  const auto trained = learn(words, 257 + 120);
  EXPECT_EQ(trained.merges, learn_slowly(words, trained.merges.size()));
  EXPECT_GT(trained.merges.size(), 80U);
}

TEST(BpeTrainer,
     FindsWhatHuggingFaceFinds) {  // tokenizers 0.23, ByteLevelBPETokenizer, vocab_size 400, min_frequency 2
  const auto trained = learn(chapters(), 400);
  ASSERT_EQ(trained.vocabulary.size(), 400U);
  EXPECT_EQ(trained.vocabulary.back(), "<|endoftext|>");
  std::ifstream recorded(std::string(TESTS_DATA) + "/trained_bpe/merges.txt");
  Merges expected;
  std::string left, right;
  std::getline(recorded, left);
  while (recorded >> left >> right) expected.emplace_back(left, right);
  EXPECT_EQ(expected.size(), 143U);
  EXPECT_EQ(trained.merges, expected);
}

TEST(BpeTrainer, DoesNotDependOnTheOrderOfTexts) {
  auto texts = chapters();
  const auto once = learn(texts, 350);
  std::reverse(texts.begin(), texts.end());
  EXPECT_EQ(once.merges, learn(texts, 350).merges);
}

TEST(BpeTrainer, StopsWhenNoPairIsFrequent) {
  EXPECT_EQ(learn({"abab abab"}, 1000, 3).merges, (Merges{{"a", "b"}}));
  EXPECT_EQ(learn({}, 1000).vocabulary.size(), 257U);
  expect_refused([] { (void)learn({"a"}, 256); }, {"256", "257"});
}

TEST_F(TrainBpe, ItsFilesAreATokenizer) {
  const auto texts = chapters();
  learn(texts, 400).write("vocab.json", "merges.txt");
  const auto tokenizer =
      chosen(tokenizers(),
             {{"tokenizer_type", "GPT2BPETokenizer"}, {"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}});
  EXPECT_EQ(tokenizer->vocab_size(), 400);
  EXPECT_EQ(tokenizer->eod(), 399);
  for (const auto& text : texts) {
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->bytes(ids), text);
    EXPECT_LT(3 * ids.size(), 2 * text.size());
  }
}

}  // namespace
}  // namespace tessera::tokenizers
