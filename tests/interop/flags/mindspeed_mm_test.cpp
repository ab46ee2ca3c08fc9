// Scripts of MindSpeed-MM with the JSON files that they name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/interop/flags/flags_writer.h"
#include "framework/interop/flags/json_keys.h"
#include "framework/interop/flags/source.h"
#include "framework/interop/flags/tower_stages.h"
#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::string own_script = TESTS_DATA "/mindspeed_mm/train/finetune_qwen2vl.sh";
const std::string own_model = TESTS_DATA "/mindspeed_mm/settings/model.json";

flags::FlagTable mm_table() { return flags::FlagTable::named("mindspeed-mm", options::Mappings()); }

bool has_line(const Lines& lines, const std::string& words) {
  return std::any_of(lines.begin(), lines.end(),
                     [&words](const auto& line) { return line.find(words) != std::string::npos; });
}

struct Converted {
  explicit Converted(const std::string& script = own_script) {
    source = flags::read_source(script, {}, facts(), options::Mappings(), report);
  }
  std::string at(const std::string& option) const { return text_at(source.tree, option); }
  const flags::ConvertedFlag* flag(const std::string& name) const {
    const auto found = std::find_if(source.flags.begin(), source.flags.end(),
                                    [&name](const auto& one) { return one.given.flag == name; });
    return found == source.flags.end() ? nullptr : &*found;
  }
  options::Report report;
  flags::Source source;
};

/// A folder with a copy of the small model's file, changed, and flags that name it.
class ModelFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / text("tessera_mm_", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The text of the file with `from` replaced by `to`, which must be in it.
  static std::string changed(std::string words, const std::string& from, const std::string& to) {
    const auto at = words.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) words.replace(at, from.size(), to);
    return words;
  }
  void convert(const std::string& words, const Lines& more = {}) {
    const auto file = (folder_ / "model.json").string();
    std::ofstream(file) << words;
    report_ = {};
    source_ = flags::read_flags(with({"--mm-model", file, "--pipeline-model-parallel-size", "2"}, more), {}, facts(),
                                options::Mappings(), report_);
  }
  void convert_with(const std::string& from, const std::string& to, const Lines& more = {}) {
    convert(changed(read_file(own_model), from, to), more);
  }
  std::string at(const std::string& option) const { return text_at(source_.tree, option); }
  bool refuses(const std::string& words) const { return has_line(report_.problems(), words); }

  fs::path folder_;
  options::Report report_;
  flags::Source source_;
};

TEST(MindSpeedMm, AScriptAndItsFilesAreTheRunThatTheyDescribe) {
  const Converted one;
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.source.from, "mindspeed-mm");
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"model_config.use_visual_encoder", "true"},
      {"model_config.num_layers", "5"},
      {"model_config.hidden_size", "64"},
      {"model_config.ffn_hidden_size", "160"},
      {"model_config.num_attention_heads", "4"},
      {"model_config.group_query_attention", "true"},
      {"model_config.num_query_groups", "2"},
      {"model_config.position_embedding_type", "mrope"},
      {"model_config.mrope_section", "[2, 3, 3]"},
      {"model_config.rotary_base", "1000000.0"},
      {"model_config.normalization", "RMSNorm"},
      {"model_config.hidden_act", "swiglu"},
      {"model_config.add_bias_linear", "false"},
      {"model_config.qkv_has_bias", "true"},
      {"model_config.untie_embeddings_and_output_weights", "true"},
      {"model_config.vocab_size", "304"},
      {"model_config.seq_length", "256"},
      {"vision_config.num_layers", "3"},
      {"vision_config.hidden_size", "32"},
      {"vision_config.ffn_hidden_size", "96"},
      {"vision_config.num_attention_heads", "2"},
      {"vision_config.hidden_act", "quick_gelu"},
      {"vision_config.image_token_id", "280"},
      {"vision_config.vision_start_token_id", "281"},
      {"parallel_config.num_layer_list", "[[4], [4]]"},
      {"training_config.frozen_parameters", R"([vision_model\..*, vision_projection\..*])"},
      {"training_config.bf16", "true"},
      {"training_config.log_tps", "true"},
      {"training_config.load_checkpoint", "weights/mm"},
      {"training_config.profile", "true"},
      {"training_config.profile_ranks", "[0, 1]"},
      {"training_config.profile_step_start", "3"},
      {"training_config.eval_iters", "0"},
      {"dataset_config.global_batch_size", "16"},
      {"dataset_config.dataset_type", "mllm"},
      {"dataset_config.dataset", "./data/first.json,./data/second.json"},
      {"dataset_config.media_dir", "./data"},
      {"dataset_config.template", "qwen2vl"},
      {"dataset_config.model_name_or_path", "./weights/hf"},
      {"dataset_config.tokenizer_type", "HuggingFaceTokenizer"},
      {"dataset_config.tokenizer_model", "./weights/hf"},
      {"dataset_config.image_max_pixels", "65536"},
      {"dataset_config.mask_history", "true"},
      {"dataset_config.images", "images"},
      {"dataset_config.videos", "null"},
      {"dataset_config.observation_tag", "null"},
      {"dataset_config.patch_size", "14"},
      {"dataset_config.dataloader_type", "cyclic"},
      {"dataset_config.shuffle_epochs", "true"},
      {"dataset_config.data_sharding", "false"},
      {"optimizer_config.clip_grad", "0.0"}};
  for (const auto& [option, value] : expected) EXPECT_EQ(one.at(option), value) << option;
}

TEST(MindSpeedMm, EveryKeyHasAStatusAndFilesTakePrecedence) {
  const Converted one;
  for (const auto* ignored :
       {"text_decoder.disable_bias_linear", "export HCCL_CONNECT_TIMEOUT", "--variable-seq-lengths"})
    EXPECT_EQ(one.flag(ignored) ? one.flag(ignored)->status : flags::FlagStatus::unknown, flags::FlagStatus::ignored)
        << ignored;
  EXPECT_EQ(one.flag("export OWN_VARIABLE"), nullptr);
  EXPECT_TRUE(has_line(one.report.notes(),
                       "text_decoder.normalization takes precedence: model_config.normalization is "
                       "RMSNorm, not LayerNorm"));
  EXPECT_TRUE(has_line(one.report.notes(), "--mm-model is read from ")) << "the script's folder is not the run's";
  EXPECT_TRUE(has_line(one.report.notes(), "settings/model.json:")) << "with file and line";
}

TEST(MindSpeedMm, EveryKeyOfTheirExamplesHasARow) {
  const auto table = mm_table();
  std::ifstream file(TESTS_DATA "/mindspeed_mm/keys.txt");
  std::size_t count = 0;
  for (std::string key; std::getline(file, key); ++count) EXPECT_NE(table.find(key), nullptr) << key;
  EXPECT_GT(count, 290U);
}

TEST_F(ModelFile, FreezingNamesTheParametersOfEachPart) {
  const std::string tower = R"("freeze": true,
            "use_fused)",
                    tower_trained = R"("freeze": false,
            "use_fused)";
  convert_with(tower, tower_trained);
  EXPECT_EQ(at("training_config.frozen_parameters"), R"([vision_projection\..*])");
  convert_with(tower, R"("use_fused)");
  EXPECT_EQ(at("training_config.frozen_parameters"), R"([vision_projection\..*, vision_model\..*])")
      << "a tower is frozen unless the file says otherwise";
  const auto merger_left_out = changed(read_file(own_model), R"("freeze": true,
            "layernorm)",
                                       R"("layernorm)");
  convert(merger_left_out);
  EXPECT_EQ(at("training_config.frozen_parameters"), R"([vision_model\..*])") << "a merger is not";
  convert(changed(merger_left_out, R"("text_decoder": {)", R"("text_decoder": {"freeze": true,)"));
  EXPECT_EQ(at("training_config.frozen_parameters"), R"([vision_model\..*, (embedding|decoder|output_layer)\..*])");
  EXPECT_EQ(report_.problems(), Lines{});
}

TEST_F(ModelFile, WhatIsLeftOutHasTheirDefaultWhateverTheFlagsSay) {
  convert_with(R"("normalization": "RMSNorm",)", "", {"--normalization", "RMSNorm"});
  EXPECT_EQ(at("model_config.normalization"), "LayerNorm");
  convert_with(R"("gated_linear_unit": true,)", "", {"--swiglu"});
  EXPECT_EQ(at("model_config.hidden_act"), "silu");
  convert_with(R"("hidden_dropout": 0.0,
        "position)",
               R"("position)", {"--hidden-dropout", "0"});
  EXPECT_EQ(at("model_config.hidden_dropout_rate"), "0.1");
  convert_with(R"("untie_embeddings_and_output_weights": true,)", "");
  EXPECT_EQ(at("model_config.untie_embeddings_and_output_weights"), "true");
  EXPECT_EQ(report_.problems(), Lines{});
  convert_with(R"("hidden_dropout": 0.0,)", "");
  EXPECT_TRUE(refuses("image_encoder.vision_encoder.hidden_dropout: '0.1' is refused, only 0 is accepted"));
}

TEST_F(ModelFile, WithoutFlagsOfATypeTheFileSaysIt) {
  convert(read_file(own_model));
  EXPECT_EQ(at("training_config.bf16"), "true");
  convert(read_file(own_model), {"--fp16"});
  EXPECT_EQ(at("training_config.fp16"), "true");
}

TEST_F(ModelFile, AnotherModelIsRefusedByItsNameAlone) {
  convert(R"({"pre": 1, "model_id": "internvl", "text_decoder": {"model_id": "qwen2lm", "own": 3}})");
  EXPECT_EQ(report_.problems().size(), 1U) << joined(report_.problems(), "\n");
  EXPECT_TRUE(refuses("model_id: 'internvl' is refused, only qwen2vl or Qwen2VlPipeline is accepted"))
      << joined(report_.problems());
  convert_with(R"("model_id": "qwen2vit")", R"("model_id": "InternViT")");
  EXPECT_TRUE(refuses("'InternViT'"));
}

TEST_F(ModelFile, AWrongKeyOrValueIsNamedWithItsLine) {
  convert_with(R"("num_layers": 5)", R"("num_layer": 5)");
  EXPECT_TRUE(refuses("model.json:49: text_decoder.num_layer: unknown key")) << joined(report_.problems(), "\n");
  EXPECT_TRUE(refuses("did you mean 'text_decoder.num_layers'?"));
  convert_with(R"("text_encoder": null)", R"("text_encoder": {"hidden_size": 3})");
  EXPECT_TRUE(refuses("text_encoder: a text encoder is not supported"));
  convert_with(R"("input_size": 32)", R"("input_size": 33)");
  EXPECT_TRUE(refuses("image_encoder.vision_projector.input_size: is 33, but vision_config.hidden_size is 32"));
  convert_with(R"("ffn_hidden_size": 128)", R"("ffn_hidden_size": 129)");
  EXPECT_TRUE(refuses("vision_projector.ffn_hidden_size: is 129, but the merger's inner size is 128"));
  convert_with(R"("freeze": true)", R"("freeze": "yes")");
  EXPECT_TRUE(refuses("vision_encoder.freeze: takes true or false, not 'yes'"));
}

TEST_F(ModelFile, RecordsThatAreStreamedAreNotShuffledAndAttrPackingPacks) {
  const auto file = (folder_ / "data.json").string();
  const auto convert_data = [&](const std::string& basic, const std::string& attr, const std::string& shuffle) {
    std::ofstream(file) << R"({"dataset_param": {"dataset_type": "huggingface", "attr": {)" << attr
                        << R"(}, "basic_parameters": {"dataset": "a.json", )" << basic
                        << R"(}}, "dataloader_param": {"drop_last": true, "shuffle": )" << shuffle << "}}";
    report_ = {};
    source_ = flags::read_flags({"--mm-data", file}, {}, facts(), options::Mappings(), report_);
    EXPECT_EQ(report_.problems(), Lines{});
  };
  convert_data(R"("streaming": false)", R"("packing": false)", "true");
  EXPECT_EQ(at("dataset_config.shuffle_epochs"), "true");
  EXPECT_EQ(at("dataset_config.packing"), "false");
  convert_data(R"("streaming": true)", R"("packing": false)", "true");
  EXPECT_EQ(at("dataset_config.shuffle_epochs"), "false");
  convert_data(R"("streaming": false)", R"("packing": false)", "false");
  EXPECT_EQ(at("dataset_config.shuffle_epochs"), "false");
  convert_data(R"("packing": true, "neat_packing": true, "preprocessing_batch_size": 10)", R"("packing": true)",
               "true");
  EXPECT_EQ(at("dataset_config.packing"), "true");
  EXPECT_EQ(at("dataset_config.neat_packing"), "true");
  EXPECT_EQ(at("dataset_config.preprocessing_batch_size"), "10");
}

TEST_F(ModelFile, TheDataFileSaysWhatIsReadAndEvaluated) {
  const auto file = (folder_ / "data.json").string();
  const auto convert_data = [&](const std::string& basic, const std::string& more = "") {
    std::ofstream(file) << R"({"dataset_param": {"dataset_type": "huggingface", "basic_parameters": {)" << basic << "}"
                        << more << "}}";
    report_ = {};
    source_ = flags::read_flags({"--mm-data", file, "--eval-iters", "5"}, {}, facts(), options::Mappings(), report_);
    EXPECT_EQ(report_.problems(), Lines{});
  };
  convert_data(R"("dataset": "a.json, b.json", "max_samples": "None")");
  EXPECT_EQ(at("dataset_config.dataset"), "a.json, b.json");
  EXPECT_EQ(at("dataset_config.media_dir"), "data") << "their default";
  EXPECT_EQ(at("dataset_config.max_samples"), "nothing");
  EXPECT_EQ(at("training_config.eval_iters"), "0");
  EXPECT_EQ(at("dataset_config.role_tag"), "nothing") << "without attr ours stand";
  convert_data(R"("dataset": ["a.json", "b.json"], "val_rate": 0.25)", R"(, "attr": {"user_tag": null})");
  EXPECT_EQ(at("dataset_config.dataset"), "a.json, b.json");
  EXPECT_EQ(at("training_config.eval_iters"), "5");
  EXPECT_EQ(at("dataset_config.val_rate"), "0.25");
  EXPECT_EQ(at("dataset_config.role_tag"), "from");
  EXPECT_EQ(at("dataset_config.user_tag"), "null") << "null is a value";
  EXPECT_EQ(at("dataset_config.images"), "null");
  EXPECT_EQ(at("dataset_config.observation_tag"), "observation");
}

TEST_F(ModelFile, BrokenFilesAreNamed) {
  convert("{\"model_id\": \"qwen2vl\",\n \"text_decoder\": }");
  EXPECT_TRUE(refuses("model.json")) << joined(report_.problems());
  EXPECT_TRUE(refuses("line 2")) << joined(report_.problems());
  convert("[1, 2]");
  EXPECT_TRUE(refuses("is a JSON array, not an object")) << joined(report_.problems());
  convert("{\n}");
  EXPECT_TRUE(refuses("sets nothing")) << joined(report_.problems());
  options::Report report;
  flags::read_flags({"--mm-model", "nowhere/model.json"}, {}, facts(), options::Mappings(), report);
  EXPECT_TRUE(has_line(report.problems(), "--mm-model: there is no file nowhere/model.json"));
  options::Report tools;
  flags::read_flags({"--mm-model", own_model, "--mm-tool", "nowhere/tools.json"}, {}, facts(), options::Mappings(),
                    tools);
  EXPECT_EQ(tools.problems(), Lines{}) << "a profiler's settings are not needed";
  EXPECT_TRUE(has_line(tools.notes(), "there is no file nowhere/tools.json"));
}

// Whatever stands in a file, it becomes flags or problems.
TEST_F(ModelFile, DamagedFilesAreReadOrReported) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto table = mm_table();
  const auto whole = read_file(own_model);
  const auto file = (folder_ / "damaged.json").string();
  const std::string letters = "{}[],:\"\\0-.eE \t\nntu\xff";
  for (int repeat = 0; repeat < 300; ++repeat) {
    auto words = whole.substr(0, repeat % 3 == 0 ? random() % whole.size() : whole.size());
    for (auto changes = random() % 4; changes > 0 && !words.empty(); --changes)
      words[random() % words.size()] = letters[random() % letters.size()];
    std::ofstream(file) << words;
    options::Report report;
    EXPECT_NO_THROW({
      const auto keys = flags::keys_of_file(file, table, report);
      EXPECT_TRUE(!keys.empty() || !report.good()) << "seed " << seed << ", file " << repeat;
    }) << "seed "
       << seed << ", file " << repeat;
  }
}

TEST_F(ModelFile, OfAKeyGivenTwiceTheLastCountsAsInPython) {
  convert_with("\"text_decoder\": {", "\"text_decoder\": {\n\"num_layers\": 7, \"num_layers\": 9,");
  EXPECT_EQ(report_.problems(), Lines{});
  EXPECT_EQ(at("model_config.num_layers"), "5");
  EXPECT_TRUE(has_line(report_.notes(), "'num_layers' is given twice, first in line ")) << joined(report_.notes());
  EXPECT_TRUE(has_line(report_.notes(), "; the last counts")) << joined(report_.notes());
}

TEST_F(ModelFile, LayersOfBothModelsAreAddedOnEachStage) {
  convert_with(R"("pipeline_num_layers": [3, 0])", R"("pipeline_num_layers": [[1, 2], [0, 0]])");
  EXPECT_TRUE(refuses("has 2 chunks of stages and text_decoder.pipeline_num_layers 1")) << joined(report_.problems());
  convert(changed(changed(read_file(own_model), "[3, 0]", "[[1, 2], [0, 0]]"), "[1, 4]", "[[0, 1], [3, 1]]"));
  EXPECT_EQ(report_.problems(), Lines{});
  EXPECT_EQ(at("parallel_config.num_layer_list"), "[[1, 3], [3, 1]]");
  const std::string turned = "[chunk][stage] in the file; parallel_config.num_layer_list is [stage][chunk]";
  EXPECT_EQ(
      std::ranges::count_if(report_.notes(), [&](const auto& line) { return line.find(turned) != std::string::npos; }),
      1)
      << "once of both keys: " << joined(report_.notes());
  convert(read_file(own_model), {"--pipeline-model-parallel-size", "1"});
  EXPECT_EQ(at("parallel_config.num_layer_list"), "nothing") << "their program does not read the lists then";
  convert_with(R"("pipeline_num_layers": [3, 0])", R"("pipeline_num_layers": null)");
  EXPECT_TRUE(refuses("image_encoder.vision_encoder.pipeline_num_layers is not given")) << joined(report_.problems());
}

TEST(TowerStages, ListsThatAreNoLayoutAreRefused) {
  const auto error = [](const std::string& tower, const std::string& text_model) -> std::string {
    try {
      flags::added_stages({"tower", tower, 4}, {"text", text_model, 6}, 2);
    } catch (const ConfigError& problem) {
      return problem.what();
    }
    return "none";
  };
  EXPECT_EQ(error("4, 0", "0, 6"), "none");
  EXPECT_EQ(error("2, 2", "0, 6"), "none");
  EXPECT_EQ(error("4, 0, 0", "0, 6"),
            "tower has 3 stages, but pipeline_model_parallel_size is 2; give a number of layers for each stage");
  EXPECT_EQ(error("4, 0", "0, 5"), "text adds up to 5 layers, but num_layers is 6; correct one of them");
  EXPECT_EQ(error("2, 2", "1, 5"),
            "text begins on stage 0 of chunk 0, but tower ends on stage 1 of chunk 0; the tower's layers must come "
            "first");
  EXPECT_NE(error("4, -1", "0, 6").find("give a list of numbers of layers"), std::string::npos);
  EXPECT_NE(error("4, x", "0, 6").find("give a list of numbers of layers"), std::string::npos);
}

// Any layout whose tower comes first is read, and each chunk has the layers of both models.
TEST(TowerStages, EveryLayoutOfATowerBeforeATextModelIsAdded) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto pick = [&random](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto stages = 1 + pick(5), chunks = 1 + pick(3), places = stages * chunks, meeting = pick(places - 1);
    std::vector<std::int64_t> tower(static_cast<std::size_t>(places)), model(tower);
    for (std::int64_t i = 0; i < places; ++i) {
      if (i <= meeting) tower[static_cast<std::size_t>(i)] = pick(4);
      if (i >= meeting) model[static_cast<std::size_t>(i)] = pick(4);
    }
    const auto said = [&](const char* key, const std::vector<std::int64_t>& counts) {
      flags::StageLayers all{key, "", 0};
      for (std::int64_t i = 0; i < places; ++i) {
        const auto count = counts[static_cast<std::size_t>(i)];
        all.words += text(i == 0 ? "[" : i % stages == 0 ? "], [" : ", ", count);
        all.layers += count;
      }
      all.words += "]";
      return all;
    };
    const auto sum = flags::added_stages(said("tower", tower), said("text", model), stages);
    parallel::ChunkNumbers list;
    ASSERT_TRUE(parallel::ChunkNumbers::Option::read(options::Value::of(sum.list, {}), list));
    EXPECT_EQ(sum.chunks, chunks);
    for (std::int64_t i = 0; i < places; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(list.stages.at(static_cast<std::size_t>(i % stages)).at(static_cast<std::size_t>(i / stages)),
                tower[at] + model[at])
          << "seed " << seed << ", layout " << repeat;
    }
  }
}

TEST(MindSpeedMm, AScriptInItsFlagsIsNotWritten) {
  EXPECT_THROW(flags::write_flags(recipe_of(megatron_recipe(small_run())), mm_table(), {}), ConfigError);
}

}  // namespace
}  // namespace tessera
