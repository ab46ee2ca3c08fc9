#include <gtest/gtest.h>

#include <filesystem>

#include "tests/interop/shell/followed.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::shell {
namespace {

/// Old files lie on the disk under the names that the scripts write.
class WrittenFiles : public InOwnFolder {
 protected:
  WrittenFiles() {
    std::filesystem::create_directory("d");
    for (const char* name : {"run.sh", "d/run.sh"}) write(name, "#!/bin/bash\np old\n");
    for (const char* name : {"a.txt", "d/a.txt"}) write(name, "old\n");
  }
};

TEST_F(WrittenFiles, AreFoundUnderEverySpellingOfTheirPath) {
  const std::vector<std::string> names = {"run.sh", "./run.sh", "$PWD/run.sh", "d/../run.sh", "$(pwd)/./run.sh"};
  for (const auto& written : names)
    for (const auto& read : names) {
      const std::string here = "cat > " + written + " <<'EOF'\np new\nEOF\nchmod +x run.sh\n";
      for (const std::string start : {"", "sbatch ", ". ", "source ", "sh ", "bash -x ", "srun bash "}) {
        if (start.empty() && read == "run.sh") continue;  // looked for in PATH
        const auto all = programs(here + start + read);
        EXPECT_TRUE(says(all, "[p] [new]") && !says(all, "old")) << written << ": " << start << read << ": " << all;
      }
      EXPECT_EQ(programs("echo new > " + written + "; p $(cat " + read + ") $(< " + read + ")"), "[p] [new] [new]");
    }
}

TEST_F(WrittenFiles, BelongToTheFolderOfTheScriptAtThatTime) {
  EXPECT_EQ(programs("cd d; echo new > a.txt; cd ..; p $(cat a.txt) $(cat d/a.txt)"), "[p] [old] [new]");
  EXPECT_EQ(programs("echo new > d/a.txt; (cd d && p $(cat a.txt)); p $(cd d; cat ./a.txt ../a.txt) $(cat a.txt)"),
            "[p] [new]\n[p] [new] [old] [old]");
  EXPECT_EQ(programs("cd $W; echo new > a.txt; p $(cat ./a.txt) $(cat $W/a.txt); [ -f ./a.txt ] && p"),
            "[p] [new] [new]\n[p]");
}

TEST_F(WrittenFiles, ThatAreRemovedAreNoLongerRead) {
  EXPECT_EQ(programs("rm -f ./a.txt; echo '--lr 3' >> a.txt; p $(cat a.txt)"), "[rm] [-f] [./a.txt]\n[p] [--lr] [3]");
  EXPECT_EQ(programs("rm a.txt; p $(cat a.txt)"), "[rm] [a.txt]\n[p] [$(cat a.txt)]");
  EXPECT_EQ(programs("rm -rf d; p $(cat d/a.txt); echo new >> d/a.txt; p $(cat d/a.txt)"),
            "[rm] [-rf] [d]\n[p] [$(cat d/a.txt)]\n[p] [new]");
  EXPECT_EQ(programs("echo new > d/x; rm -r d; p $(cat d/x)"), "[rm] [-r] [d]\n[p] [$(cat d/x)]");
  EXPECT_EQ(programs("rm *.txt; echo new >> a.txt; p $(cat a.txt); rm a.txt; p *.txt"),
            "[rm] [a.txt]\n[p] [new]\n[rm] [a.txt]\n[p] [*.txt]");
  EXPECT_EQ(programs("echo old >> a.txt; p $(cat a.txt)"), "[p] [old] [old]");
}

TEST_F(WrittenFiles, WithWordsThatAreNotKnownAreNotReadFromTheDisk) {
  EXPECT_EQ(programs("date > ./a.txt; p $(cat a.txt)"), "[date]\n[p] [$(cat a.txt)]");
  EXPECT_EQ(programs("date > a.txt; echo x >> a.txt; p $(cat a.txt)"), "[date]\n[p] [$(cat a.txt)]");
  EXPECT_EQ(programs("date | tee a.txt > /dev/null; p $(cat a.txt)"), "[date]\n[tee] [a.txt]\n[p] [$(cat a.txt)]");
  EXPECT_TRUE(says(said("p\ndate > run.sh; ./run.sh"),
                   "2: ./run.sh is started here, but what the script writes to it is not known"));
  EXPECT_TRUE(says(said("p\ndate > run.sh; . ./run.sh"),
                   "2: ./run.sh is sourced here, but what the script writes to it is not known"));
}

TEST_F(WrittenFiles, MatchPatternsAsFilesDo) {
  EXPECT_EQ(programs("echo x > d/b.txt; p d/*.txt; cd d; echo x > c.txt; p [bc]*; p ./[bc].txt"),
            "[p] [d/a.txt] [d/b.txt]\n[p] [b.txt] [c.txt]\n[p] [./b.txt] [./c.txt]");
}

}  // namespace
}  // namespace tessera::shell
