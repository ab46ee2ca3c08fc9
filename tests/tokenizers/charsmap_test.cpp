#include "framework/tokenizers/charsmap.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/tokenizers/base64.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

const nlohmann::json& recorded_map() {
  static const auto all = nlohmann::json::parse(std::ifstream(TESTS_DATA "/unicode/charsmap.json"));
  return all;
}

std::string blob() { return from_base64(recorded_map().at("map").get<std::string>(), "charsmap.json"); }

TEST(CharsMap, RandomTextsAsRecorded) {
  const CharsMap map(blob(), "charsmap.json");
  for (const auto& item : recorded_map().at("texts"))
    EXPECT_EQ(map.normalized(item[0].get<std::string>()), item[1].get<std::string>()) << item[0];
  EXPECT_EQ(recorded_map().at("texts").size(), 500U);
}

// Each code point in frames that show whether it joins its neighbours to a grapheme cluster; sums as in
// unicode_test.cpp.
TEST(CharsMap, EveryCodePointJoinsItsNeighboursAsRecorded) {
  constexpr char32_t block = 0x8000;
  const CharsMap map(blob(), "charsmap.json");
  for (const auto& item : recorded_map().at("frames")) {
    const auto frame = item[0].get<std::string>(), sums = item[1].get<std::string>();
    const auto hole = frame.find("{}");
    for (char32_t begin = 0; begin < unicode::end_of_code_points; begin += block) {
      if (begin >= 0x20000 && begin != 0xE0000) continue;  // nothing there joins anything
      std::uint32_t sum = 0x811C9DC5;
      for (auto code = begin; code < begin + block; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        auto text = frame;
        for (const auto byte : map.normalized(text.replace(hole, 2, unicode::to_utf8(code))) + '\xFF')
          sum = (sum ^ static_cast<unsigned char>(byte)) * 0x01000193;
      }
      char digits[9];
      std::snprintf(digits, sizeof digits, "%08x", sum);
      EXPECT_EQ(digits, sums.substr(8 * (begin / block), 8)) << frame << ", block " << begin / block;
    }
  }
}

TEST(CharsMap, ATextThatBecomesTooLongIsRefused) {
  const CharsMap map(blob(), "charsmap.json");
  const std::string ascii(100, 'a'), clusters = "\u00E4\u00F6\u00FC\u00E4\u00F6\u00FC";
  EXPECT_EQ(map.normalized(ascii, 100).size(), 100U);
  EXPECT_THROW(map.normalized(ascii, 50), ConfigError);
  EXPECT_THROW(map.normalized(clusters, 5), ConfigError);
}

TEST(CharsMap, DamagedMapsAreRefused) {
  const auto good = blob();
  EXPECT_THROW(CharsMap("", "x"), ConfigError);
  EXPECT_THROW(CharsMap(std::string(4, '\0'), "x"), ConfigError);
  EXPECT_THROW(CharsMap(good.substr(0, 100), "x"), ConfigError);
  EXPECT_THROW(CharsMap(good + "\xFF", "x"), ConfigError);
  // Without replacements the trie points behind the end.
  const auto trie =
      4 + (static_cast<unsigned char>(good[0]) | static_cast<std::size_t>(static_cast<unsigned char>(good[1])) << 8U |
           static_cast<std::size_t>(static_cast<unsigned char>(good[2])) << 16U);
  try {
    (void)CharsMap(good.substr(0, trie), "cut.json").normalized("\xEF\xBC\xA1");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("cut.json"), std::string::npos);
  }
}

TEST(Base64, TextsAndMistakes) {
  EXPECT_EQ(from_base64("", "x"), "");
  EXPECT_EQ(from_base64("AP8=", "x"), std::string("\0\xFF", 2));
  EXPECT_EQ(from_base64("YQ==", "x"), "a");
  EXPECT_EQ(from_base64("YWJj", "x"), "abc");
  for (const auto* wrong : {"Y", "YQ", "YQ=", "YQ=a", "Y===", "YWJ*", "=WJj", "YQ==YQ=="})
    EXPECT_THROW(from_base64(wrong, "x"), ConfigError) << wrong;
}

}  // namespace
}  // namespace tessera::tokenizers
