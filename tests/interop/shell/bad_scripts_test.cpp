#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "tests/interop/shell/followed.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

std::string times(int count, const std::string& words) {
  std::string out;
  for (int i = 0; i < count; ++i) out += words;
  return out;
}

TEST(BadScripts, AnUnclosedQuoteIsNamedWithTheLineWhereItBegins) {
  EXPECT_EQ(said("p\nq \"a\nb\n"), "2: the quote \" that begins here is not closed\n");
  EXPECT_EQ(said("p\n\nq 'a\n"), "3: the quote ' that begins here is not closed\n");
  EXPECT_EQ(said("p `a"), "1: the quote ` that begins here is not closed\n");
}

TEST(BadScripts, WhatStandsBeforeAMistakeIsRead) {
  EXPECT_EQ(programs("p a\nif true; then\nq\n"), "[p] [a]");
  EXPECT_TRUE(says(said("p a\nif true; then\nq\n"), "2: 'fi' is missing before the end of the file"));
}

TEST(BadScripts, EveryOpenThingIsNamed) {
  const std::vector<std::pair<std::string, std::string>> all = {{"while true; do p", "'done' is missing"},
                                                                {"case a in b) p ;;", "'esac' is missing"},
                                                                {"A=(a b", "')' is missing"},
                                                                {"p $(q", "')' is missing"},
                                                                {"p ${A", "'}' is missing"},
                                                                {"f() { p", "'}' is missing"},
                                                                {"[[ a = b", "']]' is missing"},
                                                                {"(p", "')' is missing"},
                                                                {"p )", "')' was not expected"},
                                                                {"fi", "'fi' was not expected"},
                                                                {"p >", "a file was expected"},
                                                                {"for 1 in; do p; done", ""},
                                                                {"p && ", "a command was expected"}};
  for (const auto& [script, story] : all) EXPECT_TRUE(says(said(script), story)) << script << ": " << said(script);
}

TEST(BadScripts, EndlessLoopsEnd) {
  for (const char* script : {"while true; do :; done", "while true; do X=$(echo $X a); done", "for ((;;)); do p; done",
                             "until false; do A+=(x); done", "i=0; while true; do i=$((i+1)); eval \"X$i=1\"; done"})
    EXPECT_TRUE(says(said(script), "endless loop")) << script;
  EXPECT_TRUE(says(said("X=ab; while true; do X=$X$X; done"), "endless loop"));
  EXPECT_TRUE(says(said("f() { f; }\nf"), "endless recursion"));
  EXPECT_TRUE(says(said("f() { eval f; }\nf"), "endless recursion"));
}

TEST(BadScripts, DeepNestingIsRefused) {
  const int deep = 10000;
  for (const auto& script :
       {times(deep, "("), times(deep, "{ "), times(deep, "if "), times(deep, "$("), "p " + times(deep, "$("),
        "p " + times(deep, "${a:-"), "p " + times(deep, "\"$("), times(deep, "case a in b) "),
        "p " + times(deep, "{a,"), "p $((" + times(deep, "-") + "1))", times(deep, "! ") + "p",
        "[[ " + times(deep, "! ") + "a ]]"}) {
    const auto reading = followed(script);
    EXPECT_LT(reading.steps, enough_steps + 1000);
  }
  EXPECT_TRUE(says(said(times(deep, "(")), "more than 100 levels of nesting"));
}

/// Processor time of following a script, in seconds. The clock would measure what else the machine does.
double processor_seconds(const std::string& script) {
  const auto begin = std::clock();
  followed(script);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Ten times as long a script takes about ten times as much, and a hundred times as much where something is read again
// for each word. 40 lie far from both: a busy machine changes a processor's speed by a factor of two.
TEST(BadScripts, TimeGrowsAsTheLengthOfAScript) {
  const auto scripts = [](int many) {
    return std::vector<std::string>{times(many, "a[ "),
                                    times(many, "<a "),
                                    times(many, "?("),
                                    "p " + times(many, "\\ "),
                                    times(many, "A=(a b)\n"),
                                    times(many, "<<E "),
                                    "p '" + times(many, "a ") + "'",
                                    times(many, "p $((1+"),
                                    "A=" + times(many, "ab") + "; p ${A//[ab]/c} ${A%%*b*} ${A/x/y}",
                                    times(many, "a=1;b=$a\n")};
  };
  const auto shorter = scripts(4000), longer = scripts(40000);
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    const double most = 40 * std::max(processor_seconds(shorter[i]), .001);
    double least = processor_seconds(longer[i]);
    for (int more = 0; more < 2 && least >= most; ++more) least = std::min(least, processor_seconds(longer[i]));
    EXPECT_LT(least, most) << shorter[i].substr(0, 20);
  }
}

class BadFiles : public InOwnFolder {};

TEST_F(BadFiles, AreRefusedWithTheReason) {
  EXPECT_TRUE(says(story_of([] { read_script_text("none.sh"); }), "none.sh"));
  write("binary.sh", std::string("\x7f"
                                 "ELF\0\0",
                                 6));
  EXPECT_TRUE(says(story_of([] { read_script_text("binary.sh"); }), "binary.sh: is binary"));
  write("large.sh", std::string(10'000'000, '#'));
  EXPECT_TRUE(says(story_of([] { read_script_text("large.sh"); }), "large.sh: 10 MB; a launch script may have 4 MB"));
}

TEST_F(BadFiles, WindowsLineEndsAndAByteOrderMarkDoNotMatter) {
  write("w.sh", "\xef\xbb\xbfp a \\\r\n  b\r\nq\r\n");
  EXPECT_EQ(programs(read_script_text("w.sh")), "[p] [a] [b]\n[q]");
}

TEST_F(BadFiles, MarksCannotBeForged) {
  write("m.sh",
        "p \x01x\x02 \x03"
        "9:9\x04--y\n");
  EXPECT_EQ(programs(read_script_text("m.sh")), "[p] [x] [9:9] [--y]");
}

TEST_F(BadFiles, SourcedFilesAreReadWhereTheyAre) {
  std::filesystem::create_directory("conf");
  write("conf/model.sh", "ARGS=\"\n--layers 4\"\n[ $1 = x ] && p from model\n");
  write("conf/run.sh",
        "D=$(cd $(dirname $0) && pwd)\nsource $D/model.sh x\n. conf/model.sh y; p $ARGS\nbash $D/other.sh 7; source "
        "none.sh\n");
  write("conf/other.sh", "p $1 $ARGS");
  const auto reading = follow_script("conf/run.sh", {}, {}, enough_steps);
  ASSERT_EQ(reading.runs.size(), 3U);
  EXPECT_EQ(plain(reading.runs[1].words[1]), "--layers");
  const auto place = place_of(reading.runs[1].words[1], {0, 0});
  EXPECT_EQ(reading.files.at(static_cast<std::size_t>(place.file)), "conf/model.sh");
  EXPECT_EQ(place.line, 2);
  EXPECT_EQ(plain(reading.runs[2].words[1]), "7");
  ASSERT_EQ(reading.remarks.size(), 1U);
  EXPECT_TRUE(says(reading.remarks[0].words, "none.sh is sourced here, but does not exist"));
}

}  // namespace
}  // namespace tessera::shell
