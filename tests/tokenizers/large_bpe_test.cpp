// GPT2BPETokenizer with a vocabulary of cl100k's size, against ids that tests/peers/record_large_bpe.py recorded.

#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/tokenizer.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using LargeBpe = InOwnFolder;

// The rule of record_large_bpe.py. Here tokens are bytes: a blank where that has U+0120.
void write_vocabulary(std::size_t merges) {
  constexpr std::size_t half = 4;
  const ByteSpelling spelling;
  std::vector<std::string> halves;
  for (const char letter : std::string("abcdefghijklmnopqrst ")) halves.emplace_back(1, letter);
  std::unordered_set<std::string> known(halves.begin(), halves.end());
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[spelling.spell(std::string(1, static_cast<char>(b)))] = b;
  std::ofstream file("merges.txt");
  file << merges_header << "\n";
  std::uint64_t state = 1;
  for (std::size_t made = 0; made < merges;) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto left = halves[(state >> 33U) % halves.size()];
    const auto right = halves[(state >> 8U) % (1U << 25U) % halves.size()];
    if (right[0] == ' ' || !known.insert(left + right).second) continue;
    if (left.size() + right.size() <= half) halves.push_back(left + right);
    file << spelling.spell(left) << " " << spelling.spell(right) << "\n";
    vocab[spelling.spell(left + right)] = 256 + made++;
  }
  vocab["<|endoftext|>"] = 256 + merges;
  std::ofstream("vocab.json") << vocab.dump();
}

TEST_F(LargeBpe, IdsAsRecorded) {
  constexpr std::size_t merges = 100000;
  write_vocabulary(merges);
  const auto tokenizer =
      chosen(tokenizers(),
             {{"tokenizer_type", "GPT2BPETokenizer"}, {"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}});
  EXPECT_EQ(tokenizer->vocab_size(), 256 + merges + 1);
  EXPECT_EQ(tokenizer->eod(), 256 + merges);
  const auto encoder = tokenizer->encoder();
  std::ifstream lines(TESTS_DATA "/large_bpe.jsonl");
  std::size_t texts = 0, large = 0;
  for (std::string line; std::getline(lines, line); ++texts) {
    const auto item = nlohmann::json::parse(line);
    const auto text = item[0].get<std::string>();
    std::vector<std::int32_t> ids;
    encoder->encode(text, ids);
    EXPECT_EQ(ids, item[1].get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
    for (const auto id : ids) large += id > 0xFFFF ? 1 : 0;
  }
  EXPECT_GE(texts, 60U);
  EXPECT_GT(large, 0U);
}

}  // namespace
}  // namespace tessera::tokenizers
