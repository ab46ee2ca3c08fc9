#include <gtest/gtest.h>

#include "tests/interop/shell/followed.h"
#include "tests/own_folder.h"

// The expected output is that of GNU coreutils 9.1 in the C locale.

namespace tessera::shell {
namespace {

/// What a command prints; "?" if that is not known.
std::string printed(const std::string& command) {
  auto out = programs("p \"$(" + command + ")\"");
  out = out.substr(out.rfind("[p] [") + 5);
  out.pop_back();
  return out.rfind("$(", 0) == 0 ? "?" : out;
}

TEST(Programs, TrKnowsClassesEscapesAndItsOptions) {
  const std::string in = "printf 'aB3, x_9\\tz' | ";
  EXPECT_EQ(printed(in + "tr -d '[:alpha:]'"), "3, _9\t");
  EXPECT_EQ(printed(in + "tr -d '[:digit:]'"), "aB, x_\tz");
  EXPECT_EQ(printed(in + "tr -d '[:alnum:]_'"), ", \t");
  EXPECT_EQ(printed(in + "tr -d '[:punct:]'"), "aB3 x9\tz");
  EXPECT_EQ(printed(in + "tr -d '[:blank:]'"), "aB3,x_9z");
  EXPECT_EQ(printed(in + "tr '[:lower:]' '[:upper:]'"), "AB3, X_9\tZ");
  EXPECT_EQ(printed(in + "tr '[:space:],' '\\n'"), "aB3\n\nx_9\nz");
  EXPECT_EQ(printed(in + "tr a '\\141\\142'") + printed(in + "tr 'a3' '\\101\\063\\062'"), "aB3, x_9\tzAB3, x_9\tz");
  EXPECT_EQ(printed(in + "tr -cd 0-9"), "39");
  EXPECT_EQ(printed("echo a,,b  c | tr -s ', '") + printed("echo a,,b | tr -s , ' '"), "a,b ca b");
  EXPECT_EQ(printed("echo a-b | tr - _") + printed("echo '[a]' | tr '[a-z]' '[A-Z]'"), "a_b[A]");
  for (const char* other : {"tr -d '[:graph:]'", "tr '[=a=]' b", "tr -t ab c", "tr a '[b*3]'", "tr z-a b",
                            "tr a '[:digit:]'", "tr --truncate-set1 a b", "tr a", "tr -d a b", "tr a ''"})
    EXPECT_EQ(printed(in + other), "?") << other;
}

TEST(Programs, HeadAndTailKnowTheirCounts) {
  const std::string in = "printf 'a\\nb\\nc' | ";
  for (const char* two : {"-n 2", "-n2", "-2", "--lines=2", "--lines 2", "-q -n 2"}) {
    EXPECT_EQ(printed(in + "head " + two), "a\nb") << two;
    EXPECT_EQ(printed(in + "tail " + two), "b\nc") << two;
  }
  EXPECT_EQ(printed(in + "head -c 2 | tr '\\n' x") + printed(in + "tail -c 2 | tr '\\n' x"), "axxc");
  EXPECT_EQ(printed(in + "head --bytes=1") + printed(in + "tail -n +3") + printed(in + "head -n -2"), "aca");
  EXPECT_EQ(printed(in + "head"), "a\nb\nc");
  for (const char* other : {"head -n 1K", "tail -f", "head -z", "head -n", "head x", "tail -n 1 x y"})
    EXPECT_EQ(printed(in + other), "?") << other;
}

TEST(Programs, BasenameDirnameAndCutKnowTheirOptions) {
  EXPECT_EQ(printed("basename -s .sh a/x.sh") + printed("basename --suffix=.sh a/x.sh") + printed("basename x/y.b .b"),
            "xxy");
  EXPECT_EQ(printed("basename -a a/b c/d") + printed("dirname a/b c"), "b\nda\n.");
  EXPECT_EQ(printed("basename -z a/b") + printed("dirname -z a/b") + printed("basename a b c"), "???");
  EXPECT_EQ(printed("echo a:b:c | cut -d: -f2") + printed("echo a:b:c | cut -f 1,3- -d :"), "ba:c");
  EXPECT_EQ(printed("echo a:b:c | cut -d: -f1 --complement") + printed("printf 'x\\na:b\\n' | cut -s -d: -f2"), "b:cb");
  EXPECT_EQ(printed("echo abcd | cut -c2-3") + printed("echo x | cut -d: -f2") + printed("echo a:b | cut -d: -f-1"),
            "bcxa");
  EXPECT_EQ(printed("echo a | cut -d: -f0") + printed("echo a | cut -d: -f1 --output-delimiter=,") +
                printed("echo a | cut -z -f1") + printed("echo a | cut -d:") + printed("echo a | cut -f3-1"),
            "?????");
}

TEST(Programs, RealpathAndReadlinkOnlyMakePathsTidy) {
  EXPECT_EQ(printed("realpath -m /a/../b") + printed("readlink -f /a/./b") + printed("readlink --canonicalize /a"),
            "/b/a/b/a");
  EXPECT_EQ(printed("realpath -m --relative-to=/a/b /a/c") + printed("readlink /a") + printed("realpath -z /a"), "???");
}

TEST(Programs, PrintfPrintsLongWordsWhole) {
  EXPECT_EQ(printed("X=$(printf %5000s a); printf '%-1s' \"$X\" | wc -c"), "5000");
  EXPECT_EQ(printed("printf %999999999s a"), "?");
  EXPECT_EQ(printed("printf 'a\\nb' | wc -c") + printed("seq 2 1 | wc -l"), "30");
}

TEST(Programs, TeeAppendsAndForgetsWhatIsNotKnown) {
  const auto reading =
      followed("echo a | tee f g; echo b | tee -a f; echo a | tee h; date | tee h; echo c | tee --append g");
  EXPECT_EQ(reading.written.at("f"), "a\nb\n");
  EXPECT_EQ(reading.written.at("g"), "a\nc\n");
  EXPECT_EQ(reading.written.count("h"), 0U);
}

TEST(Programs, AShellGetsItsNameFromBehindTheCommands) {
  EXPECT_EQ(programs("bash -c 'p $0 $1' 3 4; bash -c 'p $0'; p $0"), "[p] [3] [4]\n[p] [bash]\n[p] [x.sh]");
}

}  // namespace
}  // namespace tessera::shell
