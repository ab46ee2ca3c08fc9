#include "framework/reporting/run_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "framework/base/files.h"
#include "framework/reporting/tensorboard.h"
#include "tests/own_folder.h"

namespace {
std::atomic<long> allocations = 0;
}

// Weak: another test of the same program may bring its own, then the test below that counts is skipped.
[[gnu::weak]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort takes its buffer from this one and gives it to the operator delete below.
[[gnu::weak]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::weak]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::weak]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tessera::reporting {
namespace {

class RunLogTest : public InOwnFolder {
 protected:
  RunLogTest() : console_(open("console", O_CREAT | O_WRONLY | O_APPEND, 0666)) {}
  ~RunLogTest() override { close(console_); }

  RunLogOptions options() const {
    RunLogOptions o;
    o.folder = ".";
    o.training_iters = 10;
    o.console = console_;
    return o;
  }
  static StepRecord step(std::int64_t iteration) {
    StepRecord r;
    r.iteration = iteration;
    r.consumed_samples = 8 * iteration;
    r.global_batch_size = 8;
    r.loss = 5;
    r.grad_norm = 1;
    r.step_seconds = 0.1;
    return r;
  }
  static std::size_t lines_of(const std::string& file) {
    const auto content = read_file(file);
    return static_cast<std::size_t>(std::count(content.begin(), content.end(), '\n'));
  }
  static std::string console() { return read_file("console"); }
  static std::string events() {
    std::string all;
    for (const auto& file : list_folder("tensorboard")) all += read_file(file);
    return all;
  }

 private:
  int console_;
};

TEST_F(RunLogTest, EachLoggedStepIsALineAndAnObject) {
  auto o = options();
  o.log_interval = 5;
  RunLog log(o);
  for (int i = 1; i <= 10; ++i) {
    auto s = step(i);
    s.step_seconds = i <= 5 ? 0.1 : 0.3;
    log.step(s);
  }
  EXPECT_EQ(lines_of("console"), 2U);
  EXPECT_EQ(lines_of("metrics.jsonl"), 2U);
  EXPECT_NE(console().find("] iteration        5/      10 |"), std::string::npos);
  EXPECT_NE(console().find("elapsed time per iteration (ms): 100.0 |"), std::string::npos);
  EXPECT_NE(console().find("elapsed time per iteration (ms): 300.0 |"), std::string::npos);  // an interval of its own
}

TEST_F(RunLogTest, CoreMsStyleChangesTheLine) {
  auto o = options();
  o.log_style = LogStyle::core_ms;
  RunLog log(o);
  log.step(step(1));
  EXPECT_EQ(console(), "INFO - Epoch: 0, Step: 1, Loss: 5.0000000000000000, Time: 100.00 ms\n");
}

TEST_F(RunLogTest, EvaluationsGoEverywhere) {
  RunLog log(options());
  log.step(step(1));
  log.evaluation({1, 8, 4.5});
  EXPECT_NE(console().find(" validation loss at iteration 1 | lm loss value: 4.500000E+00 |"), std::string::npos);
  EXPECT_NE(read_file("metrics.jsonl").find("\"validation_loss\": 4.5}"), std::string::npos);
  EXPECT_NE(events().find("lm loss validation ppl vs samples"), std::string::npos);
}

TEST_F(RunLogTest, ValidationSetsHaveTheirNamesEverywhere) {
  RunLog log(options());
  log.step(step(1));
  log.evaluation({1, 8, 4.5, EvaluationRecord::Set::validation, "-prose", 1});
  EXPECT_NE(console().find(" validation-prose loss at iteration 1 | lm loss value: 4.500000E+00 |"), std::string::npos);
  EXPECT_NE(read_file("metrics.jsonl").find("\"validation_loss-prose\": 4.5}"), std::string::npos);
  for (const char* tag : {"lm loss validation-prose", "lm loss validation-prose vs samples",
                          "lm loss validation-prose ppl", "lm loss validation-prose ppl vs samples"})
    EXPECT_NE(events().find(tag), std::string::npos) << tag;
}

TEST_F(RunLogTest, AnEvaluationIsAnnouncedWhenItTakesLong) {
  using Set = EvaluationRecord::Set;
  RunLog log(options());
  log.evaluation_begins(Set::validation, 100, 4.9);
  EXPECT_EQ(console(), "");
  log.evaluation_begins(Set::final_validation, 100, 40.4);
  EXPECT_EQ(console(), "evaluating the validation split: 100 iterations, about 40 s\n");
  log.evaluation_progress(50);
  log.evaluation_begins(Set::test, 3, 0);  // nobody knows how long it takes
  EXPECT_EQ(console(),
            "evaluating the validation split: 100 iterations, about 40 s\nevaluating the test split: 3 iterations\n");
}

TEST_F(RunLogTest, WritesMegatronsTags) {
  RunLog log(options());
  auto s = step(1);
  s.num_zeros = 0;
  s.params_norm = 32;
  log.step(s);
  for (const char* tag : {"learning-rate", "batch-size", "lm loss", "loss-scale", "grad-norm", "num-zeros",
                          "params-norm", "iteration-time"}) {
    EXPECT_NE(events().find(tag), std::string::npos) << tag;
    EXPECT_NE(events().find(std::string(tag) + " vs samples"), std::string::npos) << tag;
  }
}

TEST_F(RunLogTest, WritesTheLossesOfEachLayerWhenAsked) {
  std::vector<RoutingRecord> layers(40);  // more than an event has points
  for (std::size_t i = 1; i < layers.size(); ++i) {
    layers[i].has_experts = true;
    layers[i].load_balancing_loss = 1.5;
  }
  auto s = step(1);
  s.routing = layers;
  s.load_balancing_loss = 1;
  for (const bool asked : {false, true}) {
    auto o = options();
    o.routed_layers = layers.size();
    o.events_per_layer = asked;
    RunLog log(o);
    log.step(s);
    for (const char* tag : {"moe/load_balancing_loss_layer_0", "moe/load_balancing_loss_layer_39"})
      EXPECT_EQ(events().find(tag) != std::string::npos, asked) << tag;
    EXPECT_EQ(events().find("moe/z_loss_layer_"), std::string::npos);  // there is no z loss
  }
}

TEST_F(RunLogTest, WritesNoEventsWhenNotAsked) {
  auto o = options();
  o.tensorboard = false;
  RunLog log(o);
  log.step(step(1));
  EXPECT_FALSE(std::filesystem::exists("tensorboard"));
}

TEST_F(RunLogTest, NotesAreWholeLinesOfAnyLength) {
  RunLog log(options());
  log.note("one");
  log.note("two\n");
  log.note(std::string(10000, 'x'));
  EXPECT_EQ(console(), "one\ntwo\n" + std::string(10000, 'x') + "\n");
}

TEST_F(RunLogTest, ARestartGoesOnInTheSameMetrics) {
  {
    RunLog log(options());
    for (int i = 1; i <= 4; ++i) log.step(step(i));
  }
  auto o = options();
  o.resume_iteration = 2;
  o.resume_consumed_samples = 16;
  RunLog log(o);
  for (int i = 3; i <= 5; ++i) log.step(step(i));
  EXPECT_EQ(lines_of("metrics.jsonl"), 5U);
}

TEST_F(RunLogTest, AFailedWriteIsToldOnceAndEndsNothing) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto o = options();
  o.console = ends[1];
  RunLog log(o);
  log.step(step(1));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{read_file("metrics.jsonl").size() + 1, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // to this process a full disk
  for (int i = 2; i <= 4; ++i) log.step(step(i));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  log.step(step(5));
  EXPECT_EQ(lines_of("metrics.jsonl"), 2U);
  char words[8192];
  const std::string said(words, static_cast<std::size_t>(::read(ends[0], words, sizeof words)));
  close(ends[0]);
  close(ends[1]);
  const std::string complaint = "metrics.jsonl: a line could not be written";
  EXPECT_NE(said.find(complaint), std::string::npos) << said;
  EXPECT_EQ(said.find(complaint), said.rfind(complaint));
}

TEST_F(RunLogTest, AFullDiskCostsLinesOfEachFileAndIsToldOnceForEach) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto o = options();
  o.console = ends[1];
  o.wandb = WandbRun{.id = "1a", .project = "models", .name = "run", .host = "here", .config = {}};
  o.prometheus_file = "run.prom";
  RunLog log(o);
  log.step(step(1));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // to this process a full disk
  for (int i = 2; i <= 4; ++i) {
    log.step(step(i));
    log.evaluation({i, 8 * i, 4.5});
    log.event("note", i, {{"message", "nothing fits"}});
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  log.step(step(5));
  log.event("finished", 5, Json::object());
  char words[16384];
  const std::string said(words, static_cast<std::size_t>(::read(ends[0], words, sizeof words)));
  close(ends[0]);
  close(ends[1]);
  for (const char* complaint :
       {"metrics.jsonl: a line could not be written", "wandb: a record could not be written", "run.prom: could not be",
        "events.jsonl: cannot be written", "tensorboard: an event could not be written"}) {
    EXPECT_NE(said.find(complaint), std::string::npos) << complaint << "\n" << said;
    EXPECT_EQ(said.find(complaint), said.rfind(complaint)) << said;
  }
  EXPECT_EQ(lines_of("metrics.jsonl"), 2U);
  EXPECT_NE(read_file("run.prom").find("tessera_iteration{run=\"\"} 5\n"), std::string::npos);
  EXPECT_NE(read_file("events.jsonl").find("\"event\":\"finished\""), std::string::npos);
}

TEST_F(RunLogTest, AllocatesNothingInSteadyState) {
  const auto before_probe = allocations.load();
  ::operator delete(::operator new(8));
  if (allocations == before_probe) GTEST_SKIP() << "another source of this program counts allocations";
  auto o = options();
  o.wandb = WandbRun{.id = "1a", .project = "models", .name = "run", .host = "here", .config = {}};
  o.prometheus_file = "run.prom";
  RunLog log(o);
  log.step(step(1));
  log.evaluation({1, 8, 4.5});
  const auto before = allocations.load();
  for (int i = 2; i <= 10; ++i) log.step(step(i));
  log.evaluation({10, 80, 4.5});
  log.note("still nothing");
  EXPECT_EQ(allocations, before);
  EXPECT_NE(read_file("run.prom").find("tessera_iteration{run=\"\"} 10\n"), std::string::npos) << read_file("run.prom");
  const auto folders = list_folder("wandb");
  ASSERT_EQ(folders.size(), 1U);
  EXPECT_NE(read_file(folders[0] / "run-1a.wandb").find("validation_loss"), std::string::npos);
}

}  // namespace
}  // namespace tessera::reporting
