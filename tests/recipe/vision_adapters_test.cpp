// Adapters of a model with images: its modules' names in Transformers, and what a run says of options without effect.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "framework/recipe/build.h"
#include "framework/recipe/figures.h"
#include "tests/images_of_rows.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

using LayerNames = std::set<std::string>;

class VisionAdapters : public InOwnFolder {
 protected:
  VisionAdapters() {
    data::register_images(registries_.datasets);
    write("run.yaml",
          "training_config: {training_iters: 1, eval_iters: 0, output_dir: run}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 16, vocab_size: 64,\n"
          "  use_visual_encoder: true, position_embedding_type: mrope, mrope_section: [1, 1, 0],\n"
          "  normalization: RMSNorm, hidden_act: swiglu, ffn_hidden_size: 24, group_query_attention: true,\n"
          "  num_query_groups: 2, add_bias_linear: false, qkv_has_bias: true}\n"
          "vision_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, patch_size: 2, in_channels: 2,\n"
          "  temporal_patch_size: 1, image_token_id: 27, video_token_id: 28}\n"
          "dataset_config: {dataset_type: images_of_rows}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\n"
          "lora_config: {use_lora: true}\n");
  }
  Recipe read(const Lines& sets) const { return read_recipe("run.yaml", sets, registries_); }
  /// The layers with adapters, "0.self_attention.linear_qkv.q_proj"; those of the tower begin with "v".
  LayerNames adapted(const Lines& sets) const {
    LayerNames all;
    const std::string text = "decoder.layers.", tower = "vision_model.decoder.layers.";
    const auto model = build_model(read(sets), nullptr);
    for (const auto* parameter : model->parameters()) {
      if (!nn::is_of_adapter(parameter->name)) continue;
      auto name = parameter->name.substr(0, parameter->name.rfind(".lora_"));
      if (name.starts_with(text)) name = name.substr(text.size());
      if (name.starts_with(tower)) name = "v" + name.substr(tower.size());
      all.insert(name);
    }
    return all;
  }
  /// The notes of a recipe without mistakes, each on a line.
  std::string notes(const Lines& sets) const {
    options::Report report;
    read_recipe("run.yaml", sets, registries_, report);
    report.must_be_good();
    std::string all;
    for (const auto& note : report.notes()) all += note + "\n";
    return all;
  }

  Registries registries_;
  const std::string modules_ = "lora_config.target_modules=", without_ = "lora_config.exclude_modules=";
};

TEST_F(VisionAdapters, NamesAreThoseOfTheModulesAndOfTheFilesOfTransformers) {
  const LayerNames q = {"0.self_attention.linear_qkv.q_proj"},
                   both = {"0.self_attention.linear_qkv.q_proj", "1.self_attention.linear_qkv.q_proj"},
                   qkv = {"v0.self_attention.linear_qkv"};
  for (const std::string text : {"model.language_model", "model", "language_model"})
    EXPECT_EQ(adapted({modules_ + "[" + text + ".layers.0.self_attn.q_proj]"}), q) << text;
  for (const std::string text : {"model.language_model", "model"})
    EXPECT_EQ(adapted({modules_ + "'" + text + R"(\.layers\.\d+\.self_attn\.q_proj')"}), both) << text;
  for (const std::string tower : {"model.visual", "visual"}) {
    EXPECT_EQ(adapted({modules_ + "[" + tower + ".blocks.0.attn.qkv]"}), qkv) << tower;
    EXPECT_EQ(adapted({modules_ + "'" + tower + R"(\.blocks\.0\.attn\.qkv')"}), qkv) << tower;
    EXPECT_EQ(adapted({modules_ + "[" + tower + ".merger.mlp.2]"}), LayerNames{"vision_projection.linear_fc2"});
  }
  // One text must match from the beginning, names in a list may begin at any dot.
  EXPECT_TRUE(says(story_of([&] { read({modules_ + R"('language_model\.layers\.0\.self_attn\.q_proj')"}); }),
                   "selects no linear layer"));
  EXPECT_TRUE(says(story_of([&] { read({modules_ + "[al.blocks.0.attn.qkv]"}); }), "selects no linear layer"));
}

TEST_F(VisionAdapters, ExclusionsAndPatternsOfNumbersTakeTheSameNames) {
  const auto text_only = adapted({modules_ + "[q_proj, down_proj]"});
  for (const auto& layer : text_only) EXPECT_FALSE(layer.starts_with("v")) << layer;  // as in Qwen2.5-VL
  for (const auto* tower : {R"('model\.visual\..*')", R"('visual\..*')", "'.*visual.*'"})
    EXPECT_EQ(adapted({modules_ + "[q_proj, down_proj, qkv, fc1]", without_ + tower}), text_only) << tower;
  EXPECT_EQ(adapted({modules_ + "[q_proj]", without_ + "[model.language_model.layers.1.self_attn.q_proj]"}),
            LayerNames{"0.self_attention.linear_qkv.q_proj"});
  // As LLaMA-Factory writes them.
  EXPECT_EQ(adapted({modules_ + "'^(?!.*visual).*(?:q_proj|down_proj).*'"}), text_only);
  for (const std::string name : {R"(model\.language_model\.layers\.1\.self_attn\.q_proj)",
                                 R"(model\.layers\.1\.self_attn\.q_proj)", R"(layers\.1\.self_attn\.q_proj)"}) {
    const auto model =
        build_model(read({modules_ + "[q_proj]", "lora_config.rank_pattern={'" + name + "': 3}"}), nullptr);
    for (const auto* parameter : model->parameters())
      if (parameter->name.ends_with(".lora_A.weight")) {
        EXPECT_EQ(parameter->global_shape[0], parameter->name.find("layers.1.") == std::string::npos ? 8 : 3) << name;
      }
  }
}

TEST_F(VisionAdapters, ExclusionsThatLeaveOutNothingAreTold) {
  const Lines on = {modules_ + "[q_proj, v_proj]"};
  EXPECT_EQ(notes(on), "");
  EXPECT_EQ(notes(on + Lines{without_ + "[v_proj, model.visual.blocks.0.attn.qkv]"}), "");
  const auto list = notes(on + Lines{without_ + "[v_prj, v_proj, visual]"});
  EXPECT_TRUE(says(list, "exclude_modules: 'v_prj' is the name of no layer that can have an adapter")) << list;
  EXPECT_TRUE(says(list, "v_proj")) << list;
  EXPECT_TRUE(says(list, "exclude_modules: 'visual' is the name of no layer")) << list;  // as in PEFT
  EXPECT_FALSE(says(list, "'v_proj' is the name of no")) << list;
  EXPECT_TRUE(says(notes(on + Lines{without_ + R"('visual\.blocks')"}), R"('visual\.blocks' is the name of no layer)"));
  EXPECT_EQ(notes(on + Lines{without_ + R"('visual\.blocks.*')"}), "");
}

TEST_F(VisionAdapters, ThatAPatternFreezesAreToldAndNotCounted) {
  const Lines on = {modules_ + "[q_proj, qkv]", "lora_config.lora_rank=2"};
  const auto trained = [&](const Lines& sets) { return figures(read(on + sets)).trained_parameters; };
  const std::string frozen = "training_config.frozen_parameters=";
  const std::int64_t q = 2 * 2 * (16 + 16), qkv = 2 * 2 * (16 + 48);
  EXPECT_EQ(trained({}), q + qkv);
  EXPECT_EQ(notes(on), "");
  const auto tower = notes(on + Lines{frozen + "['vision_.*']"});
  EXPECT_TRUE(says(tower, "also freezes the adapters of 2 of 4 layers with one")) << tower;
  EXPECT_TRUE(says(tower, "only such layers are selected by qkv")) << tower;
  EXPECT_FALSE(says(tower, "q_proj")) << tower;
  // Beside a base they are in checkpoints, although they keep their values.
  const Lines beside = {"training_config.load_checkpoint=base", "training_config.resume_training=false"};
  EXPECT_EQ(trained({frozen + "['vision_.*']"}), q);
  EXPECT_EQ(trained(beside + Lines{frozen + "['vision_.*']"}), q);
  EXPECT_EQ(trained(beside + Lines{frozen + "['.*lora_A.*']"}), 2 * 2 * 16 + 2 * 2 * 48);
  EXPECT_EQ(notes(on + Lines{frozen + "['.*lora_A.*']"}), "");  // B is trained
  const auto one = notes(on + Lines{frozen + R"(['decoder\.layers\.0\..*'])"});
  EXPECT_TRUE(says(one, "the adapters of 1 of 4 layers with one, such as decoder.layers.0.self_attention.")) << one;
  EXPECT_FALSE(says(one, "selected by")) << one;
}

}  // namespace
}  // namespace tessera::recipe
