#include "framework/interop/megatron/megatron.h"

#include <deque>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/model/moe_options.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;
using namespace std::string_literals;  // bytes with zeros among them

const fs::path recorded = TESTS_DATA "/megatron";  // made by tests/peers/record_megatron.py

class MegatronTest : public InOwnFolder {
 protected:
  options::Mappings mappings;

  /// All that a checkpoint holds, in memory.
  std::vector<checkpoint::TensorRange> everything(const megatron::MegatronCheckpoint& source) {
    std::vector<checkpoint::TensorRange> ranges;
    auto names = source.names();
    const auto slots = source.optimizer_names();
    names.insert(names.end(), slots.begin(), slots.end());
    for (const auto& name : names) {
      auto& values = memory_.emplace_back(floats(source, name));
      ranges.push_back(checkpoint::whole(name, Tensor(std::span(values), source.shape(name))));
    }
    return ranges;
  }
  void put(const std::string& bytes) {
    fs::create_directories("m/iter_0000001/mp_rank_00");
    fs::create_directories("m");
    write("m/latest_checkpointed_iteration.txt", "1");
    torch::ZipWriter zip("m/iter_0000001/mp_rank_00/model_optim_rng.pt");
    zip.add("model_optim_rng/data.pkl", bytes);
    zip.finish();
  }
  std::string story_of_pickle(const std::string& bytes) {
    put(bytes);
    return story_of([&] { megatron::MegatronCheckpoint("m", mappings); });
  }

 private:
  std::deque<std::vector<float>> memory_;
};

TEST_F(MegatronTest, WeightsAreMastersUnderOurNames) {
  const megatron::MegatronCheckpoint source(recorded, mappings);
  EXPECT_EQ(source.names().size(), 8U);
  EXPECT_EQ(source.shape("decoder.layers.0.mlp.linear_fc1.weight"), (Shape{32, 8}));
  const auto norm = floats(source, "decoder.layers.0.input_layernorm.weight");  // number 2 of the record
  EXPECT_FLOAT_EQ(norm[3], 2.0001F + 3.F / 1024);
  EXPECT_FLOAT_EQ(floats(source, "decoder.layers.0.pre_mlp_layernorm.weight")[0], 5.0001F);
  EXPECT_EQ(source.dtype("decoder.final_layernorm.weight"), DType::float32);
}

TEST_F(MegatronTest, ArgumentsThatChangeTheModelAreReadOrRefused) {
  const auto tree = megatron::recipe_of_arguments(
      parse_json(R"({"num_layers": 4, "no_rope_freq": [0, 1, 0, 1], "window_size": [3, 0], "sliding_window": null,
                     "embedding_multiplier_scale": 12.5, "output_multiplier_scale": 3, "post_norm": true})"),
      "args", mappings);
  const auto option = [&](const std::string& name) {
    const auto* value = tree.at("model_config." + name);
    return value == nullptr ? "nothing" : text(*value);
  };
  EXPECT_EQ(option("window_size"), "[3, 0]");
  EXPECT_EQ(option("embedding_multiplier"), "12.5");
  EXPECT_EQ(option("output_multiplier"), "3");
  EXPECT_EQ(option("use_sandwich_norm"), "true");
  EXPECT_EQ(option("sliding_window"), "nothing");
  model::LayerFrequency freq;
  ASSERT_TRUE(model::LayerFrequency::Option::read(*tree.at("model_config.no_rope_freq"), freq));
  EXPECT_EQ(freq.list, (std::vector<std::int64_t>{0, 1, 0, 1}));
  const auto scaled = parse_json(R"({"num_layers": 4, "softmax_scale": 0.5})");
  EXPECT_PRED2(says, story_of([&] { megatron::recipe_of_arguments(scaled, "args", mappings); }),
               "softmax_scale is 0.5");
}

TEST_F(MegatronTest, DamageIsNamedWhenAWeightIsRead) {
  fs::copy(recorded, "copy", fs::copy_options::recursive);
  const std::string name = "decoder.layers.0.input_layernorm.weight";
  const auto norm = floats(megatron::MegatronCheckpoint("copy", mappings), name);
  const fs::path file = "copy/iter_0000005/mp_rank_00/model_optim_rng.pt";
  auto bytes = read_file(file);
  const std::string_view values(reinterpret_cast<const char*>(norm.data()), norm.size() * sizeof(float));
  auto at = bytes.find(values);
  ASSERT_NE(at, std::string::npos);
  for (; at != std::string::npos; at = bytes.find(values, at)) bytes[at] ^= 1;
  write(file.string(), bytes);
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_PRED2(says, story_of([&] { floats(megatron::MegatronCheckpoint("copy", mappings), name); }),
                 "its CRC is not the one it was saved with");
}

TEST_F(MegatronTest, OptimizerStateFollowsWhatGroupsSayNotTheirOrder) {
  const megatron::MegatronCheckpoint source(recorded, mappings);
  EXPECT_EQ(source.optimizer_names().size(), 16U);
  EXPECT_FLOAT_EQ(floats(source, "optimizer.exp_avg.embedding.word_embeddings.weight")[0], 100.F);
  EXPECT_FLOAT_EQ(floats(source, "optimizer.exp_avg.decoder.layers.0.input_layernorm.weight")[1], 102 + 1.F / 1024);
  EXPECT_FLOAT_EQ(floats(source, "optimizer.exp_avg_sq.decoder.layers.0.mlp.linear_fc2.weight")[2], 207 + 2.F / 1024);
}

TEST_F(MegatronTest, ProgressAndRecipeAreInOurWords) {
  const megatron::MegatronCheckpoint source(recorded, mappings);
  const auto progress = LibraryJson::parse(checkpoint::write_progress(*source.progress()));
  EXPECT_EQ(progress["iteration"], 5);
  EXPECT_EQ(progress["updates"], 4);
  EXPECT_EQ(progress["consumed_samples"], 40);
  EXPECT_EQ(progress["skipped_samples"], 8);
  EXPECT_EQ(progress["seed"], 42);
  EXPECT_EQ(progress["schedule"]["num_steps"], 32);
  EXPECT_EQ(progress["schedule"]["lr_decay_style"], "cosine");
  const auto recipe = source.recipe();
  const auto said = [&](const char* path) { return recipe.at(path) == nullptr ? "nothing" : text(*recipe.at(path)); };
  EXPECT_EQ(said("model_config.hidden_act"), "swiglu");
  EXPECT_EQ(said("model_config.vocab_size"), "16");
  EXPECT_EQ(said("model_config.qkv_has_bias"), "nothing");
  EXPECT_EQ(said("model_config.num_query_groups"), "nothing");
  EXPECT_EQ(said("training_config.bf16"), "true");
  EXPECT_EQ(said("optimizer_config.betas"), "[0.9, 0.95]");
}

TEST_F(MegatronTest, WhatIsSavedReadsBackTheSame) {
  const megatron::MegatronCheckpoint source(recorded, mappings);
  const auto ranges = everything(source);
  for (const auto type : {DType::float32, DType::bfloat16, DType::float16}) {
    const auto root = std::string(name_of(type));
    const auto folder = save_megatron(root, *source.progress(), ranges, source.recipe(), type, mappings);
    EXPECT_EQ(folder, fs::path(root) / "iter_0000005");
    EXPECT_EQ(read_file(root + "/latest_checkpointed_iteration.txt"), "5");
    const megatron::MegatronCheckpoint again(root, mappings);
    for (const auto& range : ranges) {
      const auto expected = range.tensor.floats();
      EXPECT_EQ(floats(again, range.name), std::vector<float>(expected.begin(), expected.end())) << range.name;
    }
    EXPECT_EQ(checkpoint::write_progress(*again.progress()), checkpoint::write_progress(*source.progress()));
    if (type == DType::bfloat16) {
      EXPECT_EQ(text(again.recipe()), text(source.recipe()));
    }
  }
}

/// Megatron-LM makes such groups, and finds those of a checkpoint by their number and order.
TEST_F(MegatronTest, WeightsWithALearningRateOfTheirOwnAreInAGroupOfTheirOwn) {
  const megatron::MegatronCheckpoint source(recorded, mappings);
  const auto ranges = everything(source);
  auto recipe = source.recipe();
  recipe.set("optimizer_config.decoupled_lr", options::Value::of("0.25", {}));
  recipe.set("optimizer_config.decoupled_min_lr", options::Value::of("0.05", {}));
  const auto folder = save_megatron("apart", *source.progress(), ranges, recipe, DType::float32, mappings);
  const torch::TorchFile file(folder / "mp_rank_00/model_optim_rng.pt");
  const auto* groups = file.root().find("optimizer")->find("param_groups");
  ASSERT_EQ(groups->items.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(groups->items[i]->find("is_decoupled_lr")->flag, i == 0) << i;
  const auto& own = *groups->items[0];
  EXPECT_EQ(own.find("params")->items.size(), 1U) << "the embedding, to which the output layer is tied";
  EXPECT_EQ(own.find("max_lr")->real, 0.25);
  EXPECT_EQ(own.find("min_lr")->real, 0.05);
  EXPECT_EQ(own.find("wd_mult")->real, 1);
  EXPECT_EQ(groups->items[1]->find("max_lr")->real, source.progress()->schedule->max_lr);
  const megatron::MegatronCheckpoint again("apart", mappings);
  for (const auto& range : ranges) {
    const auto expected = range.tensor.floats();
    EXPECT_EQ(floats(again, range.name), std::vector<float>(expected.begin(), expected.end())) << range.name;
  }
  EXPECT_EQ(text(*again.recipe().at("optimizer_config.decoupled_lr")), "0.25");
}

TEST_F(MegatronTest, OtherFormatsAreRefusedByName) {
  put("\x80\x02}.");
  EXPECT_TRUE(says(story_of([&] { megatron::MegatronCheckpoint("m", mappings); }), "its file holds no 'model'"));
  write("m/iter_0000001/metadata.json", "{}");
  EXPECT_TRUE(says(story_of([&] { megatron::MegatronCheckpoint("m", mappings); }), "torch_dist, not torch"));
  EXPECT_TRUE(
      says(story_of([&] { megatron::MegatronCheckpoint("nowhere", mappings); }), "is not a Megatron-LM checkpoint"));
  fs::create_directory("odd");
  write("odd/latest_checkpointed_iteration.txt", "many");
  EXPECT_TRUE(
      says(story_of([&] { megatron::MegatronCheckpoint("odd", mappings); }), "says 'many'; an iteration was expected"));
}

TEST_F(MegatronTest, AFileThatWouldExecuteSomethingIsRefusedByTheNameOfIt) {
  const auto story = story_of_pickle(
      "\x80\x02"
      "cposix\nsystem\nX\x04\0\0\0true\x85R."s);
  EXPECT_TRUE(says(story, "it names posix system")) << story;
  EXPECT_TRUE(says(story, "nothing of the file was executed")) << story;
  EXPECT_TRUE(says(story_of_pickle("\x80\x02i__builtin__\neval\n."),
                   "opcode 0x69 at byte 2 is not among those that make data"));
}

TEST_F(MegatronTest, HostileAndDamagedPicklesAreRefused) {
  const std::string start = "\x80\x02";
  EXPECT_TRUE(says(story_of_pickle(start + "X\xff\xff\xff\x7f"
                                           "abc"),
                   "in the middle of a value"));
  EXPECT_TRUE(says(story_of_pickle(start), "in the middle of a value"));
  EXPECT_TRUE(says(story_of_pickle(start + "h\x05."), "recalls value 5, which was never kept"));
  EXPECT_TRUE(says(story_of_pickle(start + "R."), "takes a value, but the stack has none"));
  EXPECT_TRUE(says(story_of_pickle(start + "t."), "takes the items above a mark, but no mark is on the stack"));
  EXPECT_TRUE(says(story_of_pickle(start + "NN."), "ends with 2 values"));
  EXPECT_TRUE(says(story_of_pickle(start + "Nu."), "above a mark"));
  EXPECT_TRUE(says(story_of_pickle(start + "}(Nu."), "a key without a value"));
  EXPECT_TRUE(says(story_of_pickle(start + "K\x01N"
                                           "a."),
                   "adds to something that is not a list"));
  EXPECT_TRUE(says(story_of_pickle("\x80\x09."), "protocol 9"));
  EXPECT_TRUE(
      says(story_of_pickle(start + std::string(100, '(') + "N" + std::string(100, 't') + "."), "holds no 'model'"));
}

TEST_F(MegatronTest, ATensorBeyondItsStorageIsRefused) {
  fs::create_directories("m/iter_0000001/mp_rank_00");
  std::vector<float> four(4);
  torch::TorchFileWriter file;
  auto& p = file.pickle;
  p.empty_dict();
  p.mark();
  p.text("model");
  p.empty_dict();
  p.mark();
  p.text("decoder.final_layernorm.weight");
  file.tensor(Tensor(std::span(four), Shape{4}));
  p.set_items();
  p.set_items();
  const auto bytes = p.finish();
  const auto with = [&](const std::string& from, const std::string& to) {
    auto changed = bytes;
    changed.replace(changed.rfind(from), from.size(), to);
    torch::ZipWriter zip("m/iter_0000001/mp_rank_00/model_optim_rng.pt");
    zip.add("x/data.pkl", changed);
    zip.add("x/data/0", std::as_bytes(std::span(four)));
    zip.finish();
    return story_of([&] {
      const megatron::MegatronCheckpoint checkpoint("m/iter_0000001", mappings);
      floats(checkpoint, "decoder.final_layernorm.weight");
    });
  };
  EXPECT_EQ(with("(", "("), "no error");
  const auto shape = "(J\x04\0\0\0t"s;
  EXPECT_TRUE(says(with(shape, "(J\x05\0\0\0t"s), "needs 20 bytes from 0 of a storage of 16"));
  EXPECT_TRUE(says(with(shape, "(J\xff\xff\xff\xfft"s), "have the entry -1; expected integers of at least 0"));
}

TEST_F(MegatronTest, ArchivesCutShortAreRefused) {
  const auto whole_file = read_file(recorded / "iter_0000005/mp_rank_00/model_optim_rng.pt");
  const auto bytes = std::as_bytes(std::span(whole_file.data(), whole_file.size()));
  EXPECT_NO_THROW(torch::read_zip_directory(bytes, "x"));
  for (std::size_t size = 0; size < bytes.size(); size += 97)
    EXPECT_THROW(torch::read_zip_directory(bytes.first(size), "x"), ConfigError) << size;
}

}  // namespace
}  // namespace tessera
