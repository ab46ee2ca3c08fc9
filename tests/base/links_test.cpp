#include "framework/base/links.h"

#include "framework/base/error.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class LinksTest : public InOwnFolder {
 protected:
  LinksTest() {
    fs::create_directories("run/inner");
    fs::create_directory("elsewhere");
    write("elsewhere/file", "x");
  }
};

TEST_F(LinksTest, ALinkThatLeadsOutIsNamedWithItsTarget) {
  fs::create_directory_symlink("../elsewhere", "run/out");
  const auto told = story_of([] { must_stay_within("run", "run/out/deep/file"); });
  EXPECT_EQ(told.rfind("run/out: is a symbolic link to ../elsewhere, which leads out of run;", 0), 0U) << told;
  fs::create_symlink("../../elsewhere/file", "run/inner/file");
  EXPECT_THROW(must_stay_within("run", "run/inner/file"), ConfigError);
}

TEST_F(LinksTest, ALinkToNowhereIsNoWayOutEither) {
  fs::create_symlink("../absent", "run/file");
  EXPECT_THROW(must_stay_within("run", "run/file"), ConfigError);
}

TEST_F(LinksTest, WhatStaysInsideAndTheFolderItselfAreFree) {
  fs::create_directory_symlink("inner", "run/second");
  fs::create_directory_symlink("run", "way");
  EXPECT_NO_THROW(must_stay_within("run", "run/second/file"));
  EXPECT_NO_THROW(must_stay_within("way", "way/second/absent/file"));
  EXPECT_NO_THROW(must_stay_within("absent", "absent/file"));
}

TEST_F(LinksTest, AFolderLiesWithinItselfAndNotWithinOneWhoseNameIsShorter) {
  fs::create_directory_symlink("run", "way");
  EXPECT_TRUE(lies_within("run", "run"));
  EXPECT_TRUE(lies_within("run/", "way/inner/absent"));
  EXPECT_TRUE(lies_within("way", "run/inner/"));
  EXPECT_FALSE(lies_within("run", "running"));
  EXPECT_FALSE(lies_within("run/inner", "run"));
  EXPECT_FALSE(lies_within("run", "run/../elsewhere"));
}

}  // namespace
}  // namespace tessera
