// Families of Transformers with experts and latent attention: gradients, both spellings, the way back, what is refused.
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/nn/bound_parameters.h"
#include "framework/nn/flat_parameters.h"
#include "framework/recipe/imported_recipe.h"
#include "framework/recipe/saved_model.h"
#include "tests/interop/hugging_face/config_of_family.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
/// A recorded model, its loss and its gradients.
class Trained {
 public:
  explicit Trained(const std::string& family)
      : files_(families / family, options::Mappings()),
        model_(recipe::load_trained(families / family, registries())),
        layout_(model_.model->parameters()),
        values_(static_cast<std::size_t>(layout_.elements())),
        gradients_(values_.size()) {
    bind_parameters(layout_, values_, gradients_);
    for (const auto& range : layout_.ranges())
      files_.read(range.parameter->name, nn::FlatParameters::view(range, values_).floats());
  }

  /// Of the loss and, with the factor of config.json's program, those of multi-token prediction; returns them.
  std::vector<double> backward(const Tensor& tokens) {
    const auto given = tokens.as<std::int64_t>();
    const auto samples = tokens.shape()[0], T = tokens.shape()[1];
    std::vector<std::int32_t> ids(given.begin(), given.end()), labels(ids), places(ids.size()), starts(ids.size(), 0);
    std::vector<float> mask(ids.size(), 1.F);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      places[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(T));
      const bool last = places[i] + 1 == T;
      labels[i] = last ? 0 : ids[i + 1];
      mask[i] = last ? 0.F : 1.F;
    }
    const std::vector<std::int64_t> sample_ids = {0, 1};
    const TokenBatch batch{.samples = samples,
                           .seq_length = T,
                           .tokens = ids,
                           .labels = labels,
                           .loss_mask = mask,
                           .positions = places,
                           .document_start = starts,
                           .sample_ids = sample_ids};
    nn::AuxiliaryLog log(model_.model->auxiliary());
    model::ForwardMode mode;
    mode.training = true;
    mode.objective = &model::mean_cross_entropy();
    mode.auxiliary_seed = 1;
    mode.log = &log;
    const auto loss = model_.model->loss(tape_, batch, mode);
    std::vector<double> losses = {loss.total.sum / loss.total.count};
    tape_.backward();
    for (std::int64_t i = 0; i < log.extents().predictions; ++i) losses.push_back(log.prediction_loss(i));
    return losses;
  }

  /// Of each tensor of theirs: norm, sum g[i] cos(i), sum g[i] sin(i).
  std::map<std::string, std::array<double, 3>> gradients() {
    std::map<std::string, std::array<double, 3>> all;
    for (const auto& range : layout_.ranges()) {
      if (range.parameter->role == ParameterRole::expert_bias) continue;
      const auto own = nn::FlatParameters::view(range, gradients_).floats();
      for (const auto& theirs : files_.theirs(range.parameter->name, own)) {
        double squares = 0, cosine = 0, sine = 0;
        for (std::size_t i = 0; i < theirs.elements.size(); ++i) {
          const double g = theirs.elements[i], angle = static_cast<double>(i);
          squares += g * g, cosine += g * std::cos(angle), sine += g * std::sin(angle);
        }
        all[theirs.name] = {std::sqrt(squares), cosine, sine};
      }
    }
    return all;
  }

 private:
  hugging_face::HuggingFaceModel files_;
  recipe::TrainedModel model_;
  nn::FlatParameters layout_;
  std::vector<float> values_, gradients_;
  kernels::Threads threads_{1};
  Arena arena_;
  autograd::Tape tape_{arena_, threads_, true};
};

class ExpertFamily : public InOwnFolder, public testing::WithParamInterface<const char*> {};

TEST_P(ExpertFamily, HasTheGradientsOfTransformers) {
  const fs::path folder = families / GetParam();
  const auto recorded = LibraryJson::parse(read_file(folder / "gradients.json"));
  const checkpoint::SafetensorsReader inputs(folder / "case.safetensors");
  Trained trained(GetParam());
  // Eight times what float32 arithmetic costs Transformers itself, in units of each tensor's norm.
  const auto tolerance = 8 * recorded["deviation"].get<double>();
  const auto losses = trained.backward(inputs.tensor("tokens"));
  const auto expected = recorded["losses"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << i;
  const auto gradients = trained.gradients();
  EXPECT_EQ(gradients.size(), recorded["gradients"].size());
  for (const auto& [name, numbers] : recorded["gradients"].items()) {
    ASSERT_TRUE(gradients.count(name)) << name;
    const auto norm = numbers[0].get<double>();
    if (norm < 1e-6) {  // zero but for rounding: biases of keys without rotary positions
      EXPECT_LT(gradients.at(name)[0], 1e-6) << name;
      continue;
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(gradients.at(name)[i], numbers[i].get<double>(), tolerance * norm) << name << " " << i;
  }
}

TEST_P(ExpertFamily, GoesOutAsItCameIn) {
  const options::Mappings mappings;
  const hugging_face::HuggingFaceModel model(families / GetParam(), mappings);
  hugging_face::HuggingFaceExport how;
  how.family = model_type_of(GetParam());
  EXPECT_TRUE(hugging_face::write_hugging_face("out", model.model_config(), model, how, mappings).empty());
  const checkpoint::SafetensorsReader before(families / GetParam()), after("out");
  EXPECT_EQ(before.names(), after.names());
  for (const auto& name : before.names()) {
    ASSERT_EQ(before.dtype(name), after.dtype(name)) << name;
    const auto a = before.tensor(name).raw(), b = after.tensor(name).raw();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
  }
}

/// What save_pretrained wrote comes back under every key that we know, and reads as the same model.
TEST_P(ExpertFamily, ConfigGoesOutAsItCameIn) {
  const options::Mappings mappings;
  const auto words = read_file(families / GetParam() / "config.json");
  const auto given = LibraryJson::parse(words);
  const hugging_face::HuggingFaceModel model(families / GetParam(), mappings);
  const auto recipe = recipe::imported_recipe(model.recipe(), {}, {});
  const auto out = LibraryJson::parse(hugging_face::write_hugging_face_config(
      hugging_face::whole_model_config(recipe, 96), model_type_of(GetParam()), DType::bfloat16, words, mappings));
  for (const auto& [key, value] : given.items()) {
    if (key == "transformers_version" || key == "rope_parameters" || value.is_null()) continue;
    // The same layers said by their numbers; what every layer looks at follows from use_sliding_window.
    if (key == "decoder_sparse_step" || key == "mlp_only_layers" || key == "layer_types") continue;
    if (key == "num_kv_heads" && !given["new_decoder_architecture"]) continue;  // not used by Transformers then
    ASSERT_TRUE(out.contains(key)) << key;
    EXPECT_EQ(out[key], value) << key;
  }
  const auto rope = given.value("rope_parameters", LibraryJson::object());
  for (const auto& [key, value] : rope.items()) EXPECT_EQ(out["rope_parameters"][key], value) << key;
  const auto again = hugging_face::parse_hugging_face_config(out.dump(), "out", mappings);
  const auto back = recipe::imported_recipe(hugging_face::recipe_with(again.model_config), {}, {});
  EXPECT_EQ(options_in(hugging_face::whole_model_config(back, 96)),
            options_in(hugging_face::whole_model_config(recipe, 96)));
}

TEST_P(ExpertFamily, BothSpellingsOfItsConfigurationMeanTheSame) {
  const options::Mappings mappings;
  const auto five = config_of(GetParam());
  if (!five.contains("rope_parameters")) GTEST_SKIP() << "has no rotary positions";
  auto four = five;
  auto scaling = five["rope_parameters"];
  if (scaling.contains("full_attention")) {  // of each kind of layer
    four["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"];
    scaling = five["rope_parameters"]["full_attention"];
  }
  four["rope_theta"] = scaling["rope_theta"];
  // Transformers reads rope_type alone where layers have positions of their own.
  const char* kind = four.contains("rope_local_base_freq") ? "rope_type" : "type";
  const auto word = scaling["rope_type"];
  scaling.erase("rope_type");
  scaling[kind] = word;
  scaling.erase("rope_theta");
  four["rope_scaling"] = word == "default" ? LibraryJson() : scaling;
  four["torch_dtype"] = five["dtype"];
  if (five["model_type"] == "qwen3_moe") {
    four["num_experts"] = five["num_local_experts"];
    four.erase("num_local_experts");
  }
  // A head that is not hidden_size / num_attention_heads wide must be said; DeepSeek's follows from other keys.
  const bool own_head = five.contains("head_dim") && !five.contains("qk_head_dim");
  for (const char* later : {"rope_parameters", "dtype", "head_dim", "qk_head_dim"})
    if (!own_head || std::string(later) != "head_dim") four.erase(later);
  const auto read = [&](const LibraryJson& json) {
    return options_in(hugging_face::parse_hugging_face_config(json.dump(), "config.json", mappings).model_config);
  };
  EXPECT_EQ(read(four), read(five));
}

INSTANTIATE_TEST_SUITE_P(All, ExpertFamily,
                         testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gemma2",
                                         "gemma3_text", "glm4", "granite", "smollm3", "stablelm", "bloom", "falcon",
                                         "falcon_new", "falcon_rw", "olmo2", "phi", "opt", "phi3_longrope", "gpt_oss"),
                         [](const auto& family) { return std::string(family.param); });

TEST_F(ExpertConfig, RoutersThatAreNotMegatronsAreRefusedByName) {
  const auto story = changed("deepseek_v2", [](LibraryJson& c) { c["topk_method"] = "group_limited_greedy"; });
  EXPECT_TRUE(says(story, "topk_method is group_limited_greedy: scores a group of experts by its best one")) << story;
  EXPECT_TRUE(
      says(changed("deepseek_v3", [](LibraryJson& c) { c["norm_topk_prob"] = false; }), "norm_topk_prob is false"));
  EXPECT_TRUE(
      says(changed("deepseek_v3", [](LibraryJson& c) { c["scoring_func"] = "softmax"; }), "scoring_func is softmax"));
  const auto groups = changed("deepseek_v3", [](LibraryJson& c) { c["num_experts_per_tok"] = 6; });
  EXPECT_TRUE(says(groups, "adds the best two scores of a group of experts; with 6 experts of a token and 2 groups, 3"))
      << groups;
  EXPECT_EQ(changed("deepseek_v3", [](LibraryJson& c) { c["num_experts_per_tok"] = 5; }), "no error");
  EXPECT_EQ(changed("deepseek_v3", [](LibraryJson& c) { c["num_experts_per_tok"] = 6, c["topk_group"] = 4; }),
            "no error");
}

TEST_F(ExpertConfig, AttentionThatTheModelHereCannotComputeIsRefusedByName) {
  for (const char* family : {"deepseek_v2", "deepseek_v3"}) {
    EXPECT_TRUE(says(changed(family, [](LibraryJson& c) { c["rms_norm_eps"] = 1e-5; }),
                     "the norms within its attention have epsilon 1e-06; the others have 1e-05"));
    const auto uneven = changed(family, [](LibraryJson& c) { c["rope_parameters"]["mscale_all_dim"] = 0.5; });
    EXPECT_TRUE(says(uneven, "both must be given, equal and above 0")) << uneven;
    EXPECT_TRUE(says(changed(family, [](LibraryJson& c) { c["rope_parameters"].erase("mscale"); }), "mscale is 0"));
    EXPECT_TRUE(says(changed(family, [](LibraryJson& c) { c["rope_parameters"]["rope_type"] = "llama3"; }),
                     "rope_parameters.rope_type is llama3"));
    EXPECT_TRUE(says(changed(family, [](LibraryJson& c) { c["attention_bias"] = true; }), "attention_bias is true"));
    EXPECT_TRUE(says(changed(family, [](LibraryJson& c) { c["num_key_value_heads"] = 2; }),
                     "and both mean num_attention_heads"));
    EXPECT_EQ(changed(family, [](LibraryJson& c) { c["rope_parameters"] = {{"rope_type", "default"}}; }), "no error");
  }
  EXPECT_TRUE(
      says(changed("deepseek_v3", [](LibraryJson& c) { c["rope_interleave"] = false; }), "rope_interleave is false"));
}

TEST_F(ExpertConfig, LayersWithExpertsAreListed) {
  auto qwen = config_of("qwen3_moe");
  qwen["num_hidden_layers"] = 6, qwen["decoder_sparse_step"] = 2, qwen["mlp_only_layers"] = {3, 77, -1};
  EXPECT_EQ(said(read(qwen), "moe_config.moe_layer_freq"), "[0]*1+[1]*1+[0]*3+[1]*1");
  qwen["decoder_sparse_step"] = 1, qwen["mlp_only_layers"] = LibraryJson::array();
  EXPECT_EQ(said(read(qwen), "moe_config.moe_layer_freq"), "nothing");  // every layer
  qwen["mlp_only_layers"] = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(said(read(qwen), "num_experts"), "nothing");
  EXPECT_EQ(said(read(qwen), "moe_config"), "nothing");
  qwen["mlp_only_layers"] = {"first"};
  EXPECT_TRUE(says(story_of([&] { read(qwen); }), "numbers of layers were expected"));
  auto deepseek = config_of("deepseek_v3");
  deepseek["num_hidden_layers"] = 61, deepseek["first_k_dense_replace"] = 3;
  EXPECT_EQ(said(read(deepseek), "moe_config.moe_layer_freq"), "[0]*3+[1]*58");
  deepseek["first_k_dense_replace"] = 61;
  EXPECT_EQ(said(read(deepseek), "num_experts"), "nothing");
}

TEST_F(ExpertConfig, CountsThatCannotBeMeantAreRefusedBeforeMemoryIsTaken) {
  auto json = config_of("deepseek_v3");
  json["n_routed_experts"] = 60000, json["num_nextn_predict_layers"] = 9000;
  const auto story = story_of([&] { hugging_face::weight_table("weights/deepseek.yaml", read(json), mappings, "in"); });
  EXPECT_TRUE(says(story, "in: mtp_num_layers")) << story;
  json["num_hidden_layers"] = 1'000'000;
  EXPECT_TRUE(says(story_of([&] { read(json); }), "num_layers is 1000000; expected an integer from 1 to 4096"));
}

TEST_F(ExpertConfig, WhatAFileLeavesOutIsWhatTheFamilyMeansWithoutIt) {
  const auto sizes = [](const char* type) {
    return LibraryJson{{"model_type", type},
                       {"vocab_size", 9},
                       {"hidden_size", 64},
                       {"num_hidden_layers", 4},
                       {"num_attention_heads", 4}};
  };
  EXPECT_TRUE(says(story_of([&] { read(sizes("deepseek_v3")); }),
                   "num_key_value_heads (left out) is 128: but num_attention_heads is 4"));
  auto heads = sizes("deepseek_v3");
  heads["num_key_value_heads"] = 4;
  const auto v3 = read(heads);
  EXPECT_EQ(said(v3, "num_experts"), "256");
  EXPECT_EQ(said(v3, "q_lora_rank"), "1536");
  EXPECT_EQ(said(v3, "moe_config.moe_layer_freq"), "[0]*3+[1]*1");
  EXPECT_EQ(said(v3, "moe_config.moe_shared_expert_intermediate_size"), "2048");
  EXPECT_EQ(said(v3, "moe_config.moe_router_group_topk"), "4");
  EXPECT_EQ(said(v3, "moe_config.moe_router_topk_scaling_factor"), "2.5");
  EXPECT_TRUE(says(story_of([&] { read(sizes("deepseek_v2")); }), "nothing in it says moe_config.moe_router_topk"));
  auto v2 = sizes("deepseek_v2");
  v2["num_experts_per_tok"] = 6, v2["q_lora_rank"] = nullptr;
  EXPECT_EQ(said(read(v2), "q_lora_rank"), "nothing");
  EXPECT_EQ(said(read(v2), "moe_config.moe_shared_expert_intermediate_size"), "2814");
  auto qwen = sizes("qwen3_moe");
  EXPECT_EQ(said(read(qwen), "num_experts"), "128");
  qwen["num_experts"] = 16;
  EXPECT_EQ(said(read(qwen), "moe_config.moe_router_pre_softmax"), "true");  // norm_topk_prob is false
  EXPECT_EQ(said(read(qwen), "moe_config.moe_router_topk"), "8");
}

TEST_F(ExpertConfig, AModelThatTheFamilyCannotSayIsNotWritten) {
  const hugging_face::HuggingFaceModel v3(families / "deepseek_v3", mappings);
  const auto refused = [&](const std::string& family, const std::vector<std::string>& sets) {
    return story_of([&] {
      hugging_face::family_that_fits(recipe::imported_recipe(v3.recipe(), sets, {}), 96, {family}, {}, mappings);
    });
  };
  EXPECT_EQ(refused("deepseek_v3", {}), "no error");
  EXPECT_TRUE(says(refused("deepseek_v3", {"model_config.mscale=0.5"}), "mscale_all_dim"));
  const std::string m = "model_config.";  // the same yarn, as MindSpeed-LLM says it
  std::vector<std::string> yarn = {m + "rope_scaling_type=yarn",    m + "rope_scaling_factor=4",
                                   m + "rope_scaling_mscale=1",     m + "rope_scaling_mscale_all_dim=1",
                                   m + "rotary_scaling_factor=1.0", m + "rope_type=yarn"};
  EXPECT_EQ(refused("deepseek_v3", yarn), "no error");
  yarn[3] = m + "rope_scaling_mscale_all_dim=0.5";
  EXPECT_TRUE(says(refused("deepseek_v3", yarn), "mscale_all_dim"));
  EXPECT_TRUE(says(refused("deepseek_v3", {"moe_config.moe_shared_expert_intermediate_size=13"}), "not a multiple"));
  EXPECT_TRUE(says(refused("deepseek_v3", {"moe_config.moe_layer_freq=[1,0]"}), "in all layers behind its dense ones"));
  EXPECT_TRUE(says(refused("deepseek_v3", {"model_config.norm_epsilon=1e-5"}), "epsilon 1e-06"));
  EXPECT_TRUE(says(refused("deepseek_v3", {"model_config.qk_layernorm=false"}), "qk_layernorm is false"));
  EXPECT_TRUE(says(refused("deepseek_v2", {}), "nearest is deepseek_v2"));
  EXPECT_TRUE(says(refused("mixtral", {}), "nearest is mixtral"));
}

/// Newer versions of Transformers refuse an integer there.
TEST_F(ExpertConfig, NumbersWithAPointAreWrittenWithOne) {
  const hugging_face::HuggingFaceModel v2(families / "deepseek_v2", mappings);
  const std::vector<std::string> sets = {"moe_config.moe_router_topk_scaling_factor=2",
                                         "model_config.init_method_std=1"};
  const auto recipe = recipe::imported_recipe(v2.recipe(), sets, {});
  const auto json = LibraryJson::parse(hugging_face::write_hugging_face_config(
      hugging_face::whole_model_config(recipe, 96), "deepseek_v2", DType::float32, "", mappings));
  for (const char* key : {"routed_scaling_factor", "initializer_range", "attention_dropout", "rms_norm_eps"})
    EXPECT_TRUE(json[key].is_number_float()) << key << " " << json[key];
  EXPECT_TRUE(json["num_experts_per_tok"].is_number_integer());
}

/// The bias decides between experts by small differences.
TEST_F(ExpertConfig, TheBiasOfExpertsStaysInFloat32) {
  const hugging_face::HuggingFaceModel v3(families / "deepseek_v3", mappings);
  hugging_face::HuggingFaceExport how;
  how.family = "deepseek_v3";
  how.dtype = DType::float16;
  hugging_face::write_hugging_face("out", v3.model_config(), v3, how, mappings);
  const checkpoint::SafetensorsReader out("out");
  for (const auto& name : out.names())
    EXPECT_EQ(out.dtype(name),
              name.find("e_score_correction_bias") == std::string::npos ? DType::float16 : DType::float32)
        << name;
}

/// Files of the recorded DeepSeek-V3, some of them left out or changed.
class PredictionLayers : public ExpertConfig {
 protected:
  void write_without(const std::function<bool(const std::string&)>& left_out) {
    const checkpoint::SafetensorsReader file(families / "deepseek_v3");
    std::map<std::string, Tensor> tensors;
    for (const auto& name : file.names())
      if (!left_out(name)) tensors[name] = file.tensor(name);
    change(tensors);
    checkpoint::write_safetensors("model.safetensors", tensors);
    write("config.json", config_of("deepseek_v3").dump());
  }
  virtual void change(std::map<std::string, Tensor>&) {}
};

const std::string predicts = "model.layers.2.";

TEST_F(PredictionLayers, AreReadWhereTheFilesHaveThem) {
  const hugging_face::HuggingFaceModel whole(families / "deepseek_v3", mappings);
  EXPECT_TRUE(whole.has("mtp.layers.0.eh_proj.weight"));
  EXPECT_TRUE(whole.has("mtp.layers.0.transformer_layer.mlp.router.expert_bias"));
  EXPECT_EQ(whole.dtype("mtp.layers.0.transformer_layer.mlp.router.expert_bias"), DType::float32);
  write_without([](const std::string& name) { return name.rfind(predicts, 0) == 0; });  // as Transformers saves it
  const hugging_face::HuggingFaceModel without(".", mappings);
  EXPECT_FALSE(without.has("mtp.layers.0.eh_proj.weight"));
  EXPECT_EQ(said(without.model_config(), "mtp_num_layers"), "0");
  const hugging_face::HuggingFaceFormat format;  // what a run that begins from the folder takes
  std::vector<std::string> notes;
  EXPECT_EQ(said(*format.model_config(".", mappings, notes), "model_config.mtp_num_layers"), "0");
  EXPECT_EQ(said(*format.model_config(families / "deepseek_v3", mappings, notes), "model_config.mtp_num_layers"), "1");
  EXPECT_EQ(without.names().size() + 17 + 2 * 8, whole.names().size());
}

TEST_F(PredictionLayers, MayLackTheirCopiesAndNothingElse) {
  write_without([](const std::string& name) {
    return name == predicts + "embed_tokens.weight" || name == predicts + "shared_head.head.weight";
  });
  EXPECT_EQ(story_of([&] { hugging_face::HuggingFaceModel(".", mappings); }), "no error");
  write_without([](const std::string& name) { return name == predicts + "enorm.weight"; });
  const auto story = story_of([&] { hugging_face::HuggingFaceModel(".", mappings); });
  EXPECT_TRUE(says(story, "missing:\n  model.layers.2.enorm.weight")) << story;
}

class ChangedCopies : public PredictionLayers {
  void change(std::map<std::string, Tensor>& tensors) override {
    tensors[predicts + "embed_tokens.weight"] = tensors.at("lm_head.weight");
  }
};

TEST_F(ChangedCopies, AreRefused) {
  write_without([](const std::string&) { return false; });
  const auto story = story_of([&] { hugging_face::HuggingFaceModel(".", mappings); });
  EXPECT_TRUE(says(story,
                   "'model.layers.2.embed_tokens.weight' differs from 'model.embed_tokens.weight', of which it "
                   "must be a copy"))
      << story;
}

}  // namespace
}  // namespace tessera
