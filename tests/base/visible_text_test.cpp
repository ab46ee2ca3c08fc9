#include "framework/base/visible_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(VisibleText, ControlCharactersBecomeTheirNumber) {
  EXPECT_EQ(visible("plain\n\ttext"), "plain\n\ttext");
  EXPECT_EQ(visible("\033[2Jname\a\r"), "\\u001b[2Jname\\u0007\\u000d");
  EXPECT_EQ(visible(std::string("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(visible("\x7f"), "\\u007f");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m"),
            "\\u009b31m");
  EXPECT_EQ(visible("\xe2\x80\xae"
                    "txt.exe"),
            "\\u202etxt.exe");
}

TEST(VisibleText, LettersOfAllLanguagesStay) {
  for (const auto* words : {"größer", "тест", "测试", "😀", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "שלום"})
    EXPECT_EQ(visible(words), words);
}

TEST(VisibleText, BytesThatAreNotUtf8BecomeTheirNumber) {
  EXPECT_EQ(visible("a\x9b"
                    "31m"),
            "a\\x9b31m");
  EXPECT_EQ(visible("\xc0\x9b"), "\\xc0\\x9b");           // overlong form of ESC
  EXPECT_EQ(visible("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");  // another
  EXPECT_EQ(visible("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(visible("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(visible("x\xe2\x82"), "x\\xe2\\x82");
}

TEST(VisibleText, ACharacterThatIsCutOffIsNotWhole) {
  EXPECT_EQ(whole_characters("abc"), 3U);
  EXPECT_EQ(whole_characters("abc\xe2\x82"), 3U);
  EXPECT_EQ(whole_characters("abc\xe2\x82\xac"), 6U);
  EXPECT_EQ(whole_characters("\xf0\x9f\x98"), 0U);
  EXPECT_EQ(whole_characters("a\x82"), 2U);  // never becomes a character
  EXPECT_EQ(whole_characters(""), 0U);
}

TEST(VisibleText, LongValuesAreShortened) {
  EXPECT_EQ(shortened("short"), "short");
  EXPECT_EQ(shortened(std::string(309, '9')), std::string(40, '9') + "..." + std::string(20, '9') + " (309 bytes)");
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  EXPECT_EQ(visible(shortened(euros)), shortened(euros)) << "no character is cut";
}

}  // namespace
}  // namespace tessera
