// The pipeline by itself: all stages in this process, a thread each, with chunks whose values are known exactly,
// batches that are known, and a channel of mailboxes. Everything a stage does is recorded.
#include "framework/training/step/pipeline.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <queue>
#include <set>
#include <thread>

#include "framework/options/choose.h"
#include "tests/story.h"
#include "tests/training/fake_pipeline.h"

namespace tessera::training {
namespace {

TEST(Pipeline, OneForwardOneBackwardIsDoneInTheRecordedOrder) {
  Stages stages({3, 1, 4, 0});
  stages.train();
  EXPECT_EQ(told(stages[0].record), "f0a f1a f2a B0a f3a B1a B2a B3a");
  EXPECT_EQ(told(stages[1].record), "f0a f1a B0a f2a B1a f3a B2a B3a");
  EXPECT_EQ(told(stages[2].record), "f0a B0a f1a B1a f2a B2a f3a B3a");
}

TEST(Pipeline, TheInterleavedScheduleIsDoneInTheRecordedOrder) {
  Stages stages({2, 2, 4, 0});
  stages.train();
  EXPECT_EQ(told(stages[0].record), "f0a f1a f0b f1b f2a B0b f3a B1b f2b B0a f3b B1a B2b B3b B2a B3a");
  EXPECT_EQ(told(stages[1].record), "f0a f1a f0b B0b f1b B1b f2a B0a f3a B1a f2b B2b f3b B3b B2a B3a");
}

/// The chunks at the beginning that train nothing get no gradients and run no backward pass; the others have the
/// gradients that they have without frozen chunks.
TEST(Pipeline, NoGradientIsSentToChunksBelowTheFirstThatTrains) {
  for (const parallel::PipelineShape shape :
       {parallel::PipelineShape{3, 1, 4, 0}, parallel::PipelineShape{2, 2, 4, 0}}) {
    Stages all(shape);
    all.train();
    for (std::int64_t frozen = 1; frozen < shape.stages * shape.chunks; ++frozen) {
      Stages stages(shape, {}, frozen);
      stages.train();
      EXPECT_TRUE(stages.all_messages_taken());
      std::int64_t sent = 0, backward = 0;
      for (std::int64_t p = 0; p < shape.stages; ++p) {
        auto& stage = stages[p];
        sent += static_cast<std::int64_t>(stage.channel.record.size());
        backward +=
            std::count_if(stage.record.begin(), stage.record.end(), [](const auto& one) { return one[0] == 'B'; });
        for (std::int64_t c = 0; c < shape.chunks; ++c) {
          const auto i = static_cast<std::size_t>(c);
          const bool trained = c * shape.stages + p >= frozen;
          EXPECT_EQ(stage.chunks[i]->gradient(), trained ? all[p].chunks[i]->gradient() : 0);
        }
      }
      const auto chunks = shape.stages * shape.chunks;
      EXPECT_EQ(sent, shape.micro_batches * (chunks - 1 + chunks - 1 - frozen));  // values, then gradients
      EXPECT_EQ(backward, shape.micro_batches * (chunks - frozen));
    }
  }
}

TEST(Pipeline, MessagesAreSentInTheOrderOfThePassesAndTaggedByMicroBatchChunkAndDirection) {
  Stages stages({2, 2, 2, 0});
  stages.train();
  // A tag is 2 (micro-batch * chunks + chunk of the receiver), plus 1 for gradients.
  EXPECT_EQ(told(stages[0].channel.record), "send 0 to 1 send 4 to 1 send 2 to 1 send 6 to 1 send 1 to 1 send 5 to 1");
  EXPECT_EQ(told(stages[1].channel.record), "send 2 to 0 send 6 to 0 send 3 to 0 send 7 to 0 send 1 to 0 send 5 to 0");
}

TEST(Pipeline, TheListenerLearnsOfEachPassAndWhichIsTheLastThroughItsChunk) {
  Stages stages({2, 2, 2, 0});
  stages.train();
  EXPECT_EQ(told(stages[1].listener.record), "step pass leaf 1 end last leaf 1 end pass leaf 0 end last leaf 0 end");
}

/// The schedule's actions as a stage records them.
Record scheduled(const parallel::PipelineSchedule& schedule, std::int64_t stage) {
  Record record;
  for (const auto& action : schedule.of_stage(stage))
    record.push_back(name_of(action.kind == parallel::PipelineAction::Kind::forward, action.micro_batch, action.chunk));
  return record;
}

double sum_of_tokens(std::int64_t micro_batches) {
  double sum = 0;
  for (std::int64_t m = 0; m < micro_batches; ++m)
    for (std::size_t i = 0; i < tokens_of_batch; ++i) sum += token(m, i) * mask_of(i);
  return sum;
}

std::vector<parallel::PipelineShape> shapes() {
  std::vector<parallel::PipelineShape> all;
  for (const std::int64_t stages : {1, 2, 3, 4})
    for (const std::int64_t chunks : {1, 2, 3})
      for (const std::int64_t micro_batches : {1, 2, 3, 4, 5, 8, 12})
        for (const std::int64_t group : {0, 3, 4, 12}) {
          const parallel::PipelineShape shape{stages, chunks, micro_batches, group};
          if ((stages > 1 || chunks == 1) && parallel::mistakes_of_schedule(shape).empty()) all.push_back(shape);
        }
  return all;
}

std::string name_of(const parallel::PipelineShape& shape) {
  return text(shape.stages, " stages, ", shape.chunks, " chunks, ", shape.micro_batches, " micro-batches, group ",
              shape.group);
}

TEST(Pipeline, EveryShapeFollowsItsScheduleAndFindsTheExactGradients) {
  for (const auto& shape : shapes()) {
    Stages stages(shape);
    for (const int step : {1, 2}) {  // the second in memory that the first used
      for (std::int64_t p = 0; p < shape.stages; ++p) stages[p].record.clear();
      stages.train(0.5);
      const auto schedule = parallel::PipelineSchedule::training(shape);
      const auto tokens = sum_of_tokens(shape.micro_batches);
      const auto all = factors_before(shape.stages * shape.chunks);
      for (std::int64_t p = 0; p < shape.stages; ++p) {
        auto& stage = stages[p];
        ASSERT_EQ(told(stage.record), told(scheduled(schedule, p))) << name_of(shape);
        ASSERT_EQ(stage.totals.loss.sum, p + 1 == shape.stages ? tokens * all : 0) << name_of(shape);
        ASSERT_EQ(stage.totals.data_wait_seconds, 0.25 * static_cast<double>(shape.micro_batches)) << name_of(shape);
        for (std::int64_t m = 0; m < shape.micro_batches; ++m)
          ASSERT_EQ(stage.batches.times[m], step) << name_of(shape);
        for (std::int64_t c = 0; c < shape.chunks; ++c)
          ASSERT_EQ(stage.chunks[static_cast<std::size_t>(c)]->gradient(),
                    step * 0.5 * tokens * all / factor(c * shape.stages + p))
              << name_of(shape);
        ASSERT_EQ(stage.pipeline->arena().in_use(), 0U) << name_of(shape);
      }
      ASSERT_TRUE(stages.all_messages_taken()) << name_of(shape);
    }
  }
}

TEST(Pipeline, AnEvaluationGoesForwardOnlyWithoutDropoutOrGradients) {
  for (const auto& shape : shapes()) {
    Stages stages(shape, {.seed = 7});
    stages.evaluate();
    const auto schedule = parallel::PipelineSchedule::forward_only(shape);
    for (std::int64_t p = 0; p < shape.stages; ++p) {
      auto& stage = stages[p];
      ASSERT_EQ(told(stage.record), told(scheduled(schedule, p))) << name_of(shape);
      ASSERT_TRUE(stage.listener.record.empty());
      for (const auto& chunk : stage.chunks) {
        ASSERT_EQ(chunk->gradient(), 0);
        for (const auto& mode : chunk->modes) ASSERT_FALSE(mode.training) << name_of(shape);
      }
      ASSERT_EQ(stage.pipeline->arena().in_use(), 0U) << name_of(shape);
    }
    ASSERT_EQ(stages[shape.stages - 1].totals.loss.count, 4.0 * static_cast<double>(shape.micro_batches));
    ASSERT_TRUE(stages.all_messages_taken()) << name_of(shape);
  }
}

TEST(Pipeline, MicroBatchesMayDifferInLength) {
  for (const auto& shape : shapes()) {
    double tokens = 0;
    for (std::int64_t m = 0; m < shape.micro_batches; ++m)
      for (std::size_t i = 0; i < static_cast<std::size_t>(samples * length_of(m)); ++i)
        tokens += token(m, i) * mask_of(i);
    Stages stages(shape);
    stages.vary();
    const auto all = factors_before(shape.stages * shape.chunks);
    for (const int step : {1, 2}) {
      stages.train(0.5);
      for (std::int64_t p = 0; p < shape.stages; ++p) {
        auto& stage = stages[p];
        ASSERT_EQ(stage.totals.loss.sum, p + 1 == shape.stages ? tokens * all : 0) << name_of(shape);
        for (std::int64_t c = 0; c < shape.chunks; ++c)
          ASSERT_EQ(stage.chunks[static_cast<std::size_t>(c)]->gradient(),
                    step * 0.5 * tokens * all / factor(c * shape.stages + p))
              << name_of(shape);
        ASSERT_EQ(stage.pipeline->arena().in_use(), 0U) << name_of(shape);
      }
      stages.evaluate();
      ASSERT_EQ(stages[shape.stages - 1].totals.loss.sum, tokens * all) << name_of(shape);
      ASSERT_TRUE(stages.all_messages_taken()) << name_of(shape);
    }
  }
}

TEST(Pipeline, WhereLengthsVaryTheyAreSentBeforeTheValuesOfAForwardPass) {
  Stages stages({2, 1, 2, 0});
  stages.vary();
  stages.train();
  EXPECT_EQ(told(stages[0].channel.record), "send 0 to 1 send 0 to 1 send 2 to 1 send 2 to 1");
  EXPECT_EQ(told(stages[1].channel.record), "send 1 to 0 send 3 to 0");
}

TEST(Pipeline, StagesThatReadOtherLengthsAreRefused) {
  Stages stages({2, 1, 1, 0});
  stages.vary();
  stages[1].batches.lengths = Lengths::known;
  stages[1].batches.longer = 1;
  try {
    stages.evaluate();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "training: micro-batch 0 has samples of 2 tokens on stage 1 and of 1 on the stage before; are their data "
              "files the same on all hosts?");
  }
}

TEST(Pipeline, ProgressOfAnEvaluationCountsMicroBatches) {
  Stages stages({1, 1, 3, 0});
  std::vector<std::int64_t> told_of;
  stages[0].pipeline->evaluate(stages[0].batches, 3, [&](std::int64_t done) { told_of.push_back(done); });
  EXPECT_EQ(told_of, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Pipeline, TheMeanLossIsOverTokensMicroBatchesAndReplicas) {
  const auto mean = options::choose(model::objectives(), "{}").make();
  Stages stages({1, 1, 3, 0}, {.seed = 7, .objective = mean.get(), .replicas = 5});
  stages.train(60);
  for (const auto seed : stages[0].chunks[0]->seeds_of_tokens)
    EXPECT_EQ(seed, 60.0 / (4 * 3 * 5));  // 4 of 6 tokens count
  for (const auto& mode : stages[0].chunks[0]->modes) {
    EXPECT_TRUE(mode.training);
    EXPECT_EQ(mode.seed, 7U);
  }
}

TEST(Pipeline, AnEvaluationBetweenStepsChangesNoGradient) {
  Stages stages({2, 2, 4, 0}), plain({2, 2, 4, 0});
  stages.train();
  stages.evaluate();
  stages.train();
  plain.train();
  plain.train();
  for (std::int64_t p = 0; p < 2; ++p)
    for (std::size_t c = 0; c < 2; ++c) EXPECT_EQ(stages[p].chunks[c]->gradient(), plain[p].chunks[c]->gradient());
}

TEST(Pipeline, AStageWithoutAllItsChunksIsRefused) {
  Mailboxes mail;
  FakeChannel channel(mail, 0, 1);
  FakeListener listener;
  kernels::Threads threads(1);
  const parallel::LayerPlan plan(2);
  EXPECT_THROW(Pipeline({.chunks = {}, .plan = plan, .channel = channel, .listener = listener, .threads = threads}, {}),
               BugError);
}

}  // namespace
}  // namespace tessera::training
