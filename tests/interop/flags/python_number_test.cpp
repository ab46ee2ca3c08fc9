#include "framework/interop/flags/python_number.h"

#include <gtest/gtest.h>

#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera {
namespace {

TEST(PythonNumber, LosesItsBlanksAndUnderscores) {
  const std::vector<std::pair<std::string, std::string>> numbers = {
      {"183_105", "183105"}, {" 7\n", "7"},     {"+1_0", "+10"},        {"-1_2_3", "-123"}, {"0_0", "00"},
      {"1_0.2_5", "10.25"},  {"1e1_0", "1e10"}, {"1_0e-0_5", "10e-05"}, {".5", ".5"},       {"5.", "5."}};
  for (const auto& [word, number] : numbers) EXPECT_EQ(flags::python_number(word), number) << word;
}

TEST(PythonNumber, IsNoOtherWord) {
  for (const auto* word : {"",
                           " ",
                           "_1",
                           "1_",
                           "1__0",
                           "1_.5",
                           "1._5",
                           "1_e5",
                           "1e_5",
                           "1e5_",
                           "a_b",
                           "text_document",
                           "1_000_documents",
                           "0x1_F",
                           "--1",
                           "1 000",
                           "$N",
                           "${N}_0",
                           "data_1",
                           "1_0,2_0"})
    EXPECT_EQ(flags::python_number(word), word);
}

/// A word of digits and what the grammar of int() and float() puts among them; sometimes one that they refuse.
std::string drawn_word(std::mt19937& rng) {
  const std::string letters = "0123456789012345678901234567890123456789___..eE+- ";
  std::string word;
  for (auto size = 1 + rng() % 8; size > 0; --size) word += letters[rng() % letters.size()];
  return word;
}

/// Python's grammar: [sign] digitpart ["." [digitpart]] [exponent], or "." digitpart [exponent], where a digitpart is
/// digits with single underscores between them; blanks around it. Read letter by letter.
class Grammar {
 public:
  explicit Grammar(const std::string& word) : word_(word) {}
  bool is_float() {
    while (at_ < word_.size() && word_[at_] == ' ') ++at_;
    if (is('+') || is('-')) ++at_;
    const bool whole = digits();
    bool fraction = false;
    if (is('.')) {
      ++at_;
      fraction = digits();
    }
    if (!whole && !fraction) return false;
    if (is('e') || is('E')) {
      ++at_;
      if (is('+') || is('-')) ++at_;
      if (!digits()) return false;
    }
    while (at_ < word_.size() && word_[at_] == ' ') ++at_;
    return at_ == word_.size();
  }

 private:
  bool is(char c) const { return at_ < word_.size() && word_[at_] == c; }
  bool digit() const { return at_ < word_.size() && std::isdigit(static_cast<unsigned char>(word_[at_])); }
  bool digits() {
    if (!digit()) return false;
    while (digit() || (is('_') && at_ + 1 < word_.size() && std::isdigit(static_cast<unsigned char>(word_[at_ + 1]))))
      ++at_;
    return true;
  }
  const std::string& word_;
  std::size_t at_ = 0;
};

TEST(PythonNumber, FollowsTheGrammarOfFloatWhateverTheWord) {
  std::mt19937 rng(7);
  int numbers = 0, with_underscores = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto word = drawn_word(rng);
    const auto number = flags::python_number(word);
    double value = 0;
    const bool read = options::OptionType<double>::read(options::Value::of(number, {}), value);
    if (!Grammar(word).is_float()) {
      ASSERT_EQ(number, word);
      ASSERT_FALSE(read) << word;
      continue;
    }
    if (!read) continue;  // beyond what a double holds
    ++numbers;
    with_underscores += word.find('_') != std::string::npos;
    ASSERT_EQ(number.find_first_of("_ "), std::string::npos) << word;
    std::string letters = word;
    std::erase_if(letters, [](char c) { return c == '_' || c == ' '; });
    ASSERT_EQ(number, letters);
  }
  EXPECT_GT(numbers, 10000);
  EXPECT_GT(with_underscores, 500);
}

TEST(PythonNumber, IsWhatEveryNumericFlagTakes) {
  const recipe::Registries registries;
  const auto facts = recipe::all_facts(registries);
  const auto table = flags::FlagTable::named(flags::FlagTable::usual, options::Mappings());
  const auto converted = [&](const std::vector<std::string>& argv, const std::string& option) {
    options::Report report;
    const auto recipe = table.convert(argv, facts, report);
    EXPECT_TRUE(report.good()) << report.problems().front();
    const auto* value = recipe.at(option);
    return value ? text(*value) : "absent";
  };
  EXPECT_EQ(converted({"--train-iters", "183_105"}, "training_config.training_iters"), "183105");
  EXPECT_EQ(converted({"--lr", "1_0.5e-0_4"}, "optimizer_config.learning_rate"), "10.5e-04");
  EXPECT_EQ(converted({"--rampup-batch-size", "1_6", "1_6", "5_859_375"}, "dataset_config.rampup_batch_size"),
            "[16, 16, 5859375]");
  EXPECT_EQ(converted({"--adam-beta2", "0.9_5"}, "optimizer_config.betas"), "[0.9, 0.95]");
  EXPECT_EQ(converted({"--save", "run_1_000"}, "training_config.output_dir"), "run_1_000");  // no number
}

}  // namespace
}  // namespace tessera
