#include "framework/reporting/run_notes.h"

#include <gtest/gtest.h>

namespace tessera::reporting {
namespace {

using Notes = std::vector<std::string>;

TEST(RunNotes, WhatTheFileHasIsNoNews) {
  const Notes first = {"run.sh:3: --foo is ignored", "two\nlines"};
  const auto file = with_notes("a: 1\n", first);
  EXPECT_EQ(file, "a: 1\n# note: run.sh:3: --foo is ignored\n# note: two lines\n");
  EXPECT_EQ(new_notes(first, file), Notes());
  EXPECT_EQ(new_notes({"two\nlines", "run.sh:3: --bar is ignored"}, file), Notes{"run.sh:3: --bar is ignored"});
  EXPECT_EQ(new_notes(first, ""), first);
  EXPECT_EQ(new_notes({"once", "once"}, ""), Notes{"once"});
  EXPECT_EQ(with_notes("a: 1\n", {}), "a: 1\n");
}

}  // namespace
}  // namespace tessera::reporting
