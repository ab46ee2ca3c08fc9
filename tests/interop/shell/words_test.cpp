#include <gtest/gtest.h>

#include "tests/interop/shell/followed.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

TEST(Words, AreCutAtBlanksAndJoinedByQuotes) {
  EXPECT_EQ(programs(R"(p a  b "c d" 'e f' g\ h i"j k"'l m')"), "[p] [a] [b] [c d] [e f] [g h] [ij kl m]");
  EXPECT_EQ(programs(R"(p "" '' "a")"), "[p] [] [] [a]");
}

TEST(Words, EveryKindOfQuoteMeansWhatBashMakesOfIt) {
  EXPECT_EQ(programs("X=v; p '$X' \"$X\" \"\\$X\" $'a\\tb\\'c' $\"$X\" \"a\\qb\""),
            "[p] [$X] [v] [$X] [a\tb'c] [v] [a\\qb]");
}

TEST(Words, AVariableWithoutQuotesIsCutAtItsBlanksAndLines) {
  EXPECT_EQ(programs("A='--lr 1\n  --seed 2 '\np $A \"$A\""), "[p] [--lr] [1] [--seed] [2] [--lr 1\n  --seed 2 ]");
  EXPECT_EQ(programs("A=' b '\np a$A c"), "[p] [a] [b] [c]");
  EXPECT_EQ(programs("A=\np $A x \"$A\""), "[p] [x] []");
}

TEST(Words, AnEmptyFieldBetweenSeparatorsThatAreNoBlanksIsAWord) {
  EXPECT_EQ(programs("IFS=,; A=a,,b; p $A"), "[p] [a] [] [b]");
  EXPECT_EQ(programs("IFS=,; A=,a,; p $A"), "[p] [] [a]");
  EXPECT_EQ(programs("IFS=' ,'; A='a , b,,c '; p $A"), "[p] [a] [b] [] [c]") << "blanks around a comma belong to it";
  EXPECT_EQ(programs("IFS=:; A='a b:c'; p $A"), "[p] [a b] [c]");
}

TEST(Words, InnerQuotesCloseAndReopenAString) {
  EXPECT_EQ(programs("A=\"--a \"x y\" --b\"\np $A"),
            "[y --b]\n[p]");  // as in Bash: A is "--a x" for the command `y --b`
  EXPECT_EQ(programs("A=\"--a \"x\" --b 1\"\np $A"), "[p] [--a] [x] [--b] [1]");
}

TEST(Words, ContinuationLinesAreOneCommand) {
  EXPECT_EQ(programs("p a \\\n  b\\\n  c \\\n\nq"), "[p] [a] [b] [c]\n[q]");
  EXPECT_EQ(programs("A=\"--a 1 \\\n --b 2\"\np $A"), "[p] [--a] [1] [--b] [2]");
}

TEST(Words, ABackslashBeforeBlanksAtTheLineEndIsReadAsMeantAndSaid) {
  const std::string script = "p a \\  \n  b \\\t\n  c\n";
  EXPECT_EQ(programs(script), "[p] [a] [b] [c]");
  EXPECT_TRUE(says(said(script), "1: blanks after the backslash")) << said(script);
  EXPECT_TRUE(says(said(script), "2: blanks after the backslash")) << said(script);
  EXPECT_EQ(programs("A=(a \\ \n b)\np ${A[@]}"), "[p] [a] [b]");
}

TEST(Words, ACommentInsideACommandDoesNotEndItWhereFlagsFollow) {
  const std::string script = "p --a 1 \\\n  # --b 2 \\\n  --c 3\n";
  EXPECT_EQ(programs(script), "[p] [--a] [1] [--c] [3]");
  EXPECT_TRUE(says(said(script), "2: a comment inside a command")) << said(script);
  EXPECT_EQ(programs("p --a 1 \\\n  # the end\nq"), "[p] [--a] [1]\n[q]");
}

TEST(Words, CommentsAreLeftOutAndOtherHashesStay) {
  EXPECT_EQ(programs("# a\np a#b '#c' # d\n"), "[p] [a#b] [#c]");
  EXPECT_EQ(programs("A=(\n  --a 1  # one\n  # --b 2\n  --c\n)\np ${A[@]}"), "[p] [--a] [1] [--c]");
}

TEST(Words, APlaceholderInAngleBracketsIsOneWordAndSaid) {
  const std::string script = "p --load <your path>/x --n <rank> < in > out\n";
  EXPECT_EQ(programs(script), "[p] [--load] [<your_path>/x] [--n] [<rank>]");
  EXPECT_TRUE(says(said(script), "1: '<your path>' is read as one word")) << said(script);
  EXPECT_EQ(programs("A=<a b>\np $A"), "[p] [<a_b>]");
}

TEST(Words, BracesMakeManyWords) {
  EXPECT_EQ(programs("p a{b,c}d {1..3} {03..1..2} x{,y} {a} '{1,2}' {b..d}"),
            "[p] [abd] [acd] [1] [2] [3] [03] [01] [x] [xy] [{a}] [{1,2}] [b] [c] [d]");
  EXPECT_EQ(programs("B=1; p {$B,2}{a,b}"), "[p] [1a] [1b] [2a] [2b]");
}

TEST(Words, FilePatternsStayAsTheyAre) {
  EXPECT_EQ(programs("p *.bin [0]*3+[1]*58 a?"), "[p] [*.bin] [[0]*3+[1]*58] [a?]");
}

TEST(Words, ParenthesesWithoutQuotesAreReadAsPartOfTheWords) {
  EXPECT_EQ(programs("p --freq ([0]*3+[1]*5) x"), "[p] [--freq] [([0]*3+[1]*5)] [x]");
}

TEST(Words, RedirectionsAreNoWords) {
  EXPECT_EQ(programs("p a > out 2>&1 b 2> err >> more &> all < in <<< text c &"), "[p] [a] [b] [c]");
  EXPECT_EQ(programs("p a | tee log | q 2>&1 >/dev/null"), "[p] [a]\n[tee] [log]\n[q]");
}

TEST(Words, XargsMakesWordsOfItsInput) {
  EXPECT_EQ(programs("echo \"a 'b c' d\\\\ e\" | xargs p 1"), "[p] [1] [a] [b c] [d e]");
  EXPECT_EQ(programs("printf 'a b\\nc\\n' | xargs -L1 p; printf 'a:b' | xargs -d : -n 1 p; true | xargs -r p"),
            "[p] [a] [b]\n[p] [c]\n[p] [a]\n[p] [b]");
  EXPECT_EQ(programs("printf 'a b\\n c\\n' | xargs -I % p x%y %"), "[p] [xa by] [a b]\n[p] [xcy] [c]");
  EXPECT_EQ(programs("p $(printf 'a\\nb' | xargs) $(printf 'x/a x/b' | xargs -n1 basename)"), "[p] [a] [b] [a] [b]");
  EXPECT_EQ(programs("p $(echo \"it's\" | xargs)"), "[p] [$(echo \"it's\" | xargs)]");
}

TEST(Words, WhatIsNotKnownKeepsItsWords) {
  EXPECT_EQ(programs("p $HOME/x ${4} \"$12\" $@ $(date +%F) `hostname` <(q) $((N * 2))"),
            "[p] [${HOME}/x] [$4] [$12] [$@] [$(date +%F)] [$(hostname)] [<(q)] [$((${N} * 2))]");
  EXPECT_EQ(programs("OUT=$26/c\nLR=$3\np --save ${OUT} --lr $LR ${26}"), "[p] [--save] [$26/c] [--lr] [$3] [${26}]");
}

TEST(Words, APlaceIsKeptOfEveryFlagAlsoInsideOfStrings) {
  const auto reading = followed("A=\"\n  --lr 1 \\\n  --seed 2\"\nB=(\n  --x\n)\np $A \\\n  --y ${B[@]}\n");
  ASSERT_EQ(reading.runs.size(), 1U);
  const auto& words = reading.runs[0].words;
  ASSERT_EQ(words.size(), 7U);
  const std::vector<std::pair<std::size_t, int>> lines = {{1, 2}, {3, 3}, {5, 8}, {6, 5}};
  for (const auto& [word, line] : lines) EXPECT_EQ(place_of(words[word], {0, 0}).line, line) << plain(words[word]);
}

}  // namespace
}  // namespace tessera::shell
