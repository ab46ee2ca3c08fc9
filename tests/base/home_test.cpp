#include "framework/base/home.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera {
namespace {

TEST(Home, IsMeantByALeadingTilde) {
  const char* before = std::getenv("HOME");
  const std::string kept = before != nullptr ? before : "";
  setenv("HOME", "/folder", 1);
  EXPECT_EQ(with_home("~/run"), "/folder/run");
  EXPECT_EQ(with_home("~"), "/folder");
  for (const auto* other : {"", "run", "./~/run", "~a/run", "a~", "x/~/run"}) EXPECT_EQ(with_home(other), other);
  setenv("HOME", "", 1);  // the user database has it
  EXPECT_NE(with_home("~/run")[0], '~');
  before != nullptr ? setenv("HOME", kept.c_str(), 1) : unsetenv("HOME");
}

}  // namespace
}  // namespace tessera
