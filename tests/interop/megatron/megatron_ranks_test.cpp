// Checkpoints of Megatron-LM by many ranks: read whole whatever saved them, written for any layout.
#include <gtest/gtest.h>

#include <deque>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/options/yaml.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Runs of Megatron-LM core_v0.12.1 itself; storages that nobody reads (of generators) are left out. sums.json was
// computed from the files without this program: of each tensor its sum, and one weighted by place.
const fs::path recorded_ranks = TESTS_DATA "/megatron/ranks";

struct Form {
  bool gated = false, tied = true;
  std::int64_t layers = 4, hidden = 8, inner = 24, rows = 40;  // of the vocabulary
  std::int64_t groups = 4;                                     // key and value heads; of two channels, as 4 query heads
};

/// A model whose every element is a number of its own.
class MegatronRanks : public InOwnFolder {
 protected:
  /// Where saving waits for no disk.
  MegatronRanks() : InOwnFolder(fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {}
  options::Mappings mappings;

  std::vector<checkpoint::TensorRange> model(const Form& form, bool state = true) {
    std::vector<std::pair<std::string, Shape>> all = {{"embedding.word_embeddings.weight", {form.rows, form.hidden}},
                                                      {"embedding.position_embeddings.weight", {5, form.hidden}}};
    const auto h = form.hidden, inner = form.inner * (form.gated ? 2 : 1);
    for (std::int64_t i = 0; i < form.layers; ++i) {
      const auto layer = text("decoder.layers.", i, ".");
      all.insert(all.end(), {{layer + "input_layernorm.weight", {h}},
                             {layer + "self_attention.linear_proj.weight", {h, h}},
                             {layer + "self_attention.linear_proj.bias", {h}},
                             {layer + "self_attention.linear_qkv.weight", {h + 4 * form.groups, h}},
                             {layer + "self_attention.linear_qkv.bias", {h + 4 * form.groups}},
                             {layer + "pre_mlp_layernorm.weight", {h}},
                             {layer + "mlp.linear_fc1.weight", {inner, h}},
                             {layer + "mlp.linear_fc1.bias", {inner}},
                             {layer + "mlp.linear_fc2.weight", {h, form.inner}},
                             {layer + "mlp.linear_fc2.bias", {h}}});
    }
    all.push_back({"decoder.final_layernorm.weight", {h}});
    if (!form.tied) all.push_back({"output_layer.weight", {form.rows, h}});
    std::vector<checkpoint::TensorRange> ranges;
    for (const auto& [name, shape] : all) {
      ranges.push_back(filled(name, shape));
      for (const auto* slot : {"optimizer.exp_avg.", "optimizer.exp_avg_sq."})
        if (state) ranges.push_back(filled(slot + name, shape));
    }
    return ranges;
  }

  options::Value recipe(const Form& form) const {
    options::Value out;
    out.kind = options::Value::Kind::group;
    const auto set = [&](const char* option, const std::string& value) {
      out.set(text("model_config.", option), options::Value::of(value, options::Origin{"test", 1, "", 1}));
    };
    set("num_layers", std::to_string(form.layers));
    set("hidden_size", std::to_string(form.hidden));
    set("num_attention_heads", "4");
    set("group_query_attention", "true");
    set("num_query_groups", std::to_string(form.groups));
    set("ffn_hidden_size", std::to_string(form.inner));
    set("seq_length", "5");
    set("max_position_embeddings", "5");
    set("vocab_size", std::to_string(form.rows));
    set("normalization", "RMSNorm");
    set("hidden_act", form.gated ? "swiglu" : "gelu");
    set("untie_embeddings_and_output_weights", form.tied ? "false" : "true");
    return out;
  }

  fs::path save(const std::string& root, const Form& form, const checkpoint::CheckpointLayout& layout,
                DType type = DType::float32) {
    fs::remove_all(root);
    return save_megatron(root, {.iteration = 7, .updates = 6}, model(form), recipe(form), type, mappings, layout);
  }

  /// Empty, or what differs.
  std::string differences(const checkpoint::WeightSource& source, std::span<const checkpoint::TensorRange> expected) {
    std::string all;
    for (const auto& range : expected) {
      if (!source.has(range.name)) {
        all += text(range.name, " is missing\n");
        continue;
      }
      const auto values = range.tensor.floats();
      if (source.shape(range.name) != range.global_shape)
        all += text(range.name, " is of ", source.shape(range.name), "\n");
      else if (floats(source, range.name) != std::vector<float>(values.begin(), values.end()))
        all += text(range.name, " has other values\n");
    }
    return all;
  }

 private:
  checkpoint::TensorRange filled(const std::string& name, const Shape& shape) {
    auto& values = memory_.emplace_back(static_cast<std::size_t>(shape.elements()));
    for (auto& value : values) value = static_cast<float>(++count_ % 16777213);
    return checkpoint::whole(name, Tensor(std::span(values), shape));
  }
  std::deque<std::vector<float>> memory_;
  std::int64_t count_ = 0;
};

TEST_F(MegatronRanks, WhatMegatronSavedOnManyRanksIsReadWhole) {
  std::size_t tensors = 0;
  for (const auto* run : {"llama_tp2", "gpt_pp2", "gpt_bf16_dp2_distributed_optimizer", "moe_ep2"}) {
    const megatron::MegatronCheckpoint source(recorded_ranks / run, mappings);
    std::size_t sums = 0;
    EXPECT_EQ(differing_sums(source, recorded_ranks / run / "sums.json", sums), "") << run;
    EXPECT_EQ(2 * source.names().size(), sums) << run;
    tensors += sums;
    const auto progress = source.progress().value_or(checkpoint::Progress{});
    EXPECT_EQ(progress.iteration, 10);
    EXPECT_EQ(progress.updates, 10);
    EXPECT_EQ(progress.consumed_samples, 80);
  }
  EXPECT_EQ(tensors, 2U * (15 + 28 + 28 + 29));
}

TEST_F(MegatronRanks, TheLayoutThatSavedIsKnown) {
  const megatron::MegatronCheckpoint tensors(recorded_ranks / "llama_tp2", mappings),
      stages(recorded_ranks / "gpt_pp2", mappings),
      shared(recorded_ranks / "gpt_bf16_dp2_distributed_optimizer", mappings),
      experts(recorded_ranks / "moe_ep2", mappings);
  EXPECT_EQ(tensors.layout().tensor, 2);
  EXPECT_EQ(stages.layout().layers, (std::vector<std::vector<std::int64_t>>{{1}, {1}}));
  EXPECT_FALSE(stages.has("output_layer.weight"));  // a copy of the embedding
  EXPECT_EQ(stages.names().back(), "decoder.final_layernorm.bias");
  EXPECT_EQ(experts.layout().expert, 2);
  EXPECT_EQ(experts.layout().ranks(), 2);
  EXPECT_TRUE(shared.layout().distributed_optimizer);
  EXPECT_EQ(shared.layout().data, 2);
  EXPECT_EQ(shared.dtype("decoder.final_layernorm.weight"), DType::float32);  // the master
}

TEST_F(MegatronRanks, EveryLayoutReadsBackToTheSameTensors) {
  const std::vector<std::vector<std::vector<std::int64_t>>> cuts = {{}, {{3}, {1}}, {{1, 1}, {1, 1}}, {{0, 2}, {2, 0}}};
  int layouts = 0;
  for (const bool gated : {false, true})
    for (const bool tied : {false, true})
      for (const std::int64_t tensor : {1, 2, 4})
        for (const auto& layers : cuts)
          for (const bool shared : {false, true}) {
            if (++layouts % part_of_inputs != 0) continue;
            const Form form{.gated = gated, .tied = tied, .groups = gated ? 2 : 4};  // 4 ranks have copies of 2 groups
            const checkpoint::CheckpointLayout layout{tensor, 2, layers, shared};
            const auto type = layouts % 3 == 0 ? DType::bfloat16 : DType::float32;
            const auto folder = save("run", form, layout, type);
            const auto name = text(gated, tied, " tensor ", tensor, " stages ", layout.stages(), " shared ", shared);
            EXPECT_EQ(fs::exists(folder / megatron::megatron_rank_folder(layout, tensor - 1, layout.stages() - 1) /
                                 "distrib_optim.pt"),
                      shared)
                << name;
            const megatron::MegatronCheckpoint source("run", mappings);
            EXPECT_EQ(source.layout().tensor, tensor) << name;
            if (!layers.empty()) {
              EXPECT_EQ(source.layout().layers, layers) << name;
            }
            EXPECT_EQ(source.names().size() * 3, model(form).size()) << name;
            EXPECT_EQ(source.progress()->updates, 6) << name;
          }
  EXPECT_EQ(layouts, 96);
}

TEST_F(MegatronRanks, WhatMegatronLooksForIsThere) {
  const Form form;
  auto settings = recipe(form);
  settings.set("dataset_config.tokenizer_type", options::Value::of("NullTokenizer", options::Origin{"test", 1, "", 1}));
  settings.set("model_config.make_vocab_size_divisible_by", options::Value::of("8", options::Origin{"test", 1, "", 1}));
  fs::remove_all("run");
  const auto folder =
      save_megatron("run", {.iteration = 7, .updates = 6}, model(form), settings, DType::float32, mappings, {});
  const torch::TorchFile file(folder / "mp_rank_00" / "model_optim_rng.pt");
  const auto& groups = *file.root().find("optimizer")->find("param_groups");
  ASSERT_EQ(groups.items.size(), 2U);
  for (const auto* group : groups.items) {  // Transformer Engine's Adam has no other place for it
    ASSERT_NE(group->find("step"), nullptr);
    EXPECT_EQ(group->find("step")->real, 6);
  }
  const megatron::MegatronSaved saved(file, file.root());  // what it compares if it has a vocabulary file
  ASSERT_NE(saved.argument("tokenizer_type"), nullptr);
  EXPECT_EQ(saved.argument("tokenizer_type")->text, "NullTokenizer");
  EXPECT_EQ(saved.count("make_vocab_size_divisible_by", 0), 8);
  EXPECT_EQ(saved.count("max_position_embeddings", 0), 5);
}

TEST_F(MegatronRanks, ValuesAndOrderSurviveEveryLayout) {
  for (const auto& form : {Form{true, false}, Form{false, true}, Form{.gated = true, .groups = 2}}) {
    const auto all = model(form);
    for (const auto& layout :
         {checkpoint::CheckpointLayout{2, 1, {{1, 1}, {1, 1}}, true},
          checkpoint::CheckpointLayout{4, 1, {{3}, {1}}, false},
          checkpoint::CheckpointLayout{1, 1, {{1}, {1}, {2}}, true}, checkpoint::CheckpointLayout{2, 1, {}, false}}) {
      fs::remove_all("run");
      save_megatron("run", {.iteration = 7}, all, recipe(form), DType::float32, mappings, layout);
      const megatron::MegatronCheckpoint source("run", mappings);
      EXPECT_EQ(differences(source, all), "") << layout.tensor << " " << layout.stages();
      std::vector<std::string> weights;
      for (const auto& range : all)
        if (range.name.rfind("optimizer.", 0) != 0) weights.push_back(range.name);
      EXPECT_EQ(source.names(), weights);
    }
  }
}

TEST_F(MegatronRanks, AParticularRankHasItsRowsOfGateAndUp) {
  Form form{true, false};
  form.layers = 1;
  const auto all = model(form);
  fs::remove_all("run");
  save_megatron("run", {.iteration = 7}, all, recipe(form), DType::float32, mappings, {2, 1, {}, false});
  const torch::TorchFile file("run/iter_0000007/mp_rank_01/model_optim_rng.pt");
  const auto own = file.tensor(*file.root().find("model")->find("decoder.layers.0.mlp.linear_fc1.bias"), "bias");
  std::vector<float> values(24);
  checkpoint::copy_converted(own, Tensor(std::span(values), Shape{24}));
  const auto* bias = &*std::find_if(
      all.begin(), all.end(), [](const auto& range) { return range.name == "decoder.layers.0.mlp.linear_fc1.bias"; });
  const auto given = bias->tensor.floats();
  EXPECT_EQ(values[0], given[12]);   // its gates
  EXPECT_EQ(values[12], given[36]);  // what they gate
}

TEST_F(MegatronRanks, RanksThatSaveTogetherNeedOnlyWhatIsTheirs) {
  const Form form{false, true};
  const auto all = model(form);
  const checkpoint::CheckpointLayout layout{2, 1, {{2}, {2}}, false};
  const auto to_save = megatron_save("run", {.iteration = 7}, recipe(form), DType::float32, mappings, layout);
  const auto ranks = ranks_of(recipe(form), layout);
  fs::remove_all("run");
  for (std::int64_t stage = 0; stage < 2; ++stage)
    for (std::int64_t tensor = 0; tensor < 2; ++tensor) {
      std::vector<checkpoint::TensorRange> own;
      for (const auto& range : all) {
        const auto weight = checkpoint::weight_of(range.name);
        const auto layer = checkpoint::layer_of(weight);
        const bool table = weight == "embedding.word_embeddings.weight";
        if (layer >= 0 ? layer / 2 != stage : !table && (weight.rfind("embedding.", 0) == 0) != (stage == 0)) continue;
        own.push_back(range);
        if (!table && weight.find("linear_qkv") == std::string::npos) continue;
        const auto rows = range.global_shape[0] / 2;  // its own rows alone
        own.back().tensor = range.tensor.slice(tensor * rows, rows);
        own.back().offsets[0] = tensor * rows;
      }
      const checkpoint::LiveState state(own);
      megatron::MegatronFormat().write_rank(to_save, ranks[static_cast<std::size_t>(stage * 2 + tensor)], state);
      if (stage == 1 && tensor == 0) {
        EXPECT_THROW(megatron::MegatronFormat().write_rank(to_save, ranks[3], state), BugError);
      }
    }
  EXPECT_EQ(megatron::MegatronFormat().finish(to_save), fs::path("run/iter_0000007"));
  EXPECT_EQ(differences(megatron::MegatronCheckpoint("run", mappings), all), "");
}

TEST_F(MegatronRanks, APartOfATensorIsReadFromTheRanksThatHaveIt) {
  const Form form{true, false};
  const auto all = model(form);
  fs::remove_all("run");
  save_megatron("run", {.iteration = 7}, all, recipe(form), DType::float32, mappings, {4, 1, {}, true});
  const megatron::MegatronCheckpoint source("run", mappings);
  for (const auto& range : all) {
    if (range.global_shape.rank() != 2) continue;
    const Shape part{range.global_shape[0] - 2, 3};
    std::vector<float> values(static_cast<std::size_t>(part.elements()));
    source.read_box({range.name, range.global_shape, {1, 4}, Tensor(std::span(values), part)});
    const auto given = range.tensor.floats();
    for (std::int64_t r = 0; r < part[0]; ++r)
      for (std::int64_t c = 0; c < 3; ++c)
        ASSERT_EQ(values[static_cast<std::size_t>(r * 3 + c)],
                  given[static_cast<std::size_t>((r + 1) * range.global_shape[1] + c + 4)])
            << range.name;
  }
}

TEST_F(MegatronRanks, BucketsOfTheSharedOptimizerFollowTheRunsArguments) {
  const std::vector<megatron::MegatronFlat> weights = {{100, false}, {30, false}, {64, false}, {10, false}};
  EXPECT_EQ(megatron::megatron_flat_places(weights, 0), (std::vector<std::int64_t>{192, 128, 64, 0, 292}));
  // The last 10 and 64 fill a bucket of 70; the end of a bucket is not padded in the file.
  EXPECT_EQ(megatron::megatron_flat_places(weights, 70), (std::vector<std::int64_t>{192, 128, 64, 0, 292}));
  EXPECT_EQ(megatron::megatron_flat_places({{100, false}, {30, false}, {10, false}}, 40),
            (std::vector<std::int64_t>{94, 64, 0, 194}));
  EXPECT_EQ(megatron::megatron_flat_places({{7, true}, {30, false}}, 0), (std::vector<std::int64_t>{64, 0, 71}));
  EXPECT_EQ(megatron::megatron_flat_places({{30, false}, {7, true}}, 0), (std::vector<std::int64_t>{7, 0, 37}));
}

TEST_F(MegatronRanks, WhatIsMissingOrDoesNotFitIsNamed) {
  const Form form{false, true};
  const auto read = [&] { return story_of([&] { megatron::MegatronCheckpoint("run", mappings); }); };
  const checkpoint::CheckpointLayout layout{2, 1, {{2}, {2}}, true};
  const auto folder = save("run", form, layout);
  EXPECT_EQ(read(), "no error");
  fs::remove_all(folder / "mp_rank_01_001");
  EXPECT_TRUE(says(read(), "mp_rank_01_001 is missing: its ranks are 2 of tensor parallelism times 2 stages"))
      << read();
  fs::remove_all(folder / "mp_rank_01_000");
  EXPECT_TRUE(says(read(), "was saved by 2 tensor parallel ranks times 2 stages; only 1 times 2 are there")) << read();
  save("run", form, layout);
  fs::remove(folder / "mp_rank_00_001" / "distrib_optim.pt");
  EXPECT_TRUE(says(read(), "is not the same on all tensor parallel ranks")) << read();
  save("run", form, layout);
  fs::create_directory(folder / "mp_rank_00_000_000");
  EXPECT_TRUE(says(read(), "holds mp_rank_00_000_000, which has no place")) << read();
}

TEST_F(MegatronRanks, AnotherModelThanTheRecipesIsNotSaved) {
  const Form form{false, true};
  const checkpoint::CheckpointLayout layout{2, 1, {{2}, {2}}, true};
  const auto saved = [&](const Form& other) {
    return story_of(
        [&] { save_megatron("run", {.iteration = 7}, model(other), recipe(form), DType::float32, mappings, layout); });
  };
  Form other = form;
  other.layers = 3;
  EXPECT_TRUE(
      says(saved(other), "decoder.layers.3.input_layernorm.weight is in the model that is to be saved, but not"))
      << saved(other);
  other = form;
  other.tied = false;
  EXPECT_TRUE(says(saved(other), "output_layer.weight is in the checkpoint, but not in the model")) << saved(other);
  other = form;
  other.inner = 32;
  EXPECT_TRUE(says(saved(other), "mlp.linear_fc1.weight is [32, 8], and [24, 8] in the model")) << saved(other);
  EXPECT_FALSE(fs::exists("run"));
}

TEST_F(MegatronRanks, PartsAreJoinedAsTheSavedRecipeDividesThem) {
  const Form form{true, true};
  const auto with_recipe = [&](const std::string& resolved, std::int64_t tensor) {
    const checkpoint::CheckpointLayout layout{tensor, 1, {{4}}, false};
    auto to_save = megatron_save("run", {.iteration = 7}, recipe(form), DType::float32, mappings, layout);
    to_save.files[checkpoint::recipe_blob] = resolved;
    fs::remove_all("run");
    checkpoint::save_all_ranks(megatron::MegatronFormat(), to_save, ranks_of(recipe(form), layout), model(form));
    return story_of([&] { megatron::MegatronCheckpoint("run", mappings); });
  };
  auto other = form;
  other.gated = false;
  EXPECT_EQ(with_recipe(options::write_yaml(recipe(form)), 2), "no error");
  const auto story = with_recipe(options::write_yaml(recipe(other)), 2);
  EXPECT_TRUE(says(story, "decoder.layers.0.mlp.linear_fc1.bias' is [24] on tensor-parallel rank 0, and [12] in"))
      << story;
  const auto none = with_recipe("model_config: {}", 2);
  EXPECT_TRUE(says(none, "joined as the model of each rank divides them, and that model cannot be constructed"))
      << none;
  EXPECT_EQ(with_recipe("model_config: {}", 1), "no error");  // one rank has every weight whole
}

TEST_F(MegatronRanks, NamesThatNoModelHasAreRefusedOrKeptAsTheyAre) {
  fs::create_directories("odd/iter_0000001/mp_rank_00");
  const auto story = [&](const std::string& name) {
    std::vector<float> four(4);
    torch::TorchFileWriter file;
    auto& p = file.pickle;
    p.empty_dict();
    p.mark();
    p.text("model");
    p.empty_dict();
    p.mark();
    p.text(name);
    file.tensor(Tensor(std::span(four), Shape{4}));
    p.set_items();
    p.set_items();
    file.write("odd/iter_0000001/mp_rank_00/model_optim_rng.pt");
    return story_of([&] { megatron::MegatronCheckpoint("odd/iter_0000001", mappings); });
  };
  EXPECT_EQ(story("decoder.layers.0.mlp.linear_fc2.bias"), "no error");
  EXPECT_EQ(story("decoder.layers.5"), "no error");
  EXPECT_EQ(story("decoder.layers.x.y"), "no error");
  EXPECT_TRUE(says(story("decoder.layers.9223372036854775807.mlp.linear_fc2.bias"), "of a layer beyond 4096"));
  fs::rename("odd/iter_0000001/mp_rank_00", "odd/iter_0000001/mp_rank_2000000000_2000000000");
  EXPECT_TRUE(
      says(story_of([&] { megatron::MegatronCheckpoint("odd/iter_0000001", mappings); }), "no place in a layout"));
}

TEST_F(MegatronRanks, ABufferOfAnotherLengthThanTheLayoutsIsRefused) {
  const auto folder = save("run", {}, {1, 1, {}, true});
  Form longer;
  longer.inner = 32;
  const auto other = save("other", longer, {1, 1, {}, true});
  fs::copy_file(other / "mp_rank_00" / "distrib_optim.pt", folder / "mp_rank_00" / "distrib_optim.pt",
                fs::copy_options::overwrite_existing);
  const auto story = story_of([&] { megatron::MegatronCheckpoint("run", mappings); });
  EXPECT_TRUE(says(story, "elements of 'param'; the model's layout makes")) << story;
}

}  // namespace
}  // namespace tessera
