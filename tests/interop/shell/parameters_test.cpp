#include <gtest/gtest.h>

#include "tests/interop/shell/followed.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

TEST(Parameters, DefaultsAndAlternativesStandIn) {
  EXPECT_EQ(programs("E=; V=v; p ${N:-d} ${E:-d} ${V:-d} ${E-d} ${1:-one} ${N-a b}"), "[p] [d] [d] [v] [one] [a] [b]");
  EXPECT_EQ(programs("p ${N:=set} $N; E=; q ${V:+x} ${E:+x} ${N:+--flag $N}"), "[p] [set] [set]\n[q] [--flag] [set]");
  EXPECT_EQ(programs("p ${N:?must be given} ${A:-${B:-c}} \"${A:-x y}\""), "[p] [${N}] [c] [x y]");
}

TEST(Parameters, LengthAndPartsOfAValue) {
  EXPECT_EQ(programs("X=abcdef; p ${#X} ${X:2} ${X:1:3} ${X: -2} ${X:0:-1} ${X:$((1+1)):1}"),
            "[p] [6] [cdef] [bcd] [ef] [abcde] [c]");
}

TEST(Parameters, PatternsAreRemovedAndReplaced) {
  EXPECT_EQ(programs("F=/a/b.c/d.tar.gz; p ${F##*/} ${F%/*} ${F#*.} ${F%.*} ${F%%.*} ${F%x} ${F/b/B} ${F//\\//-}"),
            "[p] [d.tar.gz] [/a/b.c] [c/d.tar.gz] [/a/b.c/d.tar] [/a/b] [/a/b.c/d.tar.gz] [/a/B.c/d.tar.gz] "
            "[-a-b.c-d.tar.gz]");
  EXPECT_EQ(programs("A=--lr=1; p ${A#*=} ${A%%=*} ${A/#--/+} ${A/%1/2} ${A/[0-9]/x}"),
            "[p] [1] [--lr] [+lr=1] [--lr=2] [--lr=x]");
}

TEST(Parameters, CaseIsTurned) {
  EXPECT_EQ(programs("X=aBc; p ${X^} ${X^^} ${X,} ${X,,}"), "[p] [ABc] [ABC] [aBc] [abc]");
}

TEST(Parameters, OneNameCanStandForAnother) { EXPECT_EQ(programs("A=B; B=c; p ${!A}"), "[p] [c]"); }

TEST(Parameters, ListsGiveAllTheirWords) {
  const std::string list = "A=(--x 'a b' --y); A+=(\"c\"); ";
  EXPECT_EQ(programs(list + "p ${A[@]}"), "[p] [--x] [a] [b] [--y] [c]");
  EXPECT_EQ(programs(list + "p \"${A[@]}\""), "[p] [--x] [a b] [--y] [c]");
  EXPECT_EQ(programs(list + "p \"${A[*]}\" ${#A[@]} ${A[1]} ${A[-1]} \"${A[@]:1:2}\" ${!A[@]}"),
            "[p] [--x a b --y c] [4] [a] [b] [c] [a b] [--y] [0] [1] [2] [3]");
  EXPECT_EQ(programs("A=(); p x ${A[@]} \"${A[@]}\" y"), "[p] [x] [y]");
  EXPECT_EQ(programs("A=(\"--fp8 hybrid\" \"--split '1,2'\"); p ${A[@]}"), "[p] [--fp8] [hybrid] [--split] ['1,2']");
  EXPECT_EQ(programs("A=(a b); A=(\"${A[@]}\" c); A[1]=x; p ${A[@]}"), "[p] [a] [x] [c]");
  EXPECT_EQ(programs("declare -A M=([k]=v [l]=w); M[m]=x; p ${M[l]} ${M[m]} ${M[none]} ${#M[@]}"), "[p] [w] [x] [3]");
}

TEST(Parameters, AListWithoutIndexIsReadAsAllItsWordsAndSaid) {
  const std::string script = "A=(--x 1)\np $A\n";
  EXPECT_EQ(programs(script), "[p] [--x] [1]");
  EXPECT_TRUE(says(said(script), "2: $A is a list: read as all its words")) << said(script);
  EXPECT_EQ(programs("A=(a b); B=$A; p $B"), "[p] [a]");  // where one word is meant, Bash's first one
}

TEST(Parameters, ArithmeticComputes) {
  EXPECT_EQ(
      programs("N=8; p $((N*2+1)) $(( ($N>4) ? 1 : 0 )) $((2**10)) $((7/2)) $((7%3)) $((0x10)) $((1<<4)) $((!N))"),
      "[p] [17] [1] [1024] [3] [1] [16] [16] [0]");
  EXPECT_EQ(programs("p $((1 | 2 & 4)) $((6 ^ 3 & 1)) $((1 | 6 ^ 7))"), "[p] [1] [7] [1]");  // as Bash
  EXPECT_EQ(programs("i=1; let i=i+2 'j=i*2'; ((i++, j-=1)); p $i $j $((i+=5)) $i $((i--)) $((++i)) `expr 3 + 4`"),
            "[p] [4] [5] [9] [9] [9] [9] [7]");
  EXPECT_EQ(programs("p $((N / 2)) $(($1 * 4))"), "[p] [$((${N} / 2))] [$(($1 * 4))]");
}

TEST(Parameters, WhatCannotBeComputedIsSaidAndKept) {
  EXPECT_EQ(programs("p $((1/0)) x"), "[p] [$((1/0))] [x]");
  EXPECT_TRUE(says(said("p $((1/0))"), "1: '1/0' cannot be computed"));
  EXPECT_EQ(programs("p $((1_000*2))"), "[p] [2000]");
  EXPECT_TRUE(
      says(said("p " + std::string("$((") + std::string(5000, '(') + "1" + std::string(5000, ')') + "))"), "cannot"));
}

TEST(Parameters, SubstitutionsOfKnownProgramsAreKnown) {
  EXPECT_EQ(
      programs(
          "p $(echo a b) $(dirname /a/b/c) `basename /a/b.sh .sh` $(seq 3) $(seq -s, 1 2 5) $(printf '%s-%s' a b)"),
      "[p] [a] [b] [/a/b] [b] [1] [2] [3] [1,3,5] [a-b]");
  EXPECT_EQ(programs("L=1,2; p $(echo $L | tr ',' ' ') $(echo a:b | cut -d: -f2) $(echo a b c | wc -w)"),
            "[p] [1] [2] [b] [3]");
  EXPECT_EQ(programs("cd /a/b/..; p $(pwd) $PWD $(cd c && pwd) $(readlink -f x) $(cd \"$(dirname \"$0\")\" && pwd)"),
            "[p] [/a] [/a] [/a/c] [/a/x] [/a]");
  EXPECT_EQ(programs("p $(pwd)/x"), "[p] [${PWD}/x]");
}

TEST(Parameters, ArgumentsComeFromTheCaller) {
  Inputs inputs;
  inputs.arguments = {{1, "dsw"}, {3, "c d"}};
  inputs.environment = {{"LR", "3e-4"}};
  EXPECT_EQ(programs("p $1 $2 $3 \"$3\" $4 $LR $#", inputs), "[p] [dsw] [$2] [c] [d] [c d] [$4] [3e-4] [3]");
  EXPECT_EQ(programs("shift; p $1 $2", inputs), "[p] [$2] [c] [d]");
}

TEST(Parameters, ShiftMovesArgumentsThatNobodyKnows) {
  EXPECT_EQ(programs("A=$1; shift; B=$1; shift 2; p $A $B $1"), "[p] [$1] [$2] [$4]");
}

TEST(Parameters, SetGivesArguments) {
  EXPECT_EQ(programs("set -- a 'b c'; p $# $1 \"$2\" \"$@\" $3; shift; q $*"),
            "[p] [2] [a] [b c] [a] [b c]\n[q] [b] [c]");
  EXPECT_EQ(programs("set -ex; set -o pipefail; set +x; p $1"), "[p] [$1]");
}

TEST(Parameters, UnsetAndEmptyNamesGiveNothing) {
  EXPECT_EQ(programs("A=x; unset A; p a $A b; if [ $ZZ ]; then MORE=--x; fi; q $MORE c"), "[p] [a] [b]\n[q] [c]");
}

}  // namespace
}  // namespace tessera::shell
