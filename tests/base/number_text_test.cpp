#include "framework/base/number_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(NumberText, WholeNumbersAreInFullAndOthersHaveFourDigits) {
  EXPECT_EQ(short_number(320000), "320000");
  EXPECT_EQ(short_number(4.800000000000001), "4.8");
  EXPECT_EQ(short_number(1.0 / 3), "0.3333");
  EXPECT_EQ(short_number(3e-5), "3e-05");
  EXPECT_EQ(short_number(0), "0");
}

TEST(NumberText, NumbersThatDifferDoNotLookTheSame) {
  EXPECT_EQ(short_numbers(4.8, 4), std::pair(std::string("4.8"), std::string("4")));
  EXPECT_EQ(short_numbers(0.30001, 0.30002), std::pair(std::string("0.30001"), std::string("0.30002")));
  EXPECT_EQ(short_numbers(0.1, 0.1), std::pair(std::string("0.1"), std::string("0.1")));
}

TEST(NumberText, FractionsAreToldInPercentAndSecondsInWhatIsWorthKnowing) {
  EXPECT_EQ(percent_text(0.5636), "56.4 %");
  EXPECT_EQ(duration_text(8.2), "8 s");
  EXPECT_EQ(duration_text(89), "89 s");
  EXPECT_EQ(duration_text(171), "3 min");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
  EXPECT_EQ(duration_text(7200), "2 h");
}

}  // namespace
}  // namespace tessera
