// Summary and trace of spans whose times are known.
#include "framework/training/reports/profiler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/story.h"

namespace tessera::training {
namespace {

constexpr std::int64_t ms = 1000000;

/// Spans are kept when they end, so inner ones first.
class ProfilerTest : public testing::Test {
 protected:
  void span(TraceKind kind, const char* name, std::int64_t begin, std::int64_t end, std::int64_t value = -1) {
    trace_.add({.begin = begin * ms,
                .end = end * ms,
                .name = name,
                .group = "data",
                .who = "test",
                .value = value,
                .kind = kind});
  }
  ProfileSummary summary() const { return summarize(*trace_.tracks().at(0)); }
  Trace trace_{{TraceKind::phase}, 100};
};

TEST_F(ProfilerTest, PartsOfAStepAreDisjointAndAddUpToIt) {
  span(TraceKind::data, "wait for a micro-batch", 10, 15);
  span(TraceKind::kernel, "product", 15, 30);
  span(TraceKind::phase, "forward pass", 10, 40);
  span(TraceKind::communication, "all_reduce", 60, 70);
  span(TraceKind::operation, "Linear", 40, 60);
  span(TraceKind::phase, "backward pass", 40, 80);
  span(TraceKind::phase, "step", 0, 100, 10);
  span(TraceKind::kernel, "product", 110, 120);
  span(TraceKind::phase, "forward pass", 110, 120);  // of an evaluation
  span(TraceKind::phase, "forward pass", 200, 240);
  span(TraceKind::phase, "step", 200, 300, 13);
  const auto all = summary();
  EXPECT_EQ(all.steps, 2);
  EXPECT_NEAR(all.seconds, 0.2, 1e-12);
  std::map<std::string, double> seconds;
  double sum = 0;
  for (const auto& part : all.phases) seconds[part.name] = part.seconds, sum += part.seconds;
  EXPECT_NEAR(sum, all.seconds, 1e-12);
  EXPECT_NEAR(seconds["forward pass"], 0.025 + 0.04, 1e-12);
  EXPECT_NEAR(seconds["backward pass"], 0.03, 1e-12);
  EXPECT_NEAR(seconds["wait for a micro-batch"], 0.005, 1e-12);
  EXPECT_NEAR(seconds["waiting for other ranks"], 0.01, 1e-12);
  EXPECT_NEAR(seconds["other"], 0.03 + 0.06, 1e-12);
  for (std::size_t i = 1; i < all.phases.size(); ++i) EXPECT_GE(all.phases[i - 1].seconds, all.phases[i].seconds);
  ASSERT_EQ(all.kernels.size(), 1U);
  EXPECT_NEAR(all.kernels[0].seconds, 0.015, 1e-12);

  const auto lines = profile_lines(all);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(says(lines[0], "2 steps in iterations 10 to 13,")) << lines[0];
  EXPECT_TRUE(says(lines[0], "100 ms each")) << lines[0];
  EXPECT_TRUE(says(lines[0], "forward pass 32.5 %")) << lines[0];
  EXPECT_TRUE(says(lines[1], "product 7.5 %")) << lines[1];
}

TEST_F(ProfilerTest, AKernelInsideAnotherHasItsTimeAlone) {
  span(TraceKind::kernel, "inner", 20, 30);
  span(TraceKind::kernel, "outer", 10, 50);
  span(TraceKind::phase, "step", 0, 100);
  const auto kernels = summary().kernels;
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].name, "outer");
  EXPECT_NEAR(kernels[0].seconds, 0.03, 1e-12);
  EXPECT_NEAR(kernels[1].seconds, 0.01, 1e-12);
}

TEST_F(ProfilerTest, EventsThatDoNotFitAreCounted) {
  for (int i = 0; i < 100; ++i) span(TraceKind::kernel, "product", i, i + 1);
  EXPECT_EQ(dropped_events(trace_), 0);
  span(TraceKind::phase, "step", 0, 100, 10);
  EXPECT_EQ(dropped_events(trace_), 1);
  EXPECT_TRUE(summary().kernels.empty()) << "kernels of a step that is not known";
}

TEST_F(ProfilerTest, ATrackWithoutStepsHasNoLines) {
  span(TraceKind::kernel, "product", 20, 30);
  EXPECT_TRUE(profile_lines(summary()).empty());
}

TEST_F(ProfilerTest, TheTraceIsOfChromesFormat) {
  span(TraceKind::communication, "all_reduce", 2, 5);
  trace_.add({.begin = 6 * ms, .name = "activations", .value = 77, .kind = TraceKind::counter});
  span(TraceKind::phase, "a \"quoted\" name", 1, 9);
  for (const bool communication : {false, true}) {
    const auto all = nlohmann::json::parse(trace_json(trace_, 3, "rank 3: tp 1", communication));
    const auto& events = all.at("traceEvents");
    ASSERT_EQ(events.size(), 5U);
    EXPECT_EQ(events[0].at("ph"), "M");
    EXPECT_EQ(events[0].at("args").at("name"), "rank 3: tp 1");
    EXPECT_EQ(events[1].at("name"), "thread_name");
    EXPECT_EQ(events[2].at("ph"), "X");
    EXPECT_EQ(events[2].at("ts"), 2000.0);
    EXPECT_EQ(events[2].at("dur"), 3000.0);
    EXPECT_EQ(events[2].at("pid"), 3);
    EXPECT_EQ(events[2].count("args"), communication ? 1U : 0U);
    EXPECT_EQ(events[3].at("ph"), "C");
    EXPECT_EQ(events[3].at("args").at("bytes"), 77);
    EXPECT_EQ(events[4].at("name"), "a \"quoted\" name");
    EXPECT_EQ(all.at("otherData").at("dropped_events"), 0);
  }
}

}  // namespace
}  // namespace tessera::training
