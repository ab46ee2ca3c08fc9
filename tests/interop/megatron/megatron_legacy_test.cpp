// Checkpoints of Megatron-LM from before its core's GPTModel: other names, dicts in dicts, other orders of rows.
#include "framework/interop/megatron/megatron_legacy.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <span>

#include "framework/interop/megatron/megatron.h"
#include "framework/options/yaml.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Written by tests/peers/record_legacy.py with torch.
const fs::path legacy_runs = TESTS_DATA "/megatron/legacy";

class MegatronLegacy : public InOwnFolder {
 protected:
  options::Mappings mappings;

  /// The model of the case without arguments.
  static options::Value described() {
    return options::parse_yaml(R"(
model_config:
  num_layers: 2
  hidden_size: 8
  num_attention_heads: 4
  ffn_hidden_size: 12
  seq_length: 6
  max_position_embeddings: 6
  vocab_size: 24
  untie_embeddings_and_output_weights: false
)",
                               "test");
  }
};

TEST_F(MegatronLegacy, WhatEveryVersionSavedIsReadWhole) {
  std::size_t tensors = 0;
  for (const auto* run : {"version_0", "version_1", "version_2", "modellink"}) {
    const megatron::MegatronCheckpoint source(legacy_runs / run, mappings, described());
    std::size_t sums = 0;
    EXPECT_EQ(differing_sums(source, legacy_runs / run / "sums.json", sums), "") << run;
    EXPECT_EQ(3 * source.names().size(), sums) << run;  // with two tensors of optimizer state
    tensors += sums;
    const auto progress = source.progress().value_or(checkpoint::Progress{});
    EXPECT_EQ(progress.iteration, 5) << run;
    EXPECT_EQ(progress.updates, 5) << run;
    EXPECT_NO_THROW(source.verify()) << run;
  }
  EXPECT_EQ(tensors, 3U * (28 + 28 + 28 + 15));
}

TEST_F(MegatronLegacy, ArgumentsOfOldVersionsSayTheModel) {
  const auto recipe = megatron::MegatronCheckpoint(legacy_runs / "modellink", mappings).recipe();
  const auto said = [&](const char* path) { return recipe.at(path) == nullptr ? "nothing" : text(*recipe.at(path)); };
  EXPECT_EQ(said("model_config.position_embedding_type"), "rope");  // and not none, as add_position_embedding says
  EXPECT_EQ(said("model_config.norm_epsilon"), "1e-06");
  EXPECT_EQ(said("model_config.normalization"), "RMSNorm");
  EXPECT_EQ(said("model_config.hidden_act"), "swiglu");
  EXPECT_EQ(said("model_config.vocab_size"), "24");
  const auto plain = megatron::MegatronCheckpoint(legacy_runs / "version_2", mappings).recipe();
  EXPECT_EQ(plain.at("model_config.position_embedding_type"), nullptr);  // learned ones, the default
}

TEST_F(MegatronLegacy, WithoutArgumentsTheModelIsThatOfTheRecipe) {
  const megatron::MegatronCheckpoint source(legacy_runs / "version_0", mappings, described());
  EXPECT_EQ(text(*source.recipe().at("model_config.num_attention_heads")), "4");
  ASSERT_EQ(source.notes().size(), 1U);
  EXPECT_PRED2(says, source.notes()[0], "no 'args'; its model is that of the recipe given");
  EXPECT_PRED2(says, story_of([&] { megatron::MegatronCheckpoint(legacy_runs / "version_0", mappings); }),
               "whose rows of 'decoder.layers.0.self_attention.linear_qkv.weight' are ordered by the number of heads");
  auto three = described();
  three.set("model_config.num_attention_heads", options::Value::of("6", options::Origin{"test", 1, "", 1}));
  EXPECT_PRED2(says, story_of([&] { megatron::MegatronCheckpoint(legacy_runs / "version_0", mappings, three); }),
               "is [12, 8], which is not that of queries, keys and values of 3 heads");
}

TEST_F(MegatronLegacy, RowsOfEveryVersionBecomeThoseOfToday) {
  std::random_device seeds;
  const auto seed = seeds();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 50; ++i) {
    const std::int64_t heads = 1 + random() % 5, channels = 1 + random() % 4, columns = 1 + random() % 3;
    const bool bias = random() % 3 == 0, first = random() % 2 == 0;
    const auto rows = 3 * heads * channels, width = bias ? 1 : columns;
    std::vector<float> theirs(static_cast<std::size_t>(rows * width)), ours(theirs.size());
    // The number of each element says head, part, channel and column.
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t part = 0; part < 3; ++part)
        for (std::int64_t channel = 0; channel < channels; ++channel)
          for (std::int64_t column = 0; column < width; ++column) {
            const auto row =
                first ? part * heads * channels + head * channels + channel : head * channels * 3 + channel * 3 + part;
            theirs[static_cast<std::size_t>(row * width + column)] =
                static_cast<float>(((head * 3 + part) * channels + channel) * width + column);
          }
    const Tensor from{std::span(theirs), bias ? Shape{rows} : Shape{rows, columns}};
    megatron::copy_by_head(from, first ? megatron::FusedRows::parts_first : megatron::FusedRows::parts_last, heads,
                           std::as_writable_bytes(std::span(ours)));
    for (std::size_t k = 0; k < ours.size(); ++k) ASSERT_EQ(ours[k], static_cast<float>(k)) << i;
  }
}

TEST_F(MegatronLegacy, PartsThatAreNoGptAreRefusedByName) {
  const auto table = mappings.table("weights/megatron.yaml");
  const auto name = [&](const std::string& theirs) { return megatron::core_name_of_legacy(theirs, table); };
  EXPECT_EQ(name("language_model.transformer.layers.1.attention.dense.bias"),
            "decoder.layers.1.self_attention.linear_proj.bias");
  EXPECT_EQ(name("decoder.layers.0.input_layernorm.weight"), "decoder.layers.0.input_layernorm.weight");
  EXPECT_EQ(name("language_model.encoder.layers.0.self_attention.rotary_emb.inv_freq"), "");
  int refused = 0;
  for (const auto* theirs : {"language_model.decoder.layers.0.input_norm.weight", "language_model.pooler.dense.weight",
                             "language_model.embedding.tokentype_embeddings.weight",
                             "language_model.encoder.layers.0.mlp.local_experts.0.dense_h_to_4h.weight"}) {
    EXPECT_PRED2(says, story_of([&] { name(theirs); }), text("'", theirs, "' belongs to a part"));
    ++refused;
  }
  EXPECT_EQ(refused, 4);
}

TEST_F(MegatronLegacy, DictsWithoutEndAreRefused) {
  fs::create_directories("run/mp_rank_00");
  torch::TorchFileWriter file;
  auto& p = file.pickle;
  p.empty_dict();
  p.mark();
  p.text("model");
  for (int depth = 0; depth < 6; ++depth) {
    p.empty_dict();
    p.text("language_model");
  }
  p.none();
  for (int depth = 0; depth < 6; ++depth) p.set_item();
  p.set_items();
  file.write("run/mp_rank_00/model_optim_rng.pt");
  EXPECT_PRED2(says, story_of([&] { megatron::MegatronCheckpoint("run", mappings); }),
               "is not a tensor but a dict in 4 others");
}

}  // namespace
}  // namespace tessera
