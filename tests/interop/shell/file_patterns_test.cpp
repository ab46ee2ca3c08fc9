#include <gtest/gtest.h>

#include <filesystem>

#include "tests/interop/shell/followed.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

class FilePatterns : public InOwnFolder {
 protected:
  FilePatterns() {
    std::filesystem::create_directories("data/sub");
    for (const char* name : {"data/b.bin", "data/a.bin", "data/B.bin", "data/.c.bin", "data/a x.txt", "data/sub/d.bin"})
      write(name, "");
  }
};

TEST_F(FilePatterns, BecomeTheFilesThatMatchThem) {
  EXPECT_EQ(
      programs("p data/*.bin data/[ab].bin data/?.bin"),
      "[p] [data/B.bin] [data/a.bin] [data/b.bin] [data/a.bin] [data/b.bin] [data/B.bin] [data/a.bin] [data/b.bin]");
  EXPECT_EQ(programs("p ./d*/*/*.bin data/.*bin d*/ */*.txt"),
            "[p] [./data/sub/d.bin] [data/.c.bin] [data/] [data/a x.txt]");
  EXPECT_EQ(said("p data/*.bin"), "");
  EXPECT_EQ(programs("cd data; p *.bin; cd sub; p ../[ab].bin"),
            "[p] [B.bin] [a.bin] [b.bin]\n[p] [../a.bin] [../b.bin]");
}

TEST_F(FilePatterns, AreReadInListsLoopsAndSubstitutions) {
  const std::string told = "[p] [data/B] [data/a] [data/b]";
  EXPECT_EQ(programs("for f in data/*.bin; do D+=(\"${f%.bin}\"); done; p \"${D[@]}\""), told);
  EXPECT_EQ(programs("D=(data/*.bin); p \"${D[@]%.bin}\""), told);
  EXPECT_EQ(programs("D=$(echo data/*.bin); p ${D//.bin/}"), told);
  EXPECT_EQ(programs("X='data/*.bin'; set -- $X; p \"${@%.bin}\""), told) << "a pattern out of a variable";
  EXPECT_EQ(programs("A=(data/sub/* 'data/*'); p ${A[@]:0:1} ${N:-data/a.*}"), "[p] [data/sub/d.bin] [data/a.bin]");
}

TEST_F(FilePatterns, StandForThemselvesInQuotesAndInAssignments) {
  EXPECT_EQ(programs("X=data/*.bin Y='data/*'; p \"$X\" 'data/*' \"data/\"\\*.bin \"$Y\" \"${N:-data/*}\""),
            "[p] [data/*.bin] [data/*] [data/*.bin] [data/*] [data/*]");
  EXPECT_EQ(programs("export X=data/*; set -f; p data/* \"$X\""), "[p] [data/*] [data/*]");
  EXPECT_EQ(programs("[[ data/q.bin == data/*.bin ]] && p 1; case data/q in data/*) p 2;; esac; [ 1 = 1 ] && p 3"),
            "[p] [1]\n[p] [2]\n[p] [3]");
  EXPECT_EQ(said("X=data/z*; [[ a == z* ]]; case a in z*) ;; esac; p \"$X\" 'z*'"), "");
}

TEST_F(FilePatterns, WithoutAMatchingFileStayWithANote) {
  EXPECT_EQ(programs("p data/*.idx"), "[p] [data/*.idx]");
  EXPECT_EQ(said("p\nD=(data/*.idx)"), "2: no file here matches the pattern data/*.idx: read as it is written\n");
  EXPECT_EQ(programs("X=/none/*.idx; p $X"), "[p] [/none/*.idx]");
  EXPECT_NE(said("X=/none/*.idx; p $X"), "");
  EXPECT_EQ(programs("cd $W; p data/*.bin"), "[p] [data/*.bin]") << "of a folder that is not known";
  EXPECT_NE(said("cd $W; p data/*.bin"), "");
  EXPECT_EQ(programs("shopt -s nullglob; for f in data/*.bin data/*.idx; do p $f; done"),
            "[p] [data/B.bin]\n[p] [data/a.bin]\n[p] [data/b.bin]\n[p] [data/*.idx]");
}

TEST_F(FilePatterns, OfCommandsThatOnlyHandleFilesAndOfListsOfNumbersNeedNoNote) {
  EXPECT_EQ(said("rm -f data/*.idx; echo what? a*; p --freq [0]*3+[1]*58 M-*-M Et*2\\|t; unset A[1]; tr -d [:space:]; "
                 "[ 1 = 1 ]"),
            "");
}

TEST_F(FilePatterns, AreLookedForBesideTheScriptToo) {
  std::filesystem::create_directories("s/data");
  write("s/data/q.bin", "");
  write("s/run.sh", "p da*/q.*; cd $(dirname $0); p */q.*; p $PWD/data/*\n");
  const auto reading = follow_script("s/run.sh", {}, {}, enough_steps);
  ASSERT_EQ(reading.runs.size(), 3U);
  EXPECT_EQ(plain(reading.runs[0].words.at(1)), "data/q.bin");
  EXPECT_EQ(plain(reading.runs[1].words.at(1)), "data/q.bin");
}

}  // namespace
}  // namespace tessera::shell
