// How BERT and tiktoken cut each code point from its neighbours; recorded by tests/peers/record_words.py.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/tokenizers/bert_words.h"
#include "framework/tokenizers/ranked_bytes.h"
#include "framework/tokenizers/tiktoken_words.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

const nlohmann::json& recorded_words() {
  static const auto all = nlohmann::json::parse(std::ifstream(TESTS_DATA "/unicode/words.json"));
  return all;
}

std::string filled(std::string frame, char32_t code) {
  const auto character = unicode::to_utf8(code);
  for (auto at = frame.find("{}"); at != std::string::npos; at = frame.find("{}", at + character.size()))
    frame.replace(at, 2, character);
  return frame;
}

// Sums of unicode_test.cpp, over the blocks of 0x8000 code points below `end` and the one of tags and variation
// selectors.
void expect_sums(const std::string& name, const std::string& sums, const std::string& frame, char32_t end,
                 const std::function<void(const std::string&, std::string&)>& fact) {
  constexpr char32_t block = 0x8000;
  std::string bytes;
  for (char32_t begin = 0; begin < 0x110000; begin += block) {
    if (begin >= end && begin != 0xE0000) continue;
    bytes.clear();
    for (auto code = begin; code < begin + block; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      fact(filled(frame, code), bytes);
      bytes += '\xFF';
    }
    std::uint32_t sum = 0x811C9DC5;
    for (const auto byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x01000193;
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    EXPECT_EQ(digits, sums.substr(8 * (begin / block), 8)) << name << " " << frame << ", block " << begin / block;
  }
}

TEST(WordsOfEveryCodePoint, Bert) {
  for (const bool lower : {true, false}) {
    const std::string name = lower ? "bert_lower" : "bert_cased";
    expect_sums(name, recorded_words().at(name), recorded_words().at("bert_frame"), 0x38000,
                [&](const std::string& text, std::string& to) {
                  for_each_bert_word(text, lower, [&](std::string_view word) {
                    to += word;
                    to += '\xFF';
                  });
                });
  }
}

TEST(WordsOfEveryCodePoint, Tiktoken) {
  RankedBytes ranks;
  for (int b = 0; b < 256; ++b) ranks.add(std::string(1, static_cast<char>(b)));
  for (const char end : {'b', ' ', '/', '\n'})
    for (int b = 0; b < 256; ++b) ranks.add({static_cast<char>(b), end});
  for (int b = 0; b < 256; ++b) ranks.add({'a', static_cast<char>(b)});
  std::vector<std::int32_t> ids;
  for (const auto& item : recorded_words().at("tiktoken")) {
    const auto pattern = item[1] == "v1" ? TiktokenPattern::v1 : TiktokenPattern::v2;
    expect_sums(item[1], item[2], item[0], 0x20000, [&](const std::string& text, std::string& to) {
      ids.clear();
      for (std::size_t at = 0; at < text.size();) {
        const auto size = next_tiktoken_word(pattern, text, at);
        ranks.encode(std::string_view(text).substr(at, size), 0, "x", ids);
        at += size;
      }
      for (const auto id : ids) {
        to += static_cast<char>(id % 256);
        to += static_cast<char>(id / 256);
      }
    });
  }
}

}  // namespace
}  // namespace tessera::tokenizers
