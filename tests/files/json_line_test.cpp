#include "framework/files/json_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/unicode/utf8.h"

namespace tessera::files {
namespace {

using Texts = std::vector<std::string>;

Texts texts_of(const std::string& line, const std::string& key = "text") {
  JsonLine parser({key});
  parser.parse(line);
  return {parser.texts(0).begin(), parser.texts(0).end()};
}

std::string refusal_of(const std::string& line) {
  JsonLine parser({"text"});
  try {
    parser.parse(line);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Each line was given to json.loads of Python 3.11, followed by a look at ["text"].
TEST(JsonLine, TakesWhatPythonTakes) {
  EXPECT_EQ(texts_of(R"({"text": "a"})"), Texts{"a"});
  EXPECT_EQ(texts_of(" {\t\"x\" : [1, -0.5e+7, {\"text\": 3}, NaN, -Infinity, Infinity, null, true, "
                     "false],\r\n\"text\":\"b\"} \r\n"),
            Texts{"b"});
  EXPECT_EQ(texts_of(R"({"text": ["a", "", "c\n"]})"), (Texts{"a", "", "c\n"}));
  EXPECT_EQ(texts_of(R"({"text": []})"), Texts{});
  EXPECT_EQ(texts_of(R"({"text": 1, "text": "last"})"), Texts{"last"});
  EXPECT_EQ(texts_of(R"({"text": "first", "te\u0078t": "escaped"})"), Texts{"escaped"});
  EXPECT_EQ(texts_of(R"({"text": "\"\\\/\b\f\n\r\t\u00e4\u20AC\ud83d\ude00"})"),
            Texts{"\"\\/\b\f\n\r\t\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"});
  EXPECT_EQ(texts_of(R"({"x": "\ud800", "\udc00": 1, "text": "\u0000"})"), Texts{std::string(1, '\0')});
  EXPECT_EQ(texts_of("{\"text\": \"\x7F\xC2\x85\"}"), Texts{"\x7F\xC2\x85"});
  EXPECT_EQ(texts_of("{\"n\": " + std::string(4300, '9') + ", \"text\": \"a\"}"), Texts{"a"});
  EXPECT_EQ(texts_of("{\"n\": " + std::string(5000, '9') + ".0, \"text\": \"a\"}"), Texts{"a"});
  const std::string deep(900, '['), up(900, ']');
  EXPECT_EQ(texts_of("{\"n\": " + deep + up + ", \"text\": \"a\"}"), Texts{"a"});
}

TEST(JsonLine, RefusesWhatPythonRefusesAndSaysWhere) {
  for (const std::string line : {"",
                                 "  ",
                                 "{",
                                 "{}x",
                                 "{\"text\": \"a\"",
                                 "{\"text\": \"a\",}",
                                 "{\"text\": [\"a\",]}",
                                 "{text: 1}",
                                 "{\"text\" \"a\"}",
                                 "{\"text\": 'a'}",
                                 "{\"text\": \"a\"} {}",
                                 "{\"text\": \"a\tb\"}",
                                 "{\"text\": \"\\x\"}",
                                 "{\"text\": \"\\u12g4\"}",
                                 "{\"text\": \"\\ud83d\\u12\"}",
                                 "{\"text\": \"a}",
                                 "{\"n\": 01, \"text\": \"a\"}",
                                 "{\"n\": 1., \"text\": \"a\"}",
                                 "{\"n\": .5, \"text\": \"a\"}",
                                 "{\"n\": +1, \"text\": \"a\"}",
                                 "{\"n\": 1e, \"text\": \"a\"}",
                                 "{\"n\": -, \"text\": \"a\"}",
                                 "{\"n\": -NaN, \"text\": \"a\"}",
                                 "{\"n\": nul, \"text\": \"a\"}",
                                 "{\"n\": [1 2], \"text\": \"a\"}",
                                 "{\"n\": [1}, \"text\": \"a\"}",
                                 "{\"n\": {1: 2}, \"text\": \"a\"}",
                                 "{\"text\": \"\\ud83d b\"}",
                                 "{\"text\": [\"a\", \"\\udc00\"]}",
                                 "{\"text\": null}",
                                 "{\"text\": {}}",
                                 "{\"text\": [[\"a\"]]}",
                                 "{\"other\": \"a\"}",
                                 "[\"text\"]",
                                 "\"text\"",
                                 "null",
                                 "\xEF\xBB\xBF{\"text\": \"a\"}"})
    EXPECT_NE(refusal_of(line), "") << line;
  EXPECT_NE(refusal_of(std::string("{\"text\": \"a\0\"}", 14)), "");
  EXPECT_NE(refusal_of("{\"n\": " + std::string(4301, '9') + ", \"text\": \"a\"}"), "");
  EXPECT_NE(refusal_of("{\"n\": " + std::string(100000, '[')), "");
  EXPECT_EQ(refusal_of("{\"text\": \"a\" 1}"), "is not JSON: column 14: expected ',' or '}'");
}

// The inputs of tests/fuzz/json_line_fuzz.cpp: of each line, whether json.loads of Python 3.11 reads it and "text" and
// "t" are strings, or lists of them, that UTF-8 can hold.
TEST(JsonLine, VerdictsOfTheFuzzersInputsAreThoseOfPython) {
  const std::map<std::string, std::string> verdicts = {{"bad_utf8", "n"},        {"broken", "nnnnnnnnnnn"},
                                                       {"byte_order_mark", "n"}, {"deep", "y"},
                                                       {"empty", "n"},           {"escapes", "y"},
                                                       {"line_ends", "ynnny"},   {"lists", "y"},
                                                       {"long_float", "y"},      {"long_number", "n"},
                                                       {"nested", "nnn"},        {"nul", "n"},
                                                       {"numbers", "y"},         {"plain", "yn"},
                                                       {"repeated_keys", "y"},   {"surrogates", "n"},
                                                       {"too_deep", "n"},        {"utf8", "y"}};
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TESTS_DATA) / "fuzz/json_line")) {
    const auto name = entry.path().filename().string();
    ASSERT_TRUE(verdicts.count(name)) << name << " has no recorded verdict";
    const auto all = read_file(entry.path());
    JsonLine parser({"text", "t"});
    std::string found;
    for (std::size_t begin = 0; begin <= all.size();) {
      const auto end = std::min(all.find('\n', begin), all.size());
      const auto line = std::string_view(all).substr(begin, end - begin);
      bool taken = unicode::first_not_utf8(line) == std::string_view::npos;  // as ChunkEncoder asks before
      try {
        parser.parse(line);
      } catch (const ConfigError&) {
        taken = false;
      }
      found += taken ? 'y' : 'n';
      begin = end + 1;
    }
    EXPECT_EQ(found, verdicts.at(name)) << name;
    ++inputs;
  }
  EXPECT_EQ(inputs, verdicts.size());
}

// Random texts written by another library, plainly and as escapes, come back.
TEST(JsonLine, ReadsBackRandomTexts) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  JsonLine parser({"a", "text"});
  for (int round = 0; round < 2000; ++round) {
    nlohmann::json object = nlohmann::json::object();
    Texts expected;
    for (int n = static_cast<int>(random() % 4); n >= 0; --n) {
      std::string words;
      for (int k = static_cast<int>(random() % 40); k > 0; --k) {
        static const Texts pieces = {
            "a", " ", "\"", "\\", "\n", "\x01", "\xC3\xA4", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "abcdefgh", "/"};
        words += pieces[random() % pieces.size()];
      }
      expected.push_back(words);
    }
    object["text"] = expected;
    object["a"] = expected[0];
    object["z"] = {{"text", expected}, {"n", random()}};
    const auto line = object.dump(-1, ' ', random() % 2 == 0);
    parser.parse(line);
    ASSERT_EQ(Texts(parser.texts(1).begin(), parser.texts(1).end()), expected) << line;
    ASSERT_EQ(parser.texts(0).size(), 1U);
    ASSERT_EQ(parser.texts(0)[0], expected[0]) << line;
    ASSERT_TRUE(parser.is_list(1));
    ASSERT_FALSE(parser.is_list(0));
    const auto cut = line.substr(0, random() % line.size());
    EXPECT_THROW(parser.parse(cut), ConfigError) << cut;
  }
}

}  // namespace
}  // namespace tessera::files
