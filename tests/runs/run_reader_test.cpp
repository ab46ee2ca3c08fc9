#include "framework/runs/run_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/folder_use.h"
#include "framework/base/system_call.h"
#include "framework/runs/row_scanner.h"
#include "tests/own_folder.h"

namespace tessera::runs {
namespace {

using State = RunStatus::State;

class RunReaderTest : public InOwnFolder {
 protected:
  static void append(const std::string& name, const std::string& words) {
    std::ofstream(name, std::ios::app | std::ios::binary) << words;
  }
  static std::string row(int iteration, double loss) {
    return text("{\"iteration\": ", iteration, ", \"consumed_samples\": ", iteration * 8, ", \"loss\": ", loss,
                ", \"step_seconds\": 0.5, \"tokens_per_second\": 100.0}\n");
  }
  static State state(const RunReader& reader) { return reader.status(wall_time()).state; }
};

std::string values(std::string_view line) {
  std::ostringstream all;
  RowScanner row(line);
  while (row.next()) {
    all << row.key;
    if (row.in_list) all << "[" << row.index << "]";
    all << "=" << row.value << ";";
  }
  return all.str() + (row.damaged() ? "damaged" : "");
}

TEST(RowScanner, GivesEveryNumber) {
  EXPECT_EQ(values("{\"a\": 1, \"b/c\":-2.5e-07,\"d\": null, \"e\": true}"), "a=1;b/c=-2.5e-07;d=nan;e=1;");
  EXPECT_EQ(values("{\"a\": [0.5, null, 3], \"b\": [], \"t\": \"x,\\\"}\", \"c\": [\"y\", 2]}"),
            "a[0]=0.5;a[1]=nan;a[2]=3;c[1]=2;");
  EXPECT_EQ(values(", \"a\": 1e999, \"b\": -1e-999}"), "a=inf;b=-0;");
  EXPECT_EQ(values("{}"), "");
}

TEST(RowScanner, PassesOverWhatANewerVersionMayWrite) {
  EXPECT_EQ(values(R"({"a": {"b": [1, {"c": "}\"]"}]}, "d": 4, "e": [[1, 2], 5, {}], "f": 6})"), "d=4;e[1]=5;f=6;");
}

TEST(RowScanner, EndsAtATextThatIsNoRow) {
  for (const char* line : {"{\"a\": 1",
                           "{\"a\": 1,",
                           "{\"a\": }",
                           "{\"a\"",
                           "{\"a\": nan}",
                           "{\"a\": -inf}",
                           "{\"a\": {]}",
                           "{\"a\": {\"b\": x}}",
                           "{\"a\": {\"b\": \"}",
                           "{\"a\": [1, x]}",
                           "{\"a\": [1",
                           "{\"a\": [[1}]}",
                           "{\"a\": [[1]}",
                           "{a: 1}",
                           "[1]",
                           "{\"a\": 1}x",
                           "",
                           "{",
                           "{\"a\": 1 \"b\": 2}",
                           "{\"a\": tru}",
                           "{\"a\": 0x10}",
                           "{\"a\": \"x}",
                           "{\"a\": [1,]}"})
    EXPECT_TRUE(values(line).ends_with("damaged")) << line << " gave " << values(line);
}

TEST_F(RunReaderTest, GivesTheCurvesOfARun) {
  write("metrics.jsonl",
        row(10, 4.5) + row(20, 3.25) + "{\"iteration\": 20, \"most_load\": [1.5, null], \"validation_loss\": null}\n");
  write("events.jsonl", "{\"time\": 1, \"event\": \"start\", \"iteration\": 0}\n");
  RunReader reader(".");
  EXPECT_TRUE(reader.refresh());
  EXPECT_FALSE(reader.refresh());
  EXPECT_EQ(reader.rows(), 3);
  EXPECT_EQ(reader.last_iteration(), 20);
  EXPECT_EQ(reader.curve("loss")->columns()[1].first.y, 3.25);
  EXPECT_EQ(reader.curve("validation_loss")->missing(), 1U);
  EXPECT_EQ(reader.find("most_load")->items.at(0).newest()->y, 1.5);
  EXPECT_EQ(reader.curve("most_load"), nullptr);
  EXPECT_EQ(reader.axis(RunAxis::samples)->at(15), 120);
  EXPECT_EQ(reader.axis(RunAxis::seconds)->at(20), 5 + 5);  // each row is of 10 steps
  EXPECT_EQ(reader.axis(RunAxis::tokens)->at(20), 500 + 500);
  EXPECT_EQ(reader.damaged(), 0);
}

TEST_F(RunReaderTest, TheFirstRowCountsTheStepsSinceTheRunBegan) {
  write("metrics.jsonl", row(1010, 4.5));
  write("events.jsonl", "{\"time\": 1, \"event\": \"start\", \"iteration\": 1000}\n");
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(reader.axis(RunAxis::seconds)->at(1010), 5);
}

TEST_F(RunReaderTest, FollowsARunThatIsWritten) {
  RunReader reader(".");
  EXPECT_FALSE(reader.refresh());
  EXPECT_EQ(state(reader), State::not_begun);
  write("metrics.jsonl", row(1, 4) + "{\"iteration\": 2, \"lo");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.rows(), 1);
  EXPECT_EQ(reader.metrics_file().unfinished(), 20U);
  append("metrics.jsonl", "ss\": 3.5}\n");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.rows(), 2);
  EXPECT_EQ(reader.curve("loss")->newest()->y, 3.5);
}

TEST_F(RunReaderTest, AddsAnEvaluationThatContinuesTheLastObject) {
  const auto rows = row(1, 4) + row(2, 3);
  write("metrics.jsonl", rows);
  RunReader reader(".");
  reader.refresh();
  const auto longer = rows.substr(0, rows.size() - 2) + ", \"validation_loss\": 2.75";
  write("metrics.jsonl", longer);  // the same file: not replaced
  reader.refresh();
  EXPECT_EQ(reader.curve("validation_loss"), nullptr);
  write("metrics.jsonl", longer + "}\n" + row(3, 2.5));
  reader.refresh();
  EXPECT_EQ(reader.rows(), 3);
  EXPECT_EQ(reader.curve("loss")->count(), 3U);
  EXPECT_EQ(reader.curve("validation_loss")->newest()->x, 2);
  EXPECT_EQ(reader.curve("validation_loss")->newest()->y, 2.75);
  EXPECT_EQ(reader.damaged(), 0);
}

// The run goes on while the reader is at work: the last line is continued again after it was looked at.
TEST_F(RunReaderTest, ReadsNoRestOfALineThatIsContinuedMeanwhile) {
  const std::string step = "{\"iteration\": 1, \"loss\": 2", one = step + ", \"a\": 3", two = one + ", \"b\": 4";
  const auto write = [](const std::string& lines) { std::ofstream("run.jsonl", std::ios::trunc) << lines; };
  AppendedLines lines("run.jsonl", 1000);
  std::vector<std::string> seen;
  const auto refresh = [&](const std::function<void()>& meanwhile) {
    return lines.refresh({[] { FAIL() << "the file was not replaced"; },
                          [&](std::string_view line, std::size_t known) {
                            seen.push_back(text(known > 0 ? "+" : "", line.substr(known)));
                            meanwhile();
                          }});
  };
  write(step + "}\n");
  EXPECT_TRUE(refresh([] {}));
  write(one + "}\n");
  EXPECT_TRUE(refresh([&] { write(two + "}\n{\"iteration\": 2}\n"); }));
  EXPECT_TRUE(refresh([] {}));
  EXPECT_FALSE(refresh([] {}));
  EXPECT_EQ(seen, (std::vector<std::string>{step + "}", "+, \"a\": 3}", "+, \"b\": 4}", "{\"iteration\": 2}"}));
}

TEST_F(RunReaderTest, BeginsAgainWhenAResumeCutTheFile) {
  write("metrics.jsonl", row(1, 4) + row(2, 3) + row(3, 2));
  RunReader reader(".");
  reader.refresh();
  for (const auto& now : {row(1, 4) + row(2, 9), row(1, 4) + row(2, 3.5) + row(3, 2.5) + row(4, 1), std::string()}) {
    write("metrics.jsonl", now);
    reader.refresh();
    RunReader fresh(".");
    fresh.refresh();
    EXPECT_EQ(reader.rows(), fresh.rows());
    EXPECT_EQ(reader.last_iteration(), fresh.last_iteration());
    EXPECT_EQ(reader.curve("loss") == nullptr, fresh.curve("loss") == nullptr);
    if (reader.curve("loss") != nullptr) {
      EXPECT_EQ(reader.curve("loss")->newest()->y, fresh.curve("loss")->newest()->y);
      EXPECT_EQ(reader.curve("loss")->count(), fresh.curve("loss")->count());
    }
  }
  std::filesystem::remove("metrics.jsonl");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.rows(), 0);
}

TEST_F(RunReaderTest, TellsAnotherRowFromOneThatWasContinued) {
  write("metrics.jsonl", "{\"iteration\": 1, \"loss\": 3}\n");
  RunReader reader(".");
  reader.refresh();
  write("metrics.jsonl", "{\"iteration\": 1, \"loss\": 9, \"grad_norm\": 2}\n");
  reader.refresh();
  EXPECT_EQ(reader.curve("loss")->newest()->y, 9);
  EXPECT_EQ(reader.curve("loss")->count(), 1U);
  EXPECT_EQ(reader.rows(), 1);
}

TEST_F(RunReaderTest, CountsWhatIsDamagedOrTooMuch) {
  append("metrics.jsonl", row(1, 4) + "{\"loss\": 3}\n{\"iteration\": -1}\n{\"iteration\": 1.5}\nnot JSON\n\n");
  append("metrics.jsonl", "{\"iteration\": 2, \"x\": [" + std::string(3 << 20, '1') + "]}\n" + row(3, 2));
  std::string wide = "{\"iteration\": 4";
  for (int i = 0; i < 1000; ++i) wide += text(", \"key_", i, "\": 1");
  append("metrics.jsonl", wide + ", \"list\": [0" + std::string(0, ' ') + "]}\n");
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(reader.rows(), 3);
  EXPECT_EQ(reader.damaged(), 6);
  EXPECT_GT(reader.left_out(), 400);
  EXPECT_LE(reader.series().size(), 512U);
}

TEST_F(RunReaderTest, SaysHowARunEnded) {
  RunReader reader(".");
  const auto after = [&](const std::string& event) {
    append("events.jsonl", event + "\n");
    reader.refresh();
    return reader.status(wall_time());
  };
  EXPECT_EQ(after(R"({"time": 1.5, "event": "start", "iteration": 0})").state, State::running);
  EXPECT_EQ(after(R"({"time": 2, "event": "stopped", "iteration": 5, "reason": "signal"})").state, State::stopped);
  EXPECT_EQ(after(R"({"time": 3, "event": "start", "iteration": 5})").state, State::running);
  const auto died = after(R"({"time": 4, "event": "failed", "iteration": 7, "message": "disk full", "rank": 1})");
  EXPECT_EQ(died.state, State::died);
  EXPECT_EQ(died.reason, "disk full");
  EXPECT_EQ(after(R"({"time": 5, "event": "restart", "iteration": 7, "attempt": 2})").state, State::running);
  EXPECT_EQ(after(R"({"time": 5, "event": "of a newer version", "x": [1]})").state, State::running);
  EXPECT_EQ(reader.status(wall_time() + 3600).state, State::silent);
  EXPECT_EQ(after(R"({"time": 6, "event": "finished", "iteration": 9})").state, State::finished);
  EXPECT_EQ(told(reader.events().all()[3]), "rank 1, disk full");
  EXPECT_EQ(told(reader.events().all()[5]), "x [1]");
  EXPECT_EQ(after("{\"event\": 5}").state, State::finished);
  EXPECT_EQ(reader.events().damaged(), 1);
}

TEST_F(RunReaderTest, AnEventThatDoesNotTellItsIterationIsNotOfIterationZero) {
  write("events.jsonl",
        "{\"event\": \"start\"}\n{\"event\": \"start\", \"iteration\": 4}\n{\"event\": \"failed\"}\n"
        "{\"event\": \"failed\", \"iteration\": -1}\n{\"event\": \"failed\", \"iteration\": 7}\n");
  write("metrics.jsonl", row(10, 4.5));
  RunReader reader(".");
  reader.refresh();
  std::vector<std::int64_t> told;
  for (const auto& event : reader.events().all()) told.push_back(event.iteration.value_or(-5));
  EXPECT_EQ(told, (std::vector<std::int64_t>{-5, 4, -5, -5, 7}));
  EXPECT_EQ(reader.axis(RunAxis::seconds)->at(10), 3) << "of 6 steps since the start that tells its iteration";
}

TEST_F(RunReaderTest, ReadsTheLockWithoutTakingIt) {
  write("metrics.jsonl", row(1, 4));
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(state(reader), State::ended);
  {
    const FolderLock lock(".");
    EXPECT_EQ(folder_use(".").state, FolderUse::State::held);
    EXPECT_EQ(state(reader), State::running);
  }
  EXPECT_EQ(folder_use(".").state, FolderUse::State::free);
  write("in_use", text("process 4194303 on ", host_name(), "\n"));
  EXPECT_EQ(state(reader), State::died);
  write("in_use", "process 12 on another host\n");
  EXPECT_EQ(folder_use(".").state, FolderUse::State::unknown);
  EXPECT_EQ(state(reader), State::running);
}

TEST_F(RunReaderTest, TakesAFolderOfAnyFiles) {
  ASSERT_EQ(::mkfifo("metrics.jsonl", 0600), 0);
  std::filesystem::create_directory("events.jsonl");
  write("run.json", "[1, ");
  write("resolved.yaml", "a: [1\n\tb: &x *x");
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(reader.rows(), 0);
  EXPECT_TRUE(reader.record().is_null());
  EXPECT_EQ(state(reader), State::not_begun);
  EXPECT_THROW(RunReader("absent"), ConfigError);
  EXPECT_THROW(RunReader("run.json"), ConfigError);
}

TEST_F(RunReaderTest, ReadsTheLengthOfTheRunInItsRecipe) {
  write("resolved.yaml", "training_config:\n  training_iters: 2\n");
  write("metrics.jsonl", row(1, 4) + row(2, 4));
  write("run.json", R"({"run": "0123456789abcdef", "jobs": {}})");
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(reader.iterations(), 2);
  EXPECT_EQ(state(reader), State::finished);
  EXPECT_EQ(reader.record_text("run"), "0123456789abcdef");
}

TEST_F(RunReaderTest, TakesTheLengthOfTheRunFromItsRecordIfThatTellsIt) {
  write("resolved.yaml", "training_config:\n  training_iters: 1000000\n  epochs: 1\n");
  write("metrics.jsonl", row(5, 4) + row(6, 4));
  write("run.json", R"({"run": "a", "training_iters": 6})");
  RunReader reader(".");
  reader.refresh();
  EXPECT_EQ(reader.iterations(), 6);
  EXPECT_EQ(state(reader), State::finished);
  write("run.json", R"({"run": "a", "training_iters": 12000})");  // resumed with more epochs
  reader.refresh();
  EXPECT_EQ(reader.iterations(), 12000);
  EXPECT_EQ(state(reader), State::ended);
  for (const char* value : {"\"6\"", "-6", "0", "6.5", "1e300", "null", "[6]"}) {
    write("run.json", text("{\"training_iters\": ", value, "}"));
    RunReader fresh(".");
    fresh.refresh();
    EXPECT_EQ(fresh.iterations(), 1000000) << value;
  }
}

// Rows as a run writes them, with random damage, in pieces: no reader may end in an error, and what was read in pieces
// is what is read at once.
TEST_F(RunReaderTest, ReadsDamagedFilesInPiecesAsAtOnce) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::string all;
    for (int i = 1; i < 60; ++i)
      all += text("{\"iteration\": ", i, ", \"loss\": ", i * 0.5,
                  ", \"load\": [0.5, null], \"rank_seconds\": [0.25, 1e-3], \"flag\": true}\n");
    static constexpr std::string_view bytes = "{}[]\",:\\\n\0 -1e9.null\xff";
    for (std::size_t damage = random() % 40; damage > 0; --damage)
      all[random() % all.size()] = bytes[random() % bytes.size()];
    for (const char* name : {"metrics.jsonl", "events.jsonl", "run.json", "resolved.yaml"}) write(name, all);
    RunReader fresh(".");
    fresh.refresh();
    for (const char* name : {"metrics.jsonl", "events.jsonl"}) write(name, "");
    RunReader reader(".");
    for (std::size_t at = 0; at < all.size();) {
      const auto piece = 1 + random() % 700;
      append("metrics.jsonl", all.substr(at, piece));
      append("events.jsonl", all.substr(at, piece));
      at += piece;
      reader.refresh();
    }
    EXPECT_EQ(reader.rows(), fresh.rows());
    EXPECT_EQ(reader.damaged(), fresh.damaged());
    EXPECT_EQ(reader.series().size(), fresh.series().size());
    EXPECT_EQ(reader.events().all().size(), fresh.events().all().size());
    EXPECT_EQ(reader.last_iteration(), fresh.last_iteration());
    (void)reader.status(wall_time());
  }
}

}  // namespace
}  // namespace tessera::runs
