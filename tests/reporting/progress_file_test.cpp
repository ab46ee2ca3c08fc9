// progress.txt, as Megatron-LM writes it with --log-progress.
#include "framework/reporting/progress_file.h"

#include <gtest/gtest.h>

#include <string>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/own_folder.h"

namespace tessera::reporting {
namespace {

class ProgressText : public InOwnFolder {
 protected:
  ProgressFile begun(std::int64_t from, int processes = 2, const std::string& job = "77") {
    return ProgressFile(
        {.path = "progress.txt", .job = job, .processes = processes, .resume_iteration = from, .now = [this] {
           return now;
         }});
  }
  /// The last line without its time.
  static std::string last_line() {
    auto words = read_file("progress.txt");
    words.pop_back();
    const auto line = words.substr(words.rfind('\n') + 1);
    return line.substr(line.find('\t') + 1);
  }

  std::time_t now = 1700000000;
};

TEST_F(ProgressText, HasALineForEachStartAndEachCheckpoint) {
  auto file = begun(0);
  EXPECT_EQ(last_line(), "Job ID: 77\t# GPUs: 2\tStarting job");
  now += 10;
  file.add(3e14);
  file.add(1e14);
  file.saved(2, 25e6);
  EXPECT_EQ(last_line(),
            "Job ID: 77\t# GPUs: 2\tSaved checkpoint\tIteration: 2\tJob throughput: 20.0 TFLOP/s/GPU\tCumulative "
            "throughput: 20.0 TFLOP/s/GPU\tFloating-point operations: 4.00e+14\tTokens (in billions): 0.03");
  const auto moment = read_file("progress.txt").substr(0, 20);
  EXPECT_EQ(moment[4], '-');
  EXPECT_EQ(moment[10], ' ');
  EXPECT_EQ(moment[19], '\t');
}

TEST_F(ProgressText, ALaterStartCountsFromTheCheckpointItResumesFrom) {
  {
    auto first = begun(0);
    now += 10;
    first.add(4e14);
    first.saved(2, 0);
    first.add(4e14);
    first.saved(4, 0);
  }
  now += 10;
  auto second = begun(2);  // that of iteration 4 was lost
  now += 20;
  second.add(4e14);
  second.saved(4, 0);
  EXPECT_NE(
      last_line().find("Job throughput: 10.0 TFLOP/s/GPU\tCumulative throughput: 10.0 TFLOP/s/GPU\tFloating-point "
                       "operations: 8.00e+14"),
      std::string::npos)
      << last_line();
}

TEST_F(ProgressText, AnotherNumberOfProcessesBeginsTheCumulativeThroughputAnew) {
  {
    auto first = begun(0, 4);
    now += 1000;
    first.add(8e14);
    first.saved(2, 0);
  }
  auto second = begun(2, 2);
  now += 10;
  second.add(4e14);
  second.saved(4, 0);
  EXPECT_NE(
      last_line().find("Job throughput: 20.0 TFLOP/s/GPU\tCumulative throughput: 20.0 TFLOP/s/GPU\tFloating-point "
                       "operations: 1.20e+15"),
      std::string::npos)
      << last_line();
}

TEST_F(ProgressText, LinesOfAnotherFormAreIgnoredAndKept) {
  const std::string damaged =
      "\t\t\nnothing\nx\tJob ID: \t# GPUs: many\tStarting job\ny\tJob ID: \t# GPUs: 2\tSaved checkpoint\tIter\n"
      "never\tJob ID: \t# GPUs: 2\tStarting job\n";
  write("progress.txt", damaged);
  auto file = begun(0);
  now += 10;
  file.add(4e14);
  file.saved(2, 0);
  EXPECT_EQ(read_file("progress.txt").substr(0, damaged.size()), damaged);
  EXPECT_NE(last_line().find("Cumulative throughput: 20.0"), std::string::npos) << last_line();
}

TEST_F(ProgressText, AFileThatCannotBeWrittenIsNamed) {
  ProgressFile::Options options;
  options.path = "missing/progress.txt";
  EXPECT_THROW(ProgressFile{options}, IoError);
}

}  // namespace
}  // namespace tessera::reporting
