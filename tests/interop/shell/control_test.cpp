#include <gtest/gtest.h>

#include "tests/interop/shell/followed.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

TEST(Control, BranchesFollowWhatIsKnown) {
  const std::string script = "if [ $S = 7b ]; then L=32\nelif [[ $S == 1[34]b ]]; then L=40\nelse L=1; fi; p $L";
  EXPECT_EQ(programs("S=7b; " + script), "[p] [32]");
  EXPECT_EQ(programs("S=13b; " + script), "[p] [40]");
  EXPECT_EQ(programs("S=x; " + script), "[p] [1]");
}

TEST(Control, TestsCompareWordsAndNumbers) {
  const std::vector<std::pair<std::string, bool>> tests = {{"[ 3 -gt 2 ]", true},
                                                           {"[ 3 -lt 2 ]", false},
                                                           {"[ -z \"\" ]", true},
                                                           {"[ -n \"\" ]", false},
                                                           {"[ a != b ]", true},
                                                           {"[ ! a = a ]", false},
                                                           {"[ a = a -a b = c ]", false},
                                                           {"[ a = b -o c = c ]", true},
                                                           {"[[ a = a && ( b = c || d = d ) ]]", true},
                                                           {"[[ abc == a* ]]", true},
                                                           {"[[ abc == \"a*\" ]]", false},
                                                           {"[[ ! -n \"\" ]]", true},
                                                           {"(( 3 > 2 ))", true},
                                                           {"(( 0 ))", false},
                                                           {"test 1 -eq 1", true},
                                                           {"true", true},
                                                           {"! true", false},
                                                           {"[ a = a ] && [ b = c ]", false},
                                                           {"[[ b > a ]]", true},
                                                           {"[ 08 = 8 ]", false},
                                                           {"false || [ 1 -le 1 ]", true}};
  for (const auto& [test, holds] : tests)
    EXPECT_EQ(programs("if " + test + "; then y; else n; fi"), holds ? "[y]" : "[n]") << test;
}

TEST(Control, ATestThatLacksAWordIsNotMet) {
  EXPECT_EQ(programs("X=; if [ $X = a ]; then p; else q; fi"), "[q]") << "Bash says: unary operator expected";
  EXPECT_EQ(programs("X=; [ a = $X ] && p; [ $X != a ] && q; r"), "[r]");
}

TEST(Control, AConditionThatNobodyKnowsCountsAsMet) {
  EXPECT_EQ(programs("if [ $1 = a ]; then p; else q; fi"), "[p]");
  EXPECT_EQ(programs("[ $1 = a ] && p; [ $1 = b ] || q"), "[p]");
  EXPECT_EQ(programs("case $1 in a) p ;; b) q ;; esac"), "[p]");
  EXPECT_EQ(programs("if nvidia-smi; then p; fi"), "[nvidia-smi]\n[p]");
}

TEST(Control, ButNotWhereTheScriptWouldEnd) {
  EXPECT_EQ(programs("if [ $# -lt 3 ]; then echo usage; exit 1; fi; p"), "[p]");
  EXPECT_EQ(programs("usage() { exit 1; }\n[ -z $X ] && usage\n[ -n \"$X\" ] || exit 1\np"), "[p]");
  EXPECT_EQ(programs("case $1 in -h) exit 0 ;; *) p ;; esac"), "[p]");
}

TEST(Control, ANameThatNobodySetsCountsAsUnset) {
  EXPECT_EQ(programs("[ -z $X ] && p; if [ -n \"$X\" ]; then q; fi; if [[ $X -eq 1 ]]; then r; else s; fi"),
            "[p]\n[s]");
  EXPECT_EQ(programs("if [ -z ${N} ]; then N=2; fi; p $N"), "[p] [2]");
}

TEST(Control, TheCallerCanTurnAConditionRound) {
  const auto reading = followed("if [ a = b ]; then p; elif [ $1 = c ]; then q; else r; fi");
  ASSERT_EQ(reading.decisions.size(), 1U);
  EXPECT_EQ(reading.decisions[0].condition, "[ a = b ]");
  EXPECT_EQ(reading.decisions[0].branches, 3);
  EXPECT_EQ(reading.decisions[0].taken, 1);
  const std::vector<std::string> ways = {"[p]", "[q]", "[r]"};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(programs("if [ a = b ]; then p; elif [ $1 = c ]; then q; else r; fi", {}, {{reading.decisions[0], i}}),
              ways[static_cast<std::size_t>(i)]);
}

TEST(Control, CasesFallThroughAndHavePatterns) {
  const std::string script = "case $X in a|b*) p ;; \"c d\") q ;& e) r ;; *) s ;; esac";
  EXPECT_EQ(programs("X=bc; " + script), "[p]");
  EXPECT_EQ(programs("X='c d'; " + script), "[q]\n[r]");
  EXPECT_EQ(programs("X=z; " + script), "[s]");
}

TEST(Control, LoopsGoOverWordsAndNumbers) {
  EXPECT_EQ(programs("for i in a 'b c' {1..2}; do p $i; done"), "[p] [a]\n[p] [b] [c]\n[p] [1]\n[p] [2]");
  EXPECT_EQ(programs("for ((i=0; i<3; i++)); do [ $i = 1 ] && continue; p $i; done"), "[p] [0]\n[p] [2]");
  EXPECT_EQ(programs("i=0; while [ $i -lt 9 ]; do i=$((i+1)); if [ $i = 3 ]; then break; fi; p $i; done"),
            "[p] [1]\n[p] [2]");
  EXPECT_EQ(programs("i=0; until ((i == 2)); do ((i++)); done; p $i"), "[p] [2]");
  EXPECT_EQ(programs("for a in 1 2; do for b in x y; do [ $b = y ] && continue 2; p $a $b; done; done"),
            "[p] [1] [x]\n[p] [2] [x]");
}

TEST(Control, ArgumentsAreTakenApart) {
  const std::string script =
      "set -- --tp 4 --sp -- rest\nwhile [ $# -gt 0 ]; do case $1 in\n--tp) TP=$2; shift 2 ;;\n--sp) SP=1; shift ;;\n"
      "--) shift; break ;;\nesac; done\np $TP $SP $@";
  EXPECT_EQ(programs(script), "[p] [4] [1] [rest]");
  EXPECT_EQ(programs("while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; esac; done; p ${TP:-1}"), "[p] [1]");
}

TEST(Control, FunctionsHaveArgumentsAndNamesOfTheirOwn) {
  EXPECT_EQ(programs("f() { local X=$1; Y=$2; p $X $# \"$@\"; }\nX=o; f 'a b' c; q $X $Y $1"),
            "[p] [a] [b] [2] [a b] [c]\n[q] [o] [c] [$1]");
  EXPECT_EQ(programs("function g { if [ $1 = 0 ]; then return; fi; p $1; g $(($1-1)); }; g 2"), "[p] [2]\n[p] [1]");
  EXPECT_EQ(programs("f() ( cd /x; A=1; p ); A=0; f; q $A"), "[p]\n[q] [0]");
}

TEST(Control, EvaluatedTextIsAScript) {
  EXPECT_EQ(programs("C=\"p --lr 1\n --x \\\"a b\\\"\"; eval $C; eval \"$C\""),
            "[p] [--lr] [1] [--x] [a b]\n[p] [--lr] [1]\n[--x] [a b]");
  EXPECT_EQ(programs("bash -c 'p $1' a b; X=1; export Y=2; sh -c 'p \"$X\" $Y'"), "[p] [b]\n[p] [] [2]");
  EXPECT_EQ(programs("D=$(date); eval \"p $D\""), "[p] [$(date)]");
}

TEST(Control, ShellsInsideOfOtherProgramsAreRead) {
  EXPECT_EQ(programs("srun -N 2 bash -c \"python t.py --lr 1\""), "[srun] [-N] [2] [python] [t.py] [--lr] [1]");
  EXPECT_EQ(programs("C='cd /x; python t.py --lr 1'; srun -l sh -c \"$C\""), "[srun] [-l] [python] [t.py] [--lr] [1]");
  EXPECT_EQ(programs("srun -N 2 \"python t.py --lr 1\""), "[srun] [-N] [2] [python] [t.py] [--lr] [1]");
  EXPECT_EQ(programs("N=4\nsbatch <<EOF\n#!/bin/bash\n#SBATCH -N 1\nsrun python t.py --tp $N \\$HOME\nEOF\n"),
            "[srun] [python] [t.py] [--tp] [4] [${HOME}]");
}

TEST(Control, HereDocumentsAreTextsAndFiles) {
  const std::string script =
      "Z=2\ncat <<EOF > c.json\n{\"stage\": $Z, \"x\": \"\\$Z\"}\nEOF\np $(cat c.json)\ncat > d <<'END'\n$Z\nEND\n"
      "echo more >> d\ncat <<-T | tee e\n\ta\n\tT\nq\n";
  const auto reading = followed(script);
  EXPECT_EQ(reading.written.at("c.json"), "{\"stage\": 2, \"x\": \"$Z\"}\n");
  EXPECT_EQ(reading.written.at("d"), "$Z\nmore\n");
  EXPECT_EQ(reading.written.at("e"), "a\n");
  EXPECT_EQ(reading.runs.size(), 2U);
  EXPECT_EQ(programs("cat <<EOF > env.sh\nexport TP=4\nEOF\nsource env.sh; . ./env.sh; p $TP"), "[p] [4]");
}

TEST(Control, ReadTakesWordsOfATextThatIsKnown) {
  EXPECT_EQ(programs("read A B <<< 'x y z'; p $A \"$B\""), "[p] [x] [y z]");
  EXPECT_EQ(programs("IFS=, read -ra L <<< 'a,b'; p ${#L[@]} ${L[1]}"), "[p] [2] [b]");
  EXPECT_EQ(programs("IFS=, read -ra L <<< 'a,,b,'; p ${#L[@]} \"${L[@]}\""), "[p] [3] [a] [] [b]");
  EXPECT_EQ(programs("IFS=, read -r A B C <<< 'a,,b,c'; p \"$A\" \"$B\" \"$C\""), "[p] [a] [] [b,c]");
  EXPECT_EQ(programs("printf 'a\\nb\\n' | while read X; do p $X; done"), "[p] [a]\n[p] [b]");
}

TEST(Control, ExportedNamesGoToPrograms) {
  const auto reading = followed("export A=1 B; C=3; B=2; D=4 python t.py; python u.py");
  ASSERT_EQ(reading.runs.size(), 2U);
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(reading.runs[0].environment, (Pairs{{"A", "1"}, {"B", "2"}, {"D", "4"}}));
  EXPECT_EQ(reading.runs[1].environment, (Pairs{{"A", "1"}, {"B", "2"}}));
}

TEST(Control, SubshellsAndPipesLeaveNothingBehind) {
  EXPECT_EQ(programs("A=1; (A=2; p $A); { A=3; }; echo x | A=4; p $A"), "[p] [2]\n[p] [3]");
}

}  // namespace
}  // namespace tessera::shell
