// A model with experts that begins with the weights of a dense one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

const Lines experts = {m + "num_experts=4", e + "moe_layer_freq=[0, 1]"},
            from_dense = {t + "load_checkpoint=dense/checkpoints", t + "training_iters=1", t + "output_dir=run"},
            upcycling = {e + "moe_use_upcycling=true"},
            still = {o + "learning_rate=1e-30", o + "min_lr=0", o + "weight_decay=0"};  // no weight changes

class Upcycling : public InOwnFolder {
 protected:
  Upcycling() {
    indexed::IndexedDatasetBuilder data("data", indexed::TokenType::uint16);
    for (std::int32_t i = 0; i < 60; ++i) {
      std::vector<std::int32_t> document;
      for (std::int32_t k = 0; k < 9 + i % 17; ++k) document.push_back((k * k + i) % 63);
      data.add_sequence(document);
      data.end_document();
    }
    data.finish();
    write(
        "run.yaml",
        "training_config: {training_iters: 4, log_interval: 1, eval_interval: 100, num_threads: 1, save_interval: 4}\n"
        "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64,\n"
        "  add_bias_linear: false, hidden_act: swiglu, ffn_hidden_size: 24, hidden_dropout_rate: 0,\n"
        "  attention_dropout_rate: 0, init_method_std: 0.2}\n"
        "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\n"
        "dataset_config: {data_path: data, split: \"90,5,5\", batch_size: 2}\n");
    run({t + "output_dir=dense"});
  }

  static std::string run(const Lines& sets) {
    testing::internal::CaptureStdout();
    try {
      training::train(build(read_recipe("run.yaml", sets, Registries{})), training::StopSignal{});
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  static std::string refused(const Lines& sets) {
    return story_of([&] { run(sets); });
  }
  static double first_loss(const std::string& folder) {
    std::ifstream file(folder + "/metrics.jsonl");
    std::string line;
    std::getline(file, line);
    return nlohmann::json::parse(line).at("loss").get<double>();
  }
  /// All weights of the newest checkpoint of a run.
  static std::map<std::string, std::vector<float>> weights(const std::string& folder) {
    const auto saved =
        checkpoint::Checkpoint::open(checkpoint::list_checkpoints(folder + "/checkpoints", "network").front().folder);
    const checkpoint::CheckpointWeights source(saved);
    std::map<std::string, std::vector<float>> all;
    for (const auto& name : source.names()) {
      auto& values = all[name];
      const auto shape = source.shape(name);
      values.resize(static_cast<std::size_t>(shape.elements()));
      source.read(name, Tensor(std::span(values), shape));
    }
    return all;
  }
};

TEST_F(Upcycling, CopiesTheDenseNetworkIntoEveryExpertAndLeavesTheRouterAlone) {
  const auto console = run(experts + from_dense + upcycling + still);
  EXPECT_NE(console.find("every expert begins with the feed-forward network of its layer"), std::string::npos)
      << console;
  run(experts + still + Lines{t + "output_dir=fresh", t + "training_iters=1"});
  auto dense = weights("dense");
  const auto fresh = weights("fresh");
  std::size_t of_experts = 0, of_routers = 0;
  for (const auto& [name, values] : weights("run")) {
    auto there = name;
    if (const auto at = name.find("experts.local_experts."); at != std::string::npos) {
      there.erase(at, std::string("experts.local_experts.0.").size());
      ++of_experts;
    }
    if (name == "decoder.layers.1.mlp.router.weight") {
      ++of_routers;
      EXPECT_EQ(values, fresh.at(name)) << name;
    } else {
      EXPECT_EQ(values, dense.at(there)) << name;
      EXPECT_NE(values,
                fresh.count(name) > 0 && name.find("norm") == std::string::npos ? fresh.at(name) : std::vector<float>())
          << name;
    }
  }
  EXPECT_EQ(of_experts, 8U);
  EXPECT_EQ(of_routers, 1U);
}

/// The weights of a token's experts add up to 1, so at first the model computes what the dense one does.
TEST_F(Upcycling, BeginsWithTheLossOfTheDenseModel) {
  run(experts + from_dense + upcycling);
  run({t + "load_checkpoint=dense/checkpoints", t + "training_iters=1", t + "output_dir=again",
       t + "resume_training=false"});
  EXPECT_NEAR(first_loss("run"), first_loss("again"), 1e-5);  // sums in another order
  run(experts + Lines{t + "training_iters=1", t + "output_dir=fresh"});
  EXPECT_GT(std::abs(first_loss("fresh") - first_loss("again")), 1e-2);
}

TEST_F(Upcycling, HappensOnce) {
  run(experts + from_dense + upcycling);
  const auto console = run(experts + from_dense + upcycling + Lines{t + "training_iters=2"});
  EXPECT_NE(console.find("after iteration 1"), std::string::npos) << console;
  EXPECT_EQ(console.find("every expert begins"), std::string::npos) << console;
}

TEST_F(Upcycling, ADenseCheckpointIsRefusedWithoutIt) {
  for (const auto* resume : {"auto", "false"}) {
    const auto why = refused(experts + from_dense + Lines{t + "resume_training=" + resume});
    EXPECT_TRUE(says(why, "is the checkpoint of a dense model")) << why;
    EXPECT_TRUE(says(why, "decoder.layers.1.mlp.linear_fc1.weight")) << why;
    EXPECT_TRUE(says(why, "moe_config.moe_use_upcycling: true")) << why;
  }
  const auto own = refused(experts + Lines{t + "output_dir=dense", t + "training_iters=5"});
  EXPECT_TRUE(says(own, "moe_use_upcycling: true, training_config.load_checkpoint and another output_dir")) << own;
}

TEST_F(Upcycling, ACheckpointWithExpertsIsRefused) {
  run(experts + Lines{t + "output_dir=routed"});
  const auto why = refused(experts + upcycling + Lines{t + "load_checkpoint=routed/checkpoints", t + "output_dir=run"});
  EXPECT_TRUE(says(why, "has experts already: 'decoder.layers.1.mlp.experts.local_experts.0.linear_fc1.weight'"))
      << why;
}

TEST_F(Upcycling, ACheckpointOfOtherExpertsIsRefusedByName) {
  run(experts + Lines{t + "output_dir=routed"});
  const Lines given = {t + "load_checkpoint=routed/checkpoints", t + "output_dir=run", t + "resume_training=false",
                       e + "moe_layer_freq=[0, 1]"};
  const auto more = refused(given + Lines{m + "num_experts=5"}), fewer = refused(given + Lines{m + "num_experts=3"});
  EXPECT_TRUE(says(more, "decoder.layers.1.mlp.router.weight: is [4, 16]; expected [5, 16]")) << more;
  EXPECT_TRUE(says(more, "decoder.layers.1.mlp.experts.local_experts.4.linear_fc1.weight: is missing")) << more;
  EXPECT_TRUE(says(fewer, "local_experts.3.linear_fc1.weight: is there, but the model here has no such weight"))
      << fewer;
}

TEST_F(Upcycling, ADenseNetworkOfAnotherSizeIsRefusedByName) {
  const auto why = refused(experts + from_dense + upcycling + Lines{e + "moe_ffn_hidden_size=16"});
  EXPECT_TRUE(
      says(why, "decoder.layers.1.mlp.experts.local_experts.0.linear_fc1.weight: is [48, 16]; expected [32, 16]"))
      << why;
}

}  // namespace
}  // namespace tessera::recipe
