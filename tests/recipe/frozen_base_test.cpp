// Checkpoints without their frozen parameters: which checkpoint they name, and what they read when a run begins with
// another run with adapters, continues or goes back. Parameters that are frozen when a run continues.
#include "framework/checkpoint/frozen_base.h"

#include <gtest/gtest.h>

#include "framework/recipe/saved_model.h"
#include "tests/own_folder.h"
#include "tests/recipe/console_runs.h"
#include "tests/recipe/small_run.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

namespace fs = std::filesystem;

class FrozenBase : public InOwnFolder {
 protected:
  FrozenBase() : InOwnFolder(folder_in_memory()) {
    write_token_file("data", 7);
    write("run.yaml",
          "training_config: {training_iters: 4, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant, weight_decay: 0.1}\n"
          "dataset_config: {data_path: data, split: \"100,0,0\", batch_size: 2, global_batch_size: 4}\n");
  }
  static std::string trained(const std::string& folder, const Lines& sets) {
    auto story = train(Lines{t + "output_dir=" + folder} + sets);
    EXPECT_FALSE(says(story, "refused")) << story;
    return story;
  }
  static void make_base() { trained("base", {t + "seed=5", t + "save_interval=2"}); }
  static fs::path base_of(const std::string& run, int iteration) {
    return checkpoint::base_in(saved(run, iteration).blobs()).value().name;
  }
  static fs::path of_base(int iteration) { return fs::absolute(saved("base", iteration).folder()); }
  /// Every weight of the model that `generate` and `eval` read.
  static std::map<std::string, std::vector<float>> loaded(const std::string& run) {
    const auto model = load_trained(run, Registries{});
    std::map<std::string, std::vector<float>> all;
    for (const auto& range : model.weights->weight_ranges())
      all[range.name].assign(range.tensor.floats().begin(), range.tensor.floats().end());
    return all;
  }
  const Lines adapters = {"lora_config.use_lora=true", "lora_config.target_modules=all-linear",
                          "lora_config.lora_rank=2"};
  const Lines begins = adapters + Lines{t + "resume_training=false"};
  const Lines continues = adapters + Lines{t + "resume_training=true"};
};

TEST_F(FrozenBase, OfARunThatBeginsWithAnotherRunsAdaptersIsTheBaseOfThatRun) {
  make_base();
  trained("sft", begins + Lines{t + "load_checkpoint=base"});
  const Lines beside = {t + "load_checkpoint=sft"};
  trained("whole", begins + beside);
  trained("later", begins + beside + Lines{t + "exit_interval=2"});
  EXPECT_EQ(base_of("later", 2), of_base(4));
  EXPECT_EQ(loaded("later").at("decoder.layers.0.mlp.linear_fc1.weight"),
            content(saved("base", 4)).at("decoder.layers.0.mlp.linear_fc1.weight"));
  trained("later", continues + beside);
  EXPECT_EQ(content(saved("later", 4)), content(saved("whole", 4)));
  EXPECT_EQ(base_of("later", 4), of_base(4));
  trained("last", begins + Lines{t + "load_checkpoint=later"});
  EXPECT_EQ(base_of("last", 4), of_base(4));
}

TEST_F(FrozenBase, IsTheCheckpointOfCkptStep) {
  make_base();
  const Lines second = {t + "load_checkpoint=base", t + "ckpt_step=2"};
  trained("whole", begins + second);
  for (const auto& resumed : {second, Lines{second.front()}}) {
    fs::remove_all("run");
    trained("run", begins + second + Lines{t + "exit_interval=2"});
    EXPECT_EQ(base_of("run", 2), of_base(2));
    EXPECT_EQ(loaded("run").at("decoder.layers.0.mlp.linear_fc1.weight"),
              content(saved("base", 2)).at("decoder.layers.0.mlp.linear_fc1.weight"));
    trained("run", continues + resumed);
    EXPECT_EQ(content(saved("run", 4)), content(saved("whole", 4)));
  }
  // Another run begins with one of its checkpoints.
  trained("sft", begins + second + Lines{t + "save_interval=2"});
  trained("later", begins + Lines{t + "load_checkpoint=sft", t + "ckpt_step=2"});
  EXPECT_EQ(base_of("later", 4), of_base(2));
  loaded("later");
}

TEST_F(FrozenBase, RemainsThePretrainedCheckpointWhileARunLoadsFromItsOwnFolder) {
  make_base();
  const auto own = [&](const std::string& folder) {
    return adapters + Lines{t + "pretrained_checkpoint=base", t + "load_checkpoint=" + folder};
  };
  trained("whole", own("whole"));
  for (const auto* exit : {"1", "2", "3", "4"}) trained("run", own("run") + Lines{t + "exit_interval=" + exit});
  EXPECT_EQ(content(saved("run", 4)), content(saved("whole", 4)));
  EXPECT_EQ(base_of("run", 4), of_base(4));
  loaded("run");
}

TEST_F(FrozenBase, ParametersThatAreFrozenWhenARunContinuesKeepTheirValues) {
  make_base();
  const Lines beside = {t + "load_checkpoint=base", t + "save_interval=2"};
  trained("run", begins + beside + Lines{t + "exit_interval=2"});
  trained("run",
          continues + beside +
              Lines{t + "frozen_parameters=['.*lora_A.*']", t + "allow_changes=[training_config.frozen_parameters]"});
  const auto half = content(saved("run", 2)), end = content(saved("run", 4));
  int kept = 0;
  for (const auto& [name, values] : end) {
    if (name.starts_with("optimizer.")) continue;
    EXPECT_EQ(values == half.at(name), name.ends_with("lora_A.weight")) << name;
    kept += name.ends_with("lora_A.weight") ? 1 : 0;
  }
  EXPECT_GT(kept, 7);
}

TEST_F(FrozenBase, RowsThatAreFrozenWhenARunContinuesKeepTheirValues) {
  const Lines model = {m + "hidden_act=swiglu", m + "ffn_hidden_size=24", m + "qkv_has_bias=true",
                       m + "group_query_attention=true", m + "num_query_groups=2"};
  const std::string bias = "decoder.layers.0.self_attention.linear_qkv.bias";
  trained("base", model);
  const Lines beside = model + Lines{"lora_config.use_lora=true", "lora_config.target_modules=[q_proj, v_proj]",
                                     "lora_config.bias=lora_only", t + "load_checkpoint=base", t + "save_interval=2"};
  trained("run", beside + Lines{t + "resume_training=false", t + "trainable_parameters=['" + bias + "']",
                                t + "exit_interval=2"});
  trained("run",
          beside + Lines{t + "resume_training=true", t + "allow_changes=[training_config.trainable_parameters]"});
  const auto half = content(saved("run", 2)).at(bias), end = content(saved("run", 4)).at(bias);
  // Two groups of two heads with queries, then keys and values, of 4 channels each.
  for (std::size_t i = 0; i < end.size(); ++i) EXPECT_EQ(end[i] == half[i], i % 16 / 4 == 2) << i;
}

}  // namespace
}  // namespace tessera::recipe
