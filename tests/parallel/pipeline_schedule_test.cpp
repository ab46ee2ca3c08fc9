#include "framework/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

namespace tessera::parallel {
namespace {

using Kind = PipelineAction::Kind;

std::string told(const std::vector<PipelineAction>& actions, Kind kind) {
  std::string micro, chunk;
  for (const auto& a : actions)
    if (a.kind == kind) micro += text(a.micro_batch, " "), chunk += text(a.chunk, " ");
  return micro + "| " + chunk;
}

TEST(PipelineSchedule, OneStageGoesForwardAndBackwardInTurn) {
  EXPECT_EQ(PipelineSchedule::training({1, 1, 2, 0}).of_stage(0),
            (std::vector<PipelineAction>{
                {Kind::forward, 0, 0}, {Kind::backward, 0, 0}, {Kind::forward, 1, 0}, {Kind::backward, 1, 0}}));
}

TEST(PipelineSchedule, GroupsOfMicroBatchesTakeTurnsInTheChunks) {
  const auto schedule = PipelineSchedule::training({2, 2, 5, 3});  // the case in Megatron-LM's own documentation
  for (const auto stage : {0, 1}) {
    EXPECT_EQ(told(schedule.of_stage(stage), Kind::forward), "0 1 2 0 1 2 3 4 3 4 | 0 0 0 1 1 1 0 0 1 1 ");
    EXPECT_EQ(told(schedule.of_stage(stage), Kind::backward), "0 1 2 0 1 2 3 4 3 4 | 1 1 1 0 0 0 1 1 0 0 ");
  }
}

TEST(PipelineSchedule, IsDrawnOverTime) {
  EXPECT_EQ(drawing(PipelineSchedule::training({3, 1, 4, 0})),
            "stage 0 | f0 f1 f2 .  .  .  .  B0--- f3 B1--- .  B2--- .  B3---\n"
            "stage 1 | .  f0 f1 .  .  B0--- f2 B1--- f3 B2--- .  B3--- .  .\n"
            "stage 2 | .  .  f0 B0--- f1 B1--- f2 B2--- f3 B3--- .  .  .  .\n");
  const auto cut = drawing(PipelineSchedule::training({2, 2, 2, 0}), 20);
  EXPECT_EQ(cut, "stage 0 | f0a f1a f0b f1b .   ...\nstage 1 | .   f0a f1a f0b B0b-...\n");
}

TEST(PipelineSchedule, TheDrawingsOfThePageAreTheProgramsOwn) {
  std::ifstream file(DOCS_DIR "/parallelism.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const auto& shape : {PipelineShape{4, 1, 8, 0}, PipelineShape{2, 2, 4, 0}}) {
    std::istringstream lines(drawing(PipelineSchedule::training(shape)));
    for (std::string line; std::getline(lines, line);)
      EXPECT_NE(page.find(text("    ", line, "\n")), std::string::npos) << line;
  }
}

struct Counted {
  std::int64_t forwards_first = 0;  ///< before the first backward
};
Counted count(const std::vector<PipelineAction>& actions) {
  Counted c;
  while (c.forwards_first < static_cast<std::int64_t>(actions.size()) &&
         actions[static_cast<std::size_t>(c.forwards_first)].kind == Kind::forward)
    ++c.forwards_first;
  return c;
}

/// What one stage sends another, in order of sending, and what the other asks for, in order of asking.
std::string messages_are_in_order(const PipelineSchedule& schedule) {
  const auto& shape = schedule.shape();
  using Message = std::pair<std::int64_t, std::int64_t>;  // micro batch, chunk of the receiver
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Message>> sent[2], asked[2];
  for (std::int64_t p = 0; p < shape.stages; ++p)
    for (const auto& a : schedule.of_stage(p)) {
      const auto next = (p + 1) % shape.stages, previous = (p + shape.stages - 1) % shape.stages;
      const auto after = a.chunk + (p + 1 == shape.stages ? 1 : 0), before = a.chunk - (p == 0 ? 1 : 0);
      const int way = a.kind == Kind::forward ? 0 : 1;
      const bool sends = way == 0 ? after < shape.chunks : before >= 0;
      const bool asks = way == 0 ? before >= 0 : after < shape.chunks;
      if (sends) sent[way][{p, way == 0 ? next : previous}].push_back({a.micro_batch, way == 0 ? after : before});
      if (asks) asked[way][{way == 0 ? previous : next, p}].push_back({a.micro_batch, a.chunk});
    }
  return sent[0] == asked[0] && sent[1] == asked[1] ? "" : "messages overtake each other";
}

TEST(PipelineSchedule, EveryShapeWorksAndHoldsWhatItPromises) {
  int shapes = 0;
  for (const std::int64_t stages : {1, 2, 3, 4, 8})
    for (const std::int64_t chunks : {1, 2, 3, 5})
      for (const std::int64_t micro_batches : {1, 2, 3, 4, 5, 7, 8, 12, 13, 32})
        for (const std::int64_t group : {0, 2, 3, 4, 5, 8, 12}) {
          const PipelineShape shape{stages, chunks, micro_batches, group};
          if (!mistakes_of_schedule(shape).empty() || (stages == 1 && chunks > 1)) continue;
          const auto name = text(stages, " stages ", chunks, " chunks ", micro_batches, " micro batches ", group);
          const auto schedule = PipelineSchedule::training(shape);
          ++shapes;
          EXPECT_EQ(schedule.flaw(), "") << name;
          EXPECT_EQ(messages_are_in_order(schedule), "") << name;
          const auto forward_only = PipelineSchedule::forward_only(shape);
          EXPECT_EQ(forward_only.flaw(), "") << name;
          for (std::int64_t p = 0; p < stages; ++p) {
            if (chunks == 1) {
              EXPECT_EQ(schedule.most_in_flight(p), std::min(stages - p, micro_batches)) << name;
            } else {
              const auto size = group > 0 ? group : stages;
              const auto warm = std::min((stages - p - 1) * 2 + (chunks - 1) * size, micro_batches * chunks);
              const auto steady = warm < micro_batches * chunks ? 1 : 0;
              EXPECT_EQ(count(schedule.of_stage(p)).forwards_first, warm + steady) << name;
              EXPECT_EQ(schedule.most_in_flight(p), warm + steady) << name;
            }
            EXPECT_EQ(told(forward_only.of_stage(p), Kind::backward), "| ") << name;
          }
        }
  EXPECT_GT(shapes, 300);
}

TEST(PipelineSchedule, TheBubbleOfEqualStagesIsTheTheorys) {
  for (const std::int64_t stages : {1, 2, 4, 8})
    for (const std::int64_t chunks : {1, 2, 4})
      for (const std::int64_t rounds : {1, 2, 5}) {
        const PipelineShape shape{stages, stages == 1 ? 1 : chunks, rounds * stages, 0};
        EXPECT_NEAR(simulate(PipelineSchedule::training(shape)).bubble(), ideal_bubble(shape), 1e-12)
            << stages << " " << chunks << " " << rounds;
      }
}

TEST(PipelineSchedule, ABubbleIsAFractionOfTheTime) {
  EXPECT_DOUBLE_EQ(ideal_bubble({2, 1, 4, 0}), 0.2);
  EXPECT_DOUBLE_EQ(ideal_bubble({4, 2, 8, 0}), 3.0 / 19);
  EXPECT_DOUBLE_EQ(ideal_bubble({8, 1, 1, 0}), 0.875);
  EXPECT_LT(simulate(PipelineSchedule::training({2, 1, 4, 0}), {{1}, {1000}}).bubble(), 0.51);
  EXPECT_EQ(bubble_line(0.56389, {2, 1, 4, 0}),
            "pipeline bubble: 56.4 % of the stages' time measured; 20.0 % = (p-1)/(m+p-1) for equal stages that each "
            "have a core");
  EXPECT_NE(bubble_line(0, {2, 2, 4, 0}).find("11.1 % = (p-1)/(v m+p-1)"), std::string::npos);
}

TEST(PipelineSchedule, UnequalStagesWaitForTheSlowest) {
  const auto even = simulate(PipelineSchedule::training({2, 1, 4, 0}), {{1}, {1}});
  const auto uneven = simulate(PipelineSchedule::training({2, 1, 4, 0}), {{1}, {3}});
  EXPECT_EQ(even.end, 15);
  EXPECT_EQ(uneven.end, 1 + 4 * 9 + 2);
  EXPECT_EQ(uneven.busy, 4 * 3 + 4 * 9);
  EXPECT_GT(uneven.bubble(), even.bubble());
}

TEST(PipelineSchedule, GroupsThatLeaveTooFewMicroBatchesAreRefused) {
  const auto wrong = [](PipelineShape shape) {
    const auto all = mistakes_of_schedule(shape);
    return all.empty() ? std::string() : all[0].message;
  };
  EXPECT_EQ(wrong({4, 1, 3, 0}), "");  // one chunk: any number
  EXPECT_EQ(wrong({4, 2, 8, 0}), "");
  EXPECT_EQ(wrong({4, 2, 9, 5}), "");
  EXPECT_EQ(wrong({4, 2, 3, 0}),
            "a step has 3 micro batches, fewer than the 4 that pass through a chunk before the next "
            "chunk's turn");
  EXPECT_EQ(wrong({4, 2, 6, 0}),
            "a step's 6 micro batches in groups of 4 leave a last group of 2, fewer than the 4 "
            "stages");
  EXPECT_EQ(wrong({4, 2, 8, 3}), "microbatch_group_size_per_vp_stage is 3, fewer than the 4 stages");
  EXPECT_EQ(wrong({4, 2, 8, 9}),
            "a step has 8 micro batches, fewer than the 9 that pass through a chunk before the next "
            "chunk's turn");
  EXPECT_THROW(PipelineSchedule::training({4, 2, 6, 0}), ConfigError);
}

TEST(PipelineSchedule, AFlawIsFound) {
  const auto good = PipelineSchedule::training({2, 1, 2, 0});
  const auto changed = [&](std::size_t stage, const auto& change) {
    std::vector<std::vector<PipelineAction>> stages = {good.of_stage(0), good.of_stage(1)};
    change(stages[stage]);
    return PipelineSchedule(good.shape(), stages).flaw();
  };
  EXPECT_EQ(changed(0, [](auto&) {}), "");
  EXPECT_EQ(changed(0, [](auto& list) { list.pop_back(); }), "stage 0 has 3 actions of 4");
  EXPECT_EQ(changed(1, [](auto& list) { list[2] = list[0]; }),
            "stage 1 has the forward of micro batch 0 in chunk 0 twice");
  EXPECT_EQ(changed(1, [](auto& list) { list[2].chunk = 1; }),
            "stage 1 has a forward of micro batch 1 in chunk 1, which there is not");
  // Backward of micro batch 0 before forward of 1 on the first stage, and the other way round on the second.
  EXPECT_EQ(changed(0, [](auto& list) { std::rotate(list.begin() + 1, list.begin() + 2, list.begin() + 3); }), "");
  EXPECT_EQ(changed(1, [](auto& list) { std::swap(list[0], list[1]); }),
            "stage 0 waits for ever before backward of micro batch 0 in chunk 0");
}

}  // namespace
}  // namespace tessera::parallel
