#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/interop/shell/followed.h"
#include "tests/own_folder.h"
#include "tests/story.h"

// Scripts whose programs Bash itself has told: tests/data/shell/constructs.txt.

namespace tessera::shell {
namespace {

struct Construct {
  std::string script, programs;
};

std::vector<Construct> constructs() {
  std::ifstream in(TESTS_DATA "/shell/constructs.txt");
  std::vector<Construct> out;
  Construct now;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# ", 0) == 0 && now.script.empty()) continue;
    if (line.empty()) {
      if (!now.script.empty()) out.push_back(std::exchange(now, {}));
    } else if (line.rfind("=> ", 0) == 0) {
      now.programs += (now.programs.empty() ? "" : "\n") + line.substr(3);
    } else {
      now.script += line + "\n";
    }
  }
  return out;
}

TEST(Constructs, AreReadAsBashReadsThem) {
  Inputs inputs;
  inputs.arguments = {{1, "/ckpt"}, {2, "4"}, {3, ""}};
  inputs.environment = {{"HOME", "/users/u"}, {"EV", "env val"}};
  const auto all = constructs();
  EXPECT_GT(all.size(), 60U);
  for (const auto& one : all) EXPECT_EQ(programs(one.script, inputs), one.programs) << one.script;
}

TEST(Constructs, WhatIsNotReadStopsWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"p\nset -n\nq", "2: what the script does after 'set -o noexec' is not read"},
      {"p\nset -euZ", "2: Bash knows no option -Z of set"},
      {"readonly A=1\nA=2\np", "2: 'A' is readonly"},
      {"A=x\n[[ $A =~ (a\\1) ]] && p", "2: the regular expression (a\\1) is not understood"},
      {"[[ a =~ a{2,1} ]]", "1: the regular expression a{2,1} is not understood"},
      {"A=a-b\np ${A/-/&}", "2: '&' in a replacement"},
      {"set -u\nunset A\np $A", "3: 'A' is not set here"},
      {"unset A\np ${A:?no A}", "2: 'A' is not set"},
      {"exec < f\nread A\np", "1: what the script reads after `exec <`"},
      {"select A in a b; do p; done", "1: `select` asks the user"},
      {"declare -n A=$1\nA=2", "2: which variable 'A' stands for is not known"},
      {"A=(a b)\nunset 'A['$1']'", "2: "},
      {"shopt -s xpg_echo", "1: what 'shopt xpg_echo' changes is not read"},
      {"eval 'p \"a'", "1: inside of what is evaluated here: the quote"},
      {"A=(a)\nA[-3]=x", "2: 'A' has no element -3"}};
  for (const auto& [script, story] : all) EXPECT_TRUE(says(said(script), story)) << script << ": " << said(script);
}

TEST(Constructs, ARegularExpressionTakesLittleWork) {
  const std::string words(2000, 'a');
  for (const char* expression : {"^(a+)+$", "^(a|aa)*b$", "(a*)*c", "(.*)(.*)(.*)(.*)x", "^((a?){50}){5}$"})
    EXPECT_LT(followed("[[ " + words + "b =~ " + expression + " ]] && p").steps, enough_steps + 1000) << expression;
  EXPECT_EQ(programs("X=" + std::string(40, 'a') + "b; if [[ $X =~ ^(a+)+$ ]]; then p; else q; fi"), "[q]");
}

TEST(Constructs, GroupsThatLibrariesTellDifferentlyAreUnknown) {
  EXPECT_EQ(programs("[[ abcd =~ (a|ab)(c|bcd) ]] && p ${BASH_REMATCH[0]}"), "[p] [abcd]");
  EXPECT_EQ(programs("[[ aaa =~ (a|aa)* ]] && p ${BASH_REMATCH[1]}"), "[p] [${BASH_REMATCH[1]}]");
}

class OtherScripts : public InOwnFolder {
 protected:
  static std::string programs_of(const std::string& file) {
    std::string out;
    for (const auto& run : follow_script(file, {}, {}, enough_steps).runs)
      for (const auto& word : run.words) out += "[" + plain(word) + "]";
    return out;
  }
};

TEST_F(OtherScripts, AreFollowedWhereAScriptStartsThem) {
  std::filesystem::create_directory("d");
  write("d/a.sh", "p $1 $X\n");
  write("d/tool", "#!/usr/bin/env bash\np tool $1\n");
  const std::string here = "D=$(cd \"$(dirname \"$0\")\" && pwd)\nX=1; export X\n";
  for (const auto& [line, told] : std::vector<std::pair<std::string, std::string>>{
           {"exec \"$D/a.sh\" --config 4\np never", "[p][--config][1]"},
           {"cd $D && ./a.sh 7", "[p][7][1]"},
           {"\"$D\"/tool 3", "[p][tool][3]"},
           {"srun -N 2 ./d/a.sh 5", "[srun][-N][2][p][5][1]"},
           {"nohup env Y=1 $D/a.sh 6 > log 2>&1 &\nwait", "[nohup][env][Y=1][p][6][1]"},
           {"(cd $D; exec ./a.sh 8); p $X", "[p][8][1][p][1]"}}) {
    write("d/run.sh", here + line + "\n");
    EXPECT_EQ(programs_of("d/run.sh"), told) << line;
  }
}

TEST_F(OtherScripts, ThatAreNotThereAreNamed) {
  write("run.sh", "p\nexec \"$HOME/other.sh\" x\n");
  const auto reading = follow_script("run.sh", {}, {}, enough_steps);
  ASSERT_EQ(reading.remarks.size(), 1U);
  EXPECT_EQ(reading.remarks[0].at.line, 2);
  EXPECT_TRUE(says(reading.remarks[0].words, "${HOME}/other.sh is started here, but does not exist"));
}

}  // namespace
}  // namespace tessera::shell
