#include "framework/schedule/optimizer_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "framework/schedule/batch_plan.h"

namespace tessera::schedule {
namespace {

OptimizerSchedule schedule(double highest, std::int64_t samples, const std::string& style = "linear") {
  LearningRateOptions rate;
  rate.learning_rate = highest;
  WeightDecayOptions decay;
  decay.weight_decay = 0.1;
  const RunLength run{samples, 10};
  const auto maker = decay_maker(decays(), run);
  return {LearningRate(rate, maker(style), run), WeightDecay(decay, run), style, maker};
}

std::string refusal(OptimizerSchedule& into, const ScheduleState& saved) {
  try {
    into.restore(saved, {});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(OptimizerSchedule, StandsStillUnlessAStepCounts) {
  auto s = schedule(1, 100);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 1);
  s.advance(10);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 0.9);
  s.advance(0);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 0.9);
  EXPECT_DOUBLE_EQ(s.learning_rate(10, 5), 9.5);  // other ends, same way
}

TEST(OptimizerSchedule, GoesOnWhereItWasSaved) {
  auto first = schedule(1, 100);
  first.advance(30);
  auto second = schedule(1, 100);
  second.restore(first.state(), {});
  EXPECT_EQ(second.learning_rate(), first.learning_rate());
  EXPECT_EQ(second.samples(), 30);
}

TEST(OptimizerSchedule, ADifferenceIsRefusedWithBothValuesUnlessOneSideCounts) {
  auto first = schedule(1, 100, "cosine");
  first.advance(50);
  auto second = schedule(2, 100);
  const auto why = refusal(second, first.state());
  EXPECT_EQ(why,
            "the recipe's schedule is not that of the checkpoint:\n"
            "  optimizer_config.learning_rate: the learning rate is 2 in the recipe and 1 in the checkpoint\n"
            "  optimizer_config.lr_decay_style: the decay style is linear in the recipe and cosine in the checkpoint\n"
            "to resume with the checkpoint's schedule, give --set "
            "optimizer_config.use_checkpoint_opt_param_scheduler=true\n"
            "to resume with the recipe's, give --set optimizer_config.override_opt_param_scheduler=true");
  auto ours = schedule(2, 100);
  ours.restore(first.state(), {.override_opt_param_scheduler = true});
  ours.advance(25);
  EXPECT_DOUBLE_EQ(ours.learning_rate(), 0.5);  // a line from 2
  auto theirs = schedule(2, 100);
  theirs.restore(first.state(), {.use_checkpoint_opt_param_scheduler = true});
  theirs.advance(25);
  EXPECT_NEAR(theirs.learning_rate(), 0.5 * (1 + std::cos(0.75 * 3.14159265358979)), 1e-12);
}

TEST(OptimizerSchedule, EveryDifferenceNamesItsKeyInTheUnitOfTheRecipe) {
  const auto made = [](std::int64_t steps, double warmup, double weight_decay, const ScheduleKeys& keys) {
    LearningRateOptions rate;
    rate.lr_warmup_fraction = warmup;
    rate.min_lr = warmup / 1000;
    WeightDecayOptions decay;
    decay.weight_decay_incr_style = WeightDecayStyle::linear;
    decay.start_weight_decay = 0;
    decay.end_weight_decay = weight_decay;
    const RunLength run{steps * 4, 4};
    const auto maker = decay_maker(decays(), run);
    return OptimizerSchedule(LearningRate(rate, maker("linear"), run), WeightDecay(decay, run), "linear", maker, keys);
  };
  const ScheduleKeys steps{"optimizer_config.lr_warmup_fraction",
                           "training_config.training_iters",
                           "training_config.training_iters",
                           "step",
                           4,
                           true};
  auto resumed = made(6, 0.2, 0.1, steps);  // 0.2 * 24 is 4.800000000000001, 0.3 * 16 is 4.8: no difference
  const auto why = refusal(resumed, made(4, 0.3, 0.2, steps).state());
  EXPECT_EQ(
      why.substr(0, why.find("\nto resume")),
      "the recipe's schedule is not that of the checkpoint:\n"
      "  optimizer_config.min_lr: the minimum learning rate is 0.0002 in the recipe and 0.0003 in the checkpoint\n"
      "  training_config.training_iters: the decay of the learning rate ends after 6 steps in the recipe and after "
      "4 steps in the checkpoint\n"
      "  optimizer_config.end_weight_decay: the last weight decay is 0.1 in the recipe and 0.2 in the checkpoint\n"
      "  training_config.training_iters: the growth of weight decay ends after 6 steps in the recipe and after 4 "
      "steps in the checkpoint\n"
      "  (a step of this recipe has 4 samples)");
  const ScheduleKeys samples{"optimizer_config.lr_warmup_fraction",
                             "dataset_config.train_samples",
                             "dataset_config.train_samples",
                             "sample",
                             1,
                             true};
  auto in_samples = made(6, 0.2, 0.1, samples);
  const auto also = refusal(in_samples, made(4, 0.2, 0.1, samples).state());
  EXPECT_NE(
      also.find("dataset_config.train_samples: the decay of the learning rate ends after 24 samples in the recipe "
                "and after 16 samples in the checkpoint\n"),
      std::string::npos)
      << also;
  EXPECT_NE(
      also.find("dataset_config.train_samples: the warm-up, a fraction of the decay, ends after 4.8 samples in the "
                "recipe and after 3.2 samples"),
      std::string::npos)
      << also;
  auto longer = made(4, 0.5, 0.2, steps);
  const auto warmup = refusal(longer, made(4, 0.3, 0.2, steps).state());
  EXPECT_NE(
      warmup.find("optimizer_config.lr_warmup_fraction: the warm-up ends after 2 steps in the recipe and after 1.2 "
                  "steps in the checkpoint"),
      std::string::npos)
      << warmup;
}

/// A field of the saved state, its name in messages, and how it is given another value.
struct SavedField {
  std::string name;
  std::function<void(ScheduleState&)> change;
};

const std::vector<SavedField> saved_fields = {
    {"the learning rate is", [](auto& s) { s.max_lr = 0.5; }},
    {"the minimum learning rate is", [](auto& s) { s.min_lr = 0.25; }},
    {"the warm-up ends", [](auto& s) { s.lr_warmup_steps = 40; }},
    {"the decay of the learning rate ends", [](auto& s) { s.lr_decay_steps = 60; }},
    {"the decay style is", [](auto& s) { s.lr_decay_style = "cosine"; }},
    {"the first weight decay is", [](auto& s) { s.start_wd = 0.01; }},
    {"the last weight decay is", [](auto& s) { s.end_wd = 0.3; }},
    {"the growth of weight decay ends", [](auto& s) { s.wd_incr_steps = 60; }},
    {"the growth of weight decay is", [](auto& s) { s.wd_incr_style = "cosine"; }},
};

/// All of a state as text.
std::string words_of(const ScheduleState& s) {
  return text(s.max_lr, " ", s.min_lr, " ", s.lr_warmup_steps, " ", s.lr_decay_steps, " ", s.lr_decay_style, " ",
              s.num_steps, " ", s.start_wd, " ", s.end_wd, " ", s.wd_incr_steps, " ", s.wd_incr_style);
}

/// What a schedule does from where it stands: rates and weight decays of the next steps.
std::vector<double> course_of(OptimizerSchedule& s) {
  std::vector<double> course;
  for (int i = 0; i < 8; ++i) {
    s.advance(10);
    course.push_back(s.learning_rate());
    course.push_back(s.weight_decay());
  }
  return course;
}

OptimizerSchedule growing_decay() {
  LearningRateOptions rate;
  rate.learning_rate = 1;
  rate.lr_warmup_iters = 2;
  WeightDecayOptions decay;
  decay.start_weight_decay = 0.1;
  decay.end_weight_decay = 0.2;
  decay.weight_decay_incr_style = WeightDecayStyle::linear;
  const RunLength run{100, 10};
  const auto maker = decay_maker(decays(), run);
  return {LearningRate(rate, maker("linear"), run), WeightDecay(decay, run), "linear", maker};
}

TEST(OptimizerSchedule, EachFieldIsTakenFromTheSideThatCounts) {
  auto first = growing_decay();
  first.advance(30);
  const auto state = first.state();
  const auto ours = course_of(first);
  for (const auto& field : saved_fields) {
    auto saved = state;
    field.change(saved);
    auto neither = growing_decay();
    EXPECT_NE(refusal(neither, saved).find(field.name), std::string::npos) << field.name;
    auto recipe = growing_decay();
    recipe.restore(saved, {.override_opt_param_scheduler = true});
    EXPECT_EQ(words_of(recipe.state()), words_of(state)) << field.name;
    EXPECT_EQ(course_of(recipe), ours) << field.name;
    auto checkpoint = growing_decay();
    checkpoint.restore(saved, {.use_checkpoint_opt_param_scheduler = true});
    EXPECT_EQ(words_of(checkpoint.state()), words_of(saved)) << field.name;
    EXPECT_NE(course_of(checkpoint), ours) << field.name;
  }
}

TEST(OptimizerSchedule, AStyleThatIsNotRegisteredIsNamed) {
  auto first = schedule(1, 100).state();
  first.lr_decay_style = "sawtooth";
  auto second = schedule(1, 100);
  try {
    second.restore(first, {.use_checkpoint_opt_param_scheduler = true});
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no lr_decay_style 'sawtooth'"), std::string::npos) << error.what();
  }
}

TEST(BatchPlan, IsTheSameThroughoutUnlessItGrows) {
  const BatchPlan plan({}, {2, 8, 1});
  EXPECT_EQ(plan.at(0).micro_batches, 4);
  EXPECT_EQ(plan.at(1000).samples, 8);
  EXPECT_EQ(plan.steps_of(20), 2);
  EXPECT_FALSE(plan.grows());
}

TEST(BatchPlan, GrowsInEqualStridesOfSamples) {
  const BatchPlan plan({{{4, 4, 60}}, false}, {2, 16, 1});
  for (const auto& [consumed, samples] : {std::pair{0, 4}, {19, 4}, {20, 8}, {40, 12}, {59, 12}, {60, 16}, {900, 16}})
    EXPECT_EQ(plan.at(consumed).samples, samples) << consumed;
  EXPECT_EQ(plan.full().micro_batches, 8);
  EXPECT_EQ(plan.steps_of(320), 25);  // recorded from Megatron-LM
}

/// Megatron-LM's rules of a batch that grows (num_microbatches_calculator.py of core_v0.12.1), written for any numbers.
struct MegatronRamp {
  std::int64_t micro, ranks, first, increment, samples, global;
  bool decrease;

  bool refused() const {
    const bool counts = first > 0 && increment > 0 && samples >= 0 && global >= first;
    return !counts || (global - first) % increment != 0 || global == first || samples == 0;  // it divides by both
  }
  std::int64_t nominal(std::int64_t consumed) const {
    if (consumed > samples) return global;
    const double each = static_cast<double>(samples) / static_cast<double>((global - first) / increment);
    return first + static_cast<std::int64_t>(static_cast<double>(consumed) / each) * increment;
  }
  std::int64_t running(std::int64_t consumed) const {
    return decrease ? nominal(consumed) / (micro * ranks) * (micro * ranks) : nominal(consumed);
  }
  std::int64_t micro_batches(std::int64_t consumed) const { return running(consumed) / (micro * ranks); }
  /// Refused in its checks, or a step without a sample, after which it would stand for ever.
  bool impossible(std::int64_t consumed) const {
    return running(consumed) % (micro * ranks) != 0 || micro_batches(consumed) == 0;
  }
  std::int64_t steps_of(std::int64_t all) const {
    std::int64_t consumed = 0, steps = 0;
    for (; consumed <= samples && consumed <= all; ++steps) consumed += nominal(consumed);
    return consumed < all ? steps + (all - consumed) / global : steps;
  }
};

/// The whole run must be possible, or its first impossible step is told.
void expect_first_impossible_step(const BatchPlan& plan, const MegatronRamp& theirs, std::int64_t all,
                                  const std::string& where) {
  std::int64_t consumed = 0;
  while (consumed < all && !theirs.impossible(consumed)) consumed += theirs.running(consumed);
  const auto broken = plan.broken_step(all);
  ASSERT_EQ(broken.has_value(), consumed < all) << where;
  if (!broken) return;
  ASSERT_EQ(broken->message.rfind(
                text("after ", consumed, " samples the global batch is ", theirs.nominal(consumed), ","), 0),
            0U)
      << broken->message << where;
  ASSERT_EQ(broken->message.find("less than") != std::string::npos, theirs.micro_batches(consumed) == 0) << where;
}

TEST(BatchPlan, OfARampIsMegatronsWhateverTheNumbers) {
  std::mt19937 rng(5);
  const auto drawn = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(most - least + 1));
  };
  int refused = 0, small_begin = 0, possible = 0;
  for (int i = 0; i < 3000; ++i) {
    MegatronRamp theirs{drawn(1, 4), drawn(1, 4), drawn(0, 12), drawn(0, 6), drawn(0, 60), 0, drawn(0, 1) == 1};
    theirs.global = theirs.first + theirs.increment * drawn(0, 5) + (drawn(0, 9) == 0 ? drawn(-3, 3) : 0);
    const auto where =
        text(" micro ", theirs.micro, ", ranks ", theirs.ranks, ", ramp [", theirs.first, ", ", theirs.increment, ", ",
             theirs.samples, "] to ", theirs.global, theirs.decrease ? ", decreased" : "");
    const BatchRampOptions options{{{theirs.first, theirs.increment, theirs.samples}}, theirs.decrease};
    const BatchSizes sizes{theirs.micro, theirs.global, theirs.ranks};
    if (theirs.refused()) {
      ++refused;
      ASSERT_THROW(BatchPlan(options, sizes), ConfigError) << where;
      continue;
    }
    const BatchPlan plan(options, sizes);
    small_begin += theirs.first < theirs.micro * theirs.ranks;
    for (std::int64_t consumed = 0; consumed <= theirs.samples + 3; ++consumed) {
      const auto planned = plan.planned(consumed);
      ASSERT_EQ(planned.nominal, theirs.nominal(consumed)) << consumed << where;
      ASSERT_EQ(planned.samples, theirs.running(consumed)) << consumed << where;
      ASSERT_EQ(planned.micro_batches, theirs.micro_batches(consumed)) << consumed << where;
      if (theirs.impossible(consumed))
        ASSERT_THROW(plan.at(consumed), ConfigError) << consumed << where;
      else
        ASSERT_EQ(plan.at(consumed).samples, theirs.running(consumed)) << consumed << where;
    }
    const auto all = drawn(1, 200);
    ASSERT_EQ(plan.steps_of(all), theirs.steps_of(all)) << all << where;
    expect_first_impossible_step(plan, theirs, all, where);
    possible += !plan.broken_step(all).has_value();
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(small_begin, 300);
  EXPECT_GT(possible, 100);
}

TEST(BatchPlan, ABatchThatStaysIsPossibleThroughout) {
  EXPECT_FALSE(BatchPlan({}, {2, 8, 1}).broken_step(1000));
  EXPECT_FALSE(BatchPlan({std::nullopt, true}, {4, 10, 1}).broken_step(1000));
}

TEST(BatchPlan, WhatDoesNotDivideIsRefusedOrCutOff) {
  const BatchRampOptions uneven{{{4, 2, 60}}, false};
  EXPECT_THROW(BatchPlan(uneven, {4, 16, 1}).at(15), ConfigError);
  const auto cut = BatchPlan({{{4, 2, 60}}, true}, {4, 16, 1}).at(15);
  EXPECT_EQ(cut.nominal, 6);
  EXPECT_EQ(cut.samples, 4);
  EXPECT_THROW(BatchPlan({}, {4, 10, 1}), ConfigError);
  EXPECT_EQ(BatchPlan({std::nullopt, true}, {4, 10, 1}).at(0).samples, 8);
}

}  // namespace
}  // namespace tessera::schedule
