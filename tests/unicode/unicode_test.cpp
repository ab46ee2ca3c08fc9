#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/unicode_normal.h"
#include "framework/unicode/utf8.h"

namespace tessera::unicode {
namespace {

constexpr char32_t block = 0x8000;
using Fact = std::function<void(char32_t, std::string&)>;

const nlohmann::json& recorded_digests() {
  static const auto all = nlohmann::json::parse(std::ifstream(TESTS_DATA "/unicode/digests.json"));
  return all;
}

// The sums of tests/peers/record_unicode.py: one of each block of code points.
void expect_recorded(const std::string& name, const Fact& fact) {
  const auto expected = recorded_digests().at(name).get<std::string>();
  ASSERT_EQ(expected.size(), 8 * end_of_code_points / block);
  std::string bytes;
  for (char32_t begin = 0; begin < end_of_code_points; begin += block) {
    bytes.clear();
    for (auto code = begin; code < begin + block; ++code)
      if (code < 0xD800 || code >= 0xE000) fact(code, bytes);
    std::uint32_t sum = 0x811C9DC5;
    for (const auto byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x01000193;
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    EXPECT_EQ(digits, expected.substr(8 * (begin / block), 8))
        << name << ", block of " << std::hex << static_cast<std::uint32_t>(begin);
  }
}

void expect_set(const std::string& name, Property which) {
  const auto& set = property(which);
  expect_recorded(name, [&](char32_t code, std::string& bytes) { bytes += static_cast<char>(set.has(code)); });
}

void expect_map(const std::string& name, const std::function<std::string(const std::string&)>& map) {
  expect_recorded(name, [&](char32_t code, std::string& bytes) { bytes += map(unicode::to_utf8(code)) + '\xFF'; });
}

void expect_categories(const std::string& name, Version version) {
  constexpr std::string_view names = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
  const auto& table = categories(version);
  expect_recorded(name, [&](char32_t code, std::string& bytes) {
    bytes += names.substr(2 * static_cast<std::size_t>(table.of(code)), 2);
  });
}

TEST(UnicodeOfEveryCodePoint, Categories) {
  expect_categories("python categories", Version::v14);
  expect_categories("tokenizers categories", Version::v16);
  expect_categories("tiktoken categories", Version::v16);
  expect_categories("regex categories", Version::v18);
}

TEST(UnicodeOfEveryCodePoint, Properties) {
  for (const auto* name : {"tokenizers space", "tokenizers whitespace_space", "tokenizers whitespace_split",
                           "tiktoken space", "regex space"})
    expect_set(name, Property::white_space);
  expect_set("python space", Property::python_space);
  expect_set("tokenizers han", Property::han);
  expect_set("tiktoken han", Property::han);
  expect_set("tokenizers word", Property::oniguruma_word);
  expect_set("tokenizers whitespace_word", Property::rust_word);
  expect_set("tiktoken word", Property::rust_word);
  expect_set("tokenizers digits", Property::rust_numeric);
  expect_set("tokenizers punctuation", Property::tokenizers_punctuation);
  expect_set("tokenizers accent", Property::tokenizers_accent);
  expect_set("tokenizers bert_accent", Property::bert_accent);
  expect_set("tokenizers bert_removed", Property::bert_removed);
  expect_set("tokenizers bert_chinese", Property::bert_chinese);
  expect_set("python cased", Property::python_cased);
  expect_set("python case_ignorable", Property::python_case_ignorable);
}

TEST(UnicodeOfEveryCodePoint, NormalFormsAndLowerCase) {
  const std::pair<const char*, Form> forms[] = {
      {"NFC", Form::nfc}, {"NFD", Form::nfd}, {"NFKC", Form::nfkc}, {"NFKD", Form::nfkd}};
  const std::pair<const char*, NormalizationRules> programs[] = {{"python ", NormalizationRules::python},
                                                                 {"tokenizers ", NormalizationRules::tokenizers}};
  for (const auto& program : programs)
    for (const auto& form : forms)
      expect_map(std::string(program.first) + form.first,
                 [&](const std::string& text) { return normalized(text, form.second, program.second); });
  expect_map("python lower", python_lower);
  expect_map("tokenizers lower", lower_each);
}

TEST(UnicodeOfEveryCodePoint, OrderOfMarks) {
  const auto marks = recorded_digests().at("marks").get<std::string>();
  for (const auto whose : {NormalizationRules::python, NormalizationRules::tokenizers}) {
    const std::string name = whose == NormalizationRules::python ? "python order" : "tokenizers order";
    const auto sorted = normalized(marks, Form::nfd, whose);
    expect_map(name, [&](const std::string& text) {
      const auto alone = normalized(text, Form::nfd, whose);
      // A starter stays between marks: no need to sort them all again.
      if (normalized("\u0301" + text + "\u0334", Form::nfd, whose) == "\u0301" + alone + "\u0334")
        return sorted + alone;
      return normalized(marks + text, Form::nfd, whose);
    });
  }
}

TEST(Unicode, RandomTextsAsRecorded) {
  std::ifstream lines(TESTS_DATA "/unicode/texts.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto item = nlohmann::json::parse(line);
    const auto text = item.at("text").get<std::string>();
    const Form forms[] = {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(normalized(text, forms[i], NormalizationRules::python), item.at("python")[i]) << text;
      EXPECT_EQ(normalized(text, forms[i], NormalizationRules::tokenizers), item.at("tokenizers")[i]) << text;
    }
    EXPECT_EQ(python_lower(text), item.at("lower")) << text;
    EXPECT_EQ(lower_each(text), item.at("lower_each")) << text;
  }
  EXPECT_GE(count, 400);
}

TEST(Unicode, BytesThatAreNotUtf8Stay) {
  const std::string broken =
      "\xC3\xC3\xA9\xFF"
      "e\xCC\x81\xE2\x82";
  EXPECT_EQ(from_code_points(to_code_points(broken)), broken);
  EXPECT_EQ(normalized(broken, Form::nfd, NormalizationRules::python),
            "\xC3"
            "e\xCC\x81\xFF"
            "e\xCC\x81\xE2\x82");
  EXPECT_EQ(normalized(broken, Form::nfc, NormalizationRules::tokenizers), "\xC3\xC3\xA9\xFF\xC3\xA9\xE2\x82");
}

TEST(Unicode, NamesOfCategories) {
  EXPECT_EQ(category_set("L"),
            bit(Category::lu) | bit(Category::ll) | bit(Category::lt) | bit(Category::lm) | bit(Category::lo));
  EXPECT_EQ(category_set("Sk"), bit(Category::sk));
  EXPECT_EQ(category_set("C"),
            bit(Category::cc) | bit(Category::cf) | bit(Category::cs) | bit(Category::co) | bit(Category::cn));
  EXPECT_FALSE(category_set("Xx"));
  EXPECT_FALSE(category_set("LuL"));
}

}  // namespace
}  // namespace tessera::unicode
