// The training loop as recipes change it: loss scales and skipped steps, samples passed over, growing batches, passes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/files.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

class TrainingLoop : public InOwnFolder {
 protected:
  TrainingLoop() {
    indexed::IndexedDatasetBuilder data("data", indexed::TokenType::uint16);
    for (std::int32_t i = 0; i < 60; ++i) {
      std::vector<std::int32_t> document;
      for (std::int32_t k = 0; k < 9 + i % 17; ++k) document.push_back((k * k + i) % 63);
      document.push_back(63);
      data.add_sequence(document);
      data.end_document();
    }
    data.finish();
    write("run.yaml",
          "training_config: {training_iters: 10, log_interval: 1, eval_interval: 100, num_threads: 1}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: cosine}\n"
          "dataset_config: {data_path: data, split: \"90,5,5\", batch_size: 2}\n");
  }

  /// Train into `folder` and return what the console showed.
  static std::string run(const std::string& folder, const Lines& sets, const training::LossScaler* scaler = nullptr) {
    auto setup = build(read_recipe("run.yaml", sets + Lines{t + "output_dir=" + folder}, Registries{}));
    if (scaler) setup.optimization.loss_scaler = *scaler;
    testing::internal::CaptureStdout();
    training::train(std::move(setup), training::StopSignal{});
    return testing::internal::GetCapturedStdout();
  }

  /// Why training into "run" is refused.
  static std::string refused(const Lines& sets) {
    try {
      run("run", sets);
    } catch (const ConfigError& error) {
      testing::internal::GetCapturedStdout();
      return error.what();
    }
    return "taken";
  }

  static std::vector<nlohmann::json> metrics(const std::string& folder) {
    std::ifstream file(folder + "/metrics.jsonl");
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  static std::vector<double> column(const std::string& folder, const char* key) {
    std::vector<double> out;
    for (const auto& row : metrics(folder)) out.push_back(row.at(key).is_null() ? -1 : row.at(key).get<double>());
    return out;
  }

  /// The tensors of the newest checkpoint.
  static std::string weights(const std::string& folder) {
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(newest(folder)))
      if (entry.path().extension() == ".safetensors") all += read_file(entry.path());
    return all;
  }

  static std::filesystem::path newest(const std::string& folder) {
    return checkpoint::list_checkpoints(folder + "/checkpoints", "network").front().folder;
  }
};

TEST_F(TrainingLoop, WithoutFormatsOfOtherProgramsARunThatSavesInOneIsRefusedBeforeItBegins) {
  const auto why = story_of([] {
    build(read_recipe("run.yaml", {t + "ckpt_format=torch", t + "output_dir=run"}, Registries{}));
  });
  EXPECT_TRUE(says(why, "checkpoints of format 'torch': this program has no formats of other programs")) << why;
  EXPECT_FALSE(std::filesystem::exists("run"));
}

TEST_F(TrainingLoop, AConstantScaleThatIsAPowerOfTwoChangesNoBit) {
  run("plain", {});
  const auto console = run("scaled", {t + "loss_scale=1024"});
  EXPECT_TRUE(weights("plain") == weights("scaled"));
  EXPECT_EQ(column("plain", "grad_norm"), column("scaled", "grad_norm"));
  EXPECT_NE(console.find("| loss scale: 1024.0 |"), std::string::npos) << console;
}

const training::LossScaler& too_large() {  // overflows in fp32 until it has fallen twice
  static const training::LossScaler scaler = [] {
    training::LossScaleOptions options;
    options.loss_scale_value = 2e38;
    options.loss_scale_factor = 1048576;
    options.loss_scale_window = 4;
    options.hysteresis = 2;
    return training::LossScaler(options, true);
  }();
  return scaler;
}

TEST_F(TrainingLoop, AnOverflowSkipsTheStepAndTheScheduleWaits) {
  const auto console = run("run", {o + "lr_warmup_iters=2", m + "init_method_std=3"}, &too_large());
  const auto rows = metrics("run");
  ASSERT_EQ(rows.size(), 10U);
  std::int64_t updates = 0;
  auto plain = build(read_recipe("run.yaml", {o + "lr_warmup_iters=2"}, Registries{}));
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("learning_rate").get<double>(), plain.optimization.schedule->learning_rate()) << row.dump();
    if (row.at("skipped")) continue;
    plain.optimization.schedule->advance(2);
    ++updates;
  }
  EXPECT_TRUE(rows[0].at("skipped") && rows[1].at("skipped")) << rows[0].dump();
  EXPECT_FALSE(rows[2].at("skipped")) << rows[2].dump();
  EXPECT_LT(updates, 9);
  EXPECT_EQ(rows[9].at("consumed_samples"), 20);
  EXPECT_NE(console.find("number of skipped iterations:   1 |"), std::string::npos) << console;
  const auto progress = nlohmann::json::parse(read_file(newest("run") / "blobs/progress.json"));
  EXPECT_EQ(progress.at("updates"), updates);
  EXPECT_EQ(progress.at("schedule").at("num_steps"), 2 * updates);
}

TEST_F(TrainingLoop, AnInfiniteGradientNormStopsTheRunBeforeItReachesAWeight) {
  run("run", {t + "exit_interval=3"});
  const auto before = weights("run");
  // A constant scale of the loss, so large that gradients overflow while the loss itself stays finite.
  const auto story = story_of([] { run("run", {t + "loss_scale=1.7e38", t + "calculate_per_token_loss=true"}); });
  testing::internal::GetCapturedStdout();
  EXPECT_TRUE(says(story, "training: iteration 4: loss ") && says(story, ", gradient norm ")) << story;
  EXPECT_FALSE(says(story, "loss inf") || says(story, "loss nan") || says(story, "loss -nan")) << story;
  EXPECT_TRUE(says(story, "the gradient of ") && says(story, "No weight was changed")) << story;
  EXPECT_EQ(metrics("run").size(), 3U);
  EXPECT_TRUE(weights("run") == before);
}

TEST_F(TrainingLoop, EvaluationHasNoDropoutThoughTrainingHas) {
  // At rate 0 the weights stay as they were drawn, so that only dropout can tell the losses of these runs apart.
  const Lines fixed = {o + "learning_rate=0", t + "eval_interval=2", t + "eval_iters=2", t + "training_iters=4"};
  run("without", fixed + Lines{m + "hidden_dropout_rate=0", m + "attention_dropout_rate=0"});
  run("with", fixed + Lines{m + "hidden_dropout_rate=0.5", m + "attention_dropout_rate=0.5"});
  EXPECT_NE(column("with", "loss"), column("without", "loss"));
  const auto with = metrics("with"), without = metrics("without");
  int evaluations = 0;
  for (std::size_t i = 0; i < with.size(); ++i)
    for (const auto* set : {"validation_loss", "final_validation_loss", "test_loss"}) {
      ASSERT_EQ(with[i].contains(set), without[i].contains(set)) << set;
      if (!with[i].contains(set)) continue;
      EXPECT_EQ(with[i].at(set), without[i].at(set)) << set << " after iteration " << i + 1;
      ++evaluations;
    }
  EXPECT_EQ(evaluations, 4);  // after 2 and 4 steps, and both sets at the end
}

TEST_F(TrainingLoop, ARunWithSkippedStepsGoesOnToTheBit) {
  const Lines recipe = {o + "lr_warmup_iters=2", m + "init_method_std=3", o + "weight_decay_incr_style=linear",
                        o + "start_weight_decay=0", o + "end_weight_decay=0.5"};
  run("straight", recipe, &too_large());
  for (const auto* stop : {"1", "2", "3", "5"}) {
    const std::string folder = text("stopped_at_", stop);
    run(folder, recipe + Lines{t + "exit_interval=" + stop}, &too_large());
    EXPECT_EQ(metrics(folder).size(), std::stoul(stop));
    run(folder, recipe, &too_large());
    EXPECT_TRUE(weights(folder) == weights("straight")) << stop;
    EXPECT_EQ(column(folder, "loss_scale"), column("straight", "loss_scale")) << stop;
    EXPECT_EQ(column(folder, "learning_rate"), column("straight", "learning_rate")) << stop;
  }
}

TEST_F(TrainingLoop, EveryOptimizerGoesOnToTheBitOnAnyNumberOfThreads) {
  std::set<std::string> all;
  for (const auto* type : {"adam_l2", "adamw", "lion", "muon", "sgd"}) {
    const Lines recipe = {text(o, "optimizer_type=", type), o + "decoupled_lr=3e-3",
                          o + "param_rules=[{params: \"*.mlp.*\", lr_mult: 0.5}]"};
    const std::string folder = text("stopped_", type), straight = text("straight_", type);
    run(straight, recipe + Lines{t + "num_threads=2"});
    run(folder, recipe + Lines{t + "exit_interval=4"});
    run(folder, recipe);
    EXPECT_TRUE(weights(folder) == weights(straight)) << type;
    EXPECT_TRUE(all.insert(weights(straight)).second) << type << " learns as another does";
  }
}

TEST_F(TrainingLoop, SamplesOfNamedStepsArePassedOver) {
  const auto console = run("run", {t + "iterations_to_skip=[2, 3]"});
  const auto rows = metrics("run");
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows[2].at("iteration"), 5);
  EXPECT_EQ(rows[2].at("consumed_samples"), 10);
  EXPECT_NE(console.find("consumed samples:           10 | skipped samples:            4 | elapsed"), std::string::npos)
      << console;
  run("plain", {});
  EXPECT_EQ(rows[2].at("learning_rate"), metrics("plain")[2].at("learning_rate"));  // the schedule waits
}

TEST_F(TrainingLoop, EveryTokenCountsTheSameWhenAsked) {
  const Lines masked = {d + "tokenizer_type=NullTokenizer", d + "vocab_size=63", d + "eod_mask_loss=true",
                        t + "training_iters=4"};
  run("one", masked + Lines{d + "batch_size=4"});
  run("two", masked + Lines{d + "micro_batch_num=2", t + "calculate_per_token_loss=true"});
  run("weighted", masked + Lines{d + "micro_batch_num=2"});
  const auto one = column("one", "grad_norm"), two = column("two", "grad_norm"),
             weighted = column("weighted", "grad_norm");
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;  // sums in fp32
  double farthest = 0;  // some steps have as many tokens in each micro-batch
  for (std::size_t i = 0; i < one.size(); ++i) farthest = std::max(farthest, std::abs(weighted[i] / one[i] - 1));
  EXPECT_GT(farthest, 1e-4);
}

TEST_F(TrainingLoop, ABatchGrowsAndTheRunGoesOnInTheMiddle) {
  const Lines growing = {t + "training_iters=0", d + "train_samples=40", d + "global_batch_size=8",
                         d + "rampup_batch_size=[2, 2, 18]"};
  run("straight", growing);
  EXPECT_EQ(column("straight", "consumed_samples"), (std::vector<double>{2, 4, 6, 10, 14, 20, 28, 36}));
  run("stopped", growing + Lines{t + "exit_interval=5"});
  run("stopped", growing);
  EXPECT_TRUE(weights("stopped") == weights("straight"));
  // The schedule advances by the samples of each step, not by those of a step of full size.
  const auto progress = nlohmann::json::parse(read_file(newest("straight") / "blobs/progress.json"));
  EXPECT_EQ(progress.at("schedule").at("num_steps"), 36);
}

TEST_F(TrainingLoop, AnEvaluationContinuesAfterTheSamplesOfThePreviousOne) {
  run("run", {t + "training_iters=4", t + "eval_interval=2", t + "eval_iters=3", o + "learning_rate=0"});
  const auto progress = nlohmann::json::parse(read_file(newest("run") / "blobs/progress.json"));
  EXPECT_EQ(progress.at("consumed_valid_samples"), 2 * 3 * 2);  // two evaluations of three steps of two samples
  const auto rows = metrics("run");
  EXPECT_NE(rows[1].at("validation_loss"), rows[3].at("validation_loss"));  // no weight changed
}

TEST_F(TrainingLoop, AResumedRunMayEvaluateLess) {
  run("run", {t + "eval_interval=1", t + "eval_iters=30", t + "exit_interval=8"});
  run("run", {t + "eval_interval=5", t + "eval_iters=1"});
  const auto rows = metrics("run");
  ASSERT_EQ(rows.size(), 10U);
  EXPECT_TRUE(rows[9].contains("validation_loss")) << rows[9].dump();
}

TEST_F(TrainingLoop, TheLastStepOfARampMayExceedTheSamplesOfTheRun) {
  indexed::IndexedDatasetBuilder data("exact", indexed::TokenType::uint16);
  for (std::int32_t i = 0; i < 10 * 8 + 1; ++i) data.add_sequence(std::vector<std::int32_t>{i % 63});
  data.end_document();
  data.finish();
  const auto setup =
      build(read_recipe("run.yaml",
                        {d + "data_path=exact", d + "split=100,0,0", d + "train_samples=10",
                         d + "rampup_batch_size=[4, 4, 100]", d + "global_batch_size=12", t + "training_iters=0"},
                        Registries{}));
  ASSERT_EQ(setup.data.splits->train->samples(), 10);
  EXPECT_EQ(setup.data.train_order->index(9), 9);
  EXPECT_EQ(setup.data.train_order->index(11), 1);
}

TEST_F(TrainingLoop, NoCheckpointIsSavedWhenTheBatchGrowsIfNoneIsAskedFor) {
  run("run", {d + "train_samples=24", d + "rampup_batch_size=[2, 2, 8]", d + "global_batch_size=4",
              t + "training_iters=0", t + "save_interval=0"});
  EXPECT_EQ(checkpoint::list_checkpoints("run/checkpoints", "network").size(), 1U);
}

TEST_F(TrainingLoop, PaddedExpertsHaveEqualLoadsForTheirBias) {
  const std::string e = "moe_config.";
  const Lines experts = {m + "num_experts=4",
                         m + "add_bias_linear=false",
                         e + "moe_router_topk=2",
                         e + "moe_router_score_function=sigmoid",
                         e + "moe_router_enable_expert_bias=true",
                         e + "moe_expert_capacity_factor=1.0",
                         e + "moe_router_load_balancing_type=none"};
  const auto has_bias = [&](const std::string& folder, const Lines& sets) {
    run(folder, experts + sets);
    const auto saved = checkpoint::Checkpoint::open(newest(folder));
    std::vector<float> bias(4);
    saved.read(checkpoint::whole("decoder.layers.0.mlp.router.expert_bias", {std::span(bias), {4}}));
    return std::ranges::any_of(bias, [](float value) { return value != 0; });
  };
  EXPECT_TRUE(has_bias("free", {}));
  EXPECT_FALSE(has_bias("padded", {e + "moe_pad_expert_input_to_capacity=true"}));
}

TEST_F(TrainingLoop, ANegativeNumberOfEvaluationStepsIsNoEvaluation) {
  run("run", {t + "training_iters=4", t + "eval_interval=2", t + "eval_iters=-1"});
  for (const auto& row : metrics("run")) EXPECT_FALSE(row.dump().find("validation") != std::string::npos) << row;
  const auto progress = nlohmann::json::parse(read_file(newest("run") / "blobs/progress.json"));
  EXPECT_EQ(progress.at("consumed_valid_samples"), 0);
}

TEST_F(TrainingLoop, ReadingAheadChangesNoBit) {
  // Ramp-up, skipped steps, evaluations in between, another order in each epoch, and a resume in the middle.
  const Lines recipe = {t + "training_iters=0",       d + "train_samples=140",
                        d + "global_batch_size=8",    t + "eval_interval=4",
                        t + "eval_iters=2",           t + "iterations_to_skip=[3, 4, 9]",
                        d + "dataloader_type=cyclic", d + "rampup_batch_size=[2, 2, 18]"};
  run("0", recipe + Lines{d + "num_workers=0"});
  ASSERT_GT(metrics("0").size(), 10U);
  for (const auto* workers : {"1", "2", "5"}) {
    run(workers, recipe + Lines{text(d, "num_workers=", workers), t + "exit_interval=7"});
    run(workers, recipe + Lines{text(d, "num_workers=", workers)});
    EXPECT_TRUE(weights(workers) == weights("0")) << workers;
    for (const auto* key : {"loss", "grad_norm", "consumed_samples"})
      EXPECT_EQ(column(workers, key), column("0", key)) << workers << " workers, " << key;
  }
}

TEST_F(TrainingLoop, AnErrorOfTheDataStopsTheStepThatReadsItWhoeverReads) {
  indexed::IndexedDatasetBuilder data("damaged", indexed::TokenType::uint16);
  for (std::int32_t i = 0; i < 60; ++i) {
    data.add_sequence(std::vector<std::int32_t>(10, i == 30 ? 999 : i));
    data.end_document();
  }
  data.finish();
  std::set<std::string> stories;
  for (const auto* workers : {"0", "3"}) {
    const std::string folder = text("with_", workers);
    const auto story = story_of([&] {
      run(folder, {d + "data_path=damaged", d + "split=\"1,0,0\"", t + "training_iters=40", t + "eval_interval=0",
                   text(d, "num_workers=", workers)});
    });
    testing::internal::GetCapturedStdout();
    EXPECT_TRUE(says(story, "damaged.bin: document 30, token ") && says(story, "holds token 999")) << story;
    ASSERT_TRUE(std::filesystem::exists(folder + "/metrics.jsonl")) << story;
    EXPECT_GT(metrics(folder).size(), 2U);  // otherwise nothing was read ahead of the error
    stories.insert(text(metrics(folder).size(), " steps, then: ", story));
  }
  EXPECT_EQ(stories.size(), 1U) << *stories.begin() << "\n" << *stories.rbegin();
}

TEST_F(TrainingLoop, PassesOverTheDataAreCounted) {
  const auto console =
      run("run", {t + "training_iters=0", t + "epochs=2", d + "global_batch_size=30", t + "log_style=core_ms",
                  o + "learning_rate=0", m + "hidden_dropout_rate=0", m + "attention_dropout_rate=0"});
  const auto losses = column("run", "loss");
  ASSERT_EQ(losses.size() % 2, 0U);
  const auto pass = losses.size() / 2;
  ASSERT_GT(pass, 1U);
  for (std::size_t i = 0; i < pass; ++i) EXPECT_EQ(losses[i], losses[i + pass]) << i;  // nothing is learnt at rate 0
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(console.find("Epoch: 1, Step: 1,"), std::string::npos) << console;
  EXPECT_EQ(console.find("Epoch: 2"), std::string::npos) << console;
}

TEST_F(TrainingLoop, AnotherScheduleThanTheCheckpointsIsRefusedUnlessOneCounts) {
  run("run", {t + "exit_interval=5"});
  const auto why = refused({o + "learning_rate=1e-3"});
  EXPECT_NE(why.find("optimizer_config.learning_rate: the learning rate is 0.001 in the recipe and 0.01"),
            std::string::npos)
      << why;
  run("run", {o + "learning_rate=1e-3", o + "override_opt_param_scheduler=true"});
  EXPECT_LT(column("run", "learning_rate")[5], 1e-3);
}

TEST_F(TrainingLoop, AnotherModelThanTheCheckpointsIsToldByItsOptions) {
  run("run", {t + "exit_interval=5"});
  const auto why = refused({m + "hidden_size=32", m + "num_attention_heads=2", o + "learning_rate=1"});
  EXPECT_NE(why.find("\n  model_config.hidden_size: 32 in the recipe, 16 in the checkpoint\n"
                     "  model_config.num_attention_heads: 2 in the recipe, 4 in the checkpoint"),
            std::string::npos)
      << why;
  const auto other = refused({o + "optimizer_type=sgd"});
  EXPECT_NE(other.find("optimizer_config.optimizer_type: sgd in the recipe, adamw in the checkpoint"),
            std::string::npos)
      << other;
}

TEST_F(TrainingLoop, AnotherLengthIsToldByItsKeyInSteps) {
  run("run", {t + "exit_interval=5"});
  EXPECT_NE(refused({t + "training_iters=17"})
                .find("training_config.training_iters: the decay of the learning rate ends after 17 "
                      "steps in the recipe and after "),
            std::string::npos);
  EXPECT_NE(refused({o + "lr_decay_iters=15"})
                .find("optimizer_config.lr_decay_iters: the decay of the learning rate "
                      "ends after 15 steps in the recipe and after "),
            std::string::npos);
  EXPECT_NE(refused({o + "lr_warmup_iters=3"}).find("optimizer_config.lr_warmup_iters: the warm-up ends after 3 steps"),
            std::string::npos);
}

TEST_F(TrainingLoop, ARunMayGoOnLongerWhereNoScheduleDependsOnItsLength) {
  run("run", {o + "lr_decay_style=constant", t + "training_iters=5"});
  run("run", {o + "lr_decay_style=constant"});
  run("straight", {o + "lr_decay_style=constant"});
  EXPECT_TRUE(weights("run") == weights("straight"));
}

TEST_F(TrainingLoop, MetricsTellHowTheExpertsAreLoaded) {
  const Lines experts = {m + "num_layers=3", m + "num_experts=4", m + "add_bias_linear=false",
                         "moe_config.moe_layer_freq=[0, 1, 1]", "moe_config.moe_expert_capacity_factor=0.5"};
  run("run", experts);
  run("even", experts + Lines{"moe_config.moe_router_topk=4", "moe_config.moe_expert_capacity_factor="});
  for (const auto& row : metrics("run")) {
    for (const char* key : {"least_loaded_expert", "least_load", "most_loaded_expert", "most_load", "dropped_share",
                            "smallest_router_gap"}) {
      ASSERT_EQ(row.at(key).size(), 3U) << key;
      EXPECT_TRUE(row.at(key)[0].is_null()) << key;  // a dense layer
    }
    for (const std::size_t layer : {1, 2}) {
      const auto least = row.at("least_load")[layer].get<double>(), most = row.at("most_load")[layer].get<double>();
      EXPECT_LE(least, 1);
      EXPECT_GE(most, 1);
      EXPECT_LE(most, 2);  // two choices among four experts
      // Half of an even load fits; with what all experts have beyond that, that much is dropped at least.
      EXPECT_GE(row.at("dropped_share")[layer].get<double>(), (most - 0.5) / 4);
      EXPECT_GT(row.at("smallest_router_gap")[layer].get<double>(), 0);
      EXPECT_NE(row.at("least_loaded_expert")[layer] == row.at("most_loaded_expert")[layer], least != most);
    }
  }
  for (const auto& row : metrics("even")) {  // every expert is chosen by every token
    EXPECT_EQ(row.at("least_load")[1], 1.0);
    EXPECT_EQ(row.at("most_load")[2], 1.0);
    EXPECT_EQ(row.at("dropped_share")[1], 0.0);
    EXPECT_TRUE(row.at("smallest_router_gap")[1].is_null());
  }
}

}  // namespace
}  // namespace tessera::recipe
