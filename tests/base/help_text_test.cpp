#include "framework/base/help_text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace tessera {
namespace {

std::size_t widest_line(const std::string& words) {
  std::istringstream lines(words);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(HelpText, ATextIsBrokenAtBlanks) {
  EXPECT_EQ(wrapped("two words", 0), "two words");
  EXPECT_EQ(wrapped("two words", 4, 75), "two\n    words");
  EXPECT_EQ(wrapped("", 4), "");
  std::string all;
  for (int i = 0; i < 100; ++i) all += "word ";
  EXPECT_LE(widest_line(wrapped(all, 10, 10)), help_width);
}

TEST(HelpText, AWordThatIsWiderThanALineIsNotCut) {
  const std::string wide(100, 'w');
  EXPECT_EQ(wrapped("a " + wide + " b", 2), "a\n  " + wide + "\n  b");
}

TEST(HelpText, AListOfWordsIsBrokenAtItsSigns) {
  std::string list = "  --to TEXT:{";
  for (int i = 0; i < 20; ++i) list += "program" + std::to_string(i) + ",";
  const auto page = help_entry(list + "end}", "Program to write for.");
  EXPECT_LE(widest_line(page), help_width) << page;
}

TEST(HelpText, AnEntryHasItsTextBesideOrBelow) {
  EXPECT_EQ(help_entry("  --json", "One line."), "  --json                      One line.\n");
  const std::string wide = "  --a-rather-long-name VALUE ...";
  EXPECT_EQ(help_entry(wide, "Text."), wide + "\n" + std::string(30, ' ') + "Text.\n");
  EXPECT_EQ(help_entry("  --json", ""), "  --json\n");
}

}  // namespace
}  // namespace tessera
