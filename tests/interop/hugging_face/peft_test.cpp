#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/merge_check.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_export.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/options/yaml.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const fs::path recorded_tuning = TESTS_DATA "/finetune";  // made by PEFT

using TensorChange = std::function<void(std::map<std::string, Tensor>& tensors)>;

class PeftTest : public InOwnFolder {
 protected:
  options::Mappings mappings;

  static std::string base_of(const std::string& name) { return name.substr(0, name.find('_')); }
  HuggingFaceModel base(const std::string& name) const { return {recorded_tuning / "bases" / name / "hf", mappings}; }
  PeftAdapter opened(const fs::path& folder, const std::string& base_name) const {
    const HuggingFaceModel model(recorded_tuning / "bases" / base_name / "hf", mappings);
    WeightShapes shapes;
    for (const auto& name : model.names()) shapes.emplace(name, model.shape(name));
    return {folder, model.table(), shapes, mappings};
  }
  PeftAdapter recorded(const std::string& name) const {
    return opened(recorded_tuning / "lora" / name / "adapter", base_of(name));
  }
  /// A copy of a recorded adapter with other tensors, in this test's own folder.
  fs::path changed(const std::string& name, const TensorChange& change) {
    const auto from = recorded_tuning / "lora" / name / "adapter";
    const fs::path into = text("changed_", ++copies_);
    fs::copy(from, into);
    fs::permissions(into / peft_weights_file, fs::perms::owner_all);
    const checkpoint::SafetensorsReader file(from / peft_weights_file);
    std::map<std::string, Tensor> tensors;
    for (const auto& one : file.names()) {
      const auto tensor = file.tensor(one);
      auto& own = memory_.emplace_back(tensor.raw().begin(), tensor.raw().end());
      tensors[one] = Tensor(std::span(own), tensor.dtype(), tensor.shape());
    }
    change(tensors);
    checkpoint::write_safetensors(into / peft_weights_file, tensors);
    return into;
  }
  std::string story(const std::string& name, const TensorChange& change) {
    const auto folder = changed(name, change);
    return story_of([&] { (void)opened(folder, base_of(name)); });
  }
  static std::vector<float> values(const checkpoint::WeightSource& source, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(source.shape(name).elements()));
    source.read(name, Tensor(std::span(out), source.shape(name)));
    return out;
  }

 private:
  int copies_ = 0;
  std::deque<std::vector<std::byte>> memory_;
};

const std::string first_query = "base_model.model.model.layers.0.self_attn.q_proj";

/// PEFT's copies of embeddings that are not trained; they are left out.
constexpr const char* base_copy = ".base_layer.weight";

TEST_F(PeftTest, AnAdapterComesBackWithTheSameTensorsAndOptions) {
  for (const char* name : {"gpt2_c_attn", "llama_qv", "llama_dora_vocabulary", "mixtral_experts",
                           "qwen2_bias_lora_only", "qwen2_dora_embedding", "qwen2_tied_vocabulary"}) {
    SCOPED_TRACE(name);
    const auto adapter = recorded(name);
    const PeftNames names(base(base_of(name)).table());
    PeftExport how{.lora_config = adapter.config().lora_config};
    how.labels.base = adapter.config().base;
    write_peft(name, names, adapter, how, mappings);
    const auto from = recorded_tuning / "lora" / name / "adapter";
    const checkpoint::SafetensorsReader was(from / peft_weights_file), is(fs::path(name) / peft_weights_file);
    auto names_of_adapter = was.names();
    std::erase_if(names_of_adapter, [](const std::string& one) { return one.ends_with(base_copy); });
    EXPECT_EQ(is.names(), names_of_adapter);
    for (const auto& one : names_of_adapter) {
      const auto a = was.tensor(one), b = is.tensor(one);
      ASSERT_EQ(a.shape(), b.shape());
      EXPECT_EQ(std::memcmp(a.raw().data(), b.raw().data(), a.bytes()), 0) << one;
    }
    const auto before = read_json(read_file(from / peft_config_file));
    const auto after = read_json(read_file(fs::path(name) / peft_config_file));
    for (const auto& [key, value] : after.items()) EXPECT_EQ(value, before.at(key)) << key;
  }
}

/// PEFT: "`layers_to_transform` cannot be used when `target_modules` is a str."
TEST_F(PeftTest, ModulesThatAPatternAndNumbersOfLayersNameAreListed) {
  const auto adapter = recorded("llama_qv");
  const PeftNames names(base("llama").table());
  const auto written = [&](const std::string& folder, const std::string& targets, const std::string& layers) {
    PeftExport how{.lora_config = adapter.config().lora_config};
    auto& fields = how.lora_config.fields;
    std::erase_if(fields, [](const auto& field) { return field.name == "target_modules"; });
    const auto more = options::parse_yaml("{target_modules: " + targets + ", layers_to_transform: " + layers + "}", "");
    fields.insert(fields.end(), more.fields.begin(), more.fields.end());
    write_peft(folder, names, adapter, how, mappings);
    return read_json(read_file(fs::path(folder) / peft_config_file));
  };
  const auto pattern = written("pattern", "'.*(q|v)_proj'", "[0, 1, 2]");
  EXPECT_TRUE(pattern.at("target_modules").is_array()) << pattern.dump();
  EXPECT_TRUE(!pattern.contains("layers_to_transform") || pattern.at("layers_to_transform").is_null());
  EXPECT_EQ(opened("pattern", "llama").names(), adapter.names());
  const auto list = written("list", "[q_proj, v_proj]", "[0, 1, 2]");
  EXPECT_EQ(list.at("target_modules").size(), 2U);
  EXPECT_EQ(list.at("layers_to_transform").size(), 3U);
  EXPECT_TRUE(written("alone", "'.*(q|v)_proj'", "null").at("target_modules").is_string());
}

TEST_F(PeftTest, OptionsOfAnAdapterAreThoseThatDifferFromPeftsDefaults) {
  const auto config = recorded("llama_qv").config().lora_config;
  ASSERT_NE(config.find("lora_rank"), nullptr);
  EXPECT_EQ(config.find("lora_rank")->scalar, "4");
  EXPECT_EQ(config.find("target_modules")->items.size(), 2U);
  EXPECT_EQ(config.find("use_dora"), nullptr);
  EXPECT_EQ(recorded("qwen2_bias_lora_only").config().lora_config.find("bias")->scalar, "lora_only");
}

TEST_F(PeftTest, EveryKeyThatCannotBeUsedIsNamedAtOnce) {
  const auto said = story_of([&] {
    (void)parse_peft_config(R"({"peft_type": "LORA", "r": 4, "use_qalora": true, "lora_bias": true, "new_key": 3,
                            "layers_pattern": "experts", "init_lora_weights": "pissa"})",
                            "a.json", mappings);
  });
  for (const char* key : {"use_qalora is true", "lora_bias is true", "new_key is 3", "layers_pattern is \"experts\"",
                          "init_lora_weights is \"pissa\""})
    EXPECT_NE(said.find(key), std::string::npos) << said;
  EXPECT_NE(story_of([&] { (void)parse_peft_config(R"({"peft_type": "IA3"})", "a.json", mappings); }).find("IA3"),
            std::string::npos);
  EXPECT_NE(story_of([&] { (void)parse_peft_config("[", "a.json", mappings); }).find("is no JSON object"),
            std::string::npos);
}

TEST_F(PeftTest, UnknownKeysThatSayNothingAreAccepted) {
  const auto config = parse_peft_config(
      R"({"r": 4, "new_key": null, "other": {}, "third": false, "layers_pattern": ["layers"]})", "a.json", mappings);
  EXPECT_EQ(config.lora_config.fields.size(), 2U) << "rank and alpha, whose defaults are not ours";
  EXPECT_TRUE(config.notes.empty());
  EXPECT_EQ(parse_peft_config("{}", "a.json", mappings).lora_config.find("lora_rank")->scalar, "8");
  EXPECT_EQ(parse_peft_config("{}", "a.json", mappings).lora_config.find("lora_alpha")->scalar, "8");
}

TEST_F(PeftTest, OneLayerMayBeANumberOrAList) {
  const auto layers = [&](const std::string& given) {
    const auto config = parse_peft_config(text(R"({"layers_to_transform": )", given, "}"), "a.json", mappings);
    const auto* value = config.lora_config.find("layers_to_transform");
    return value == nullptr ? "nothing" : text(*value);
  };
  EXPECT_EQ(layers("0"), "[0]");
  EXPECT_EQ(layers("[1, 2]"), "[1, 2]");
  EXPECT_EQ(layers("null"), "nothing");
}

TEST_F(PeftTest, ModulesToSaveAreAllWhoseNamesEndAlike) {
  const auto folder = changed("llama_qv", [](auto& tensors) {
    static float ones[32];
    for (const auto* module : {"norm", "layers.0.input_layernorm", "layers.1.self_attn.q_norm"})
      tensors[text("base_model.model.model.", module, ".weight")] = Tensor(std::span<float>(ones), {32});
  });
  auto config = read_file(folder / peft_config_file);
  const std::string none = "\"modules_to_save\": null";
  ASSERT_NE(config.find(none), std::string::npos);
  config.replace(config.find(none), none.size(), "\"modules_to_save\": [\"norm\", \"lm_head\"]");
  fs::permissions(folder / peft_config_file, fs::perms::owner_all);
  write_file_atomic(folder / peft_config_file, config);
  const auto read = read_peft_folder(folder, mappings);
  const auto* saved = read.lora_config.find("modules_to_save");
  ASSERT_NE(saved, nullptr);
  EXPECT_EQ(text(*saved), "[norm, input_layernorm, q_norm]");
}

TEST_F(PeftTest, TheFusedExpertsAdapterBecomesOneForEachExpert) {
  const auto adapter = recorded("mixtral_experts");
  const checkpoint::SafetensorsReader file(recorded_tuning / "lora/mixtral_experts/adapter" / peft_weights_file);
  const std::string theirs = "base_model.model.model.layers.1.mlp.experts.base_layer";
  const auto a = file.tensor(theirs + ".lora_A.weight"), b = file.tensor(theirs + ".lora_B.weight");
  const std::int64_t E = 4, r = 2, in = 32;
  for (std::int64_t e = 0; e < E; ++e) {
    const auto layer = text("decoder.layers.1.mlp.experts.local_experts.", e, ".linear_fc1");
    const auto own_a = values(adapter, layer + ".lora_A.weight"), own_b = values(adapter, layer + ".lora_B.weight");
    ASSERT_EQ(adapter.shape(layer + ".lora_A.weight"), (Shape{r, in}));
    for (std::int64_t j = 0; j < r; ++j) {
      EXPECT_EQ(own_a[static_cast<std::size_t>(j * in + 5)],
                a.floats()[static_cast<std::size_t>((e * r + j) * in + 5)]);
      EXPECT_EQ(own_b[static_cast<std::size_t>(7 * r + j)],
                b.floats()[static_cast<std::size_t>(7 * r * E + j * E + e)]);
    }
  }
}

TEST_F(PeftTest, NamesWithTheNameOfTheAdapterAreRead) {
  const auto folder = changed("llama_qv", [](auto& tensors) {
    std::map<std::string, Tensor> renamed;
    for (const auto& [name, tensor] : tensors)
      renamed[name.substr(0, name.rfind(".weight")) + ".default.weight"] = tensor;
    tensors = renamed;
  });
  const auto adapter = opened(folder, "llama"), plain = recorded("llama_qv");
  ASSERT_EQ(adapter.names(), plain.names());
  for (const auto& name : plain.names()) EXPECT_EQ(values(adapter, name), values(plain, name)) << name;
}

TEST_F(PeftTest, RowsOfABiasThatIsNotTrainedStayAsTheyAre) {
  const auto adapter = recorded("qwen2_bias_lora_only");
  const std::string name = "decoder.layers.0.self_attention.linear_qkv.bias";
  std::vector<float> out(static_cast<std::size_t>(adapter.shape(name).elements()), 9.0F);
  adapter.read(name, Tensor(std::span(out), adapter.shape(name)));
  EXPECT_EQ(std::count(out.begin(), out.end(), 9.0F), 16) << "the 2 key heads of 8 channels";
  std::vector<float> part(8, 9.0F);  // the key of the first group, after its two queries
  adapter.read_box({name, adapter.shape(name), {16}, Tensor(std::span(part), Shape{8})});
  EXPECT_EQ(std::count(part.begin(), part.end(), 9.0F), 8);
}

TEST_F(PeftTest, AnAdapterOfAnotherBaseIsRefusedByName) {
  const auto said = story_of([&] { (void)opened(recorded_tuning / "lora/llama_qv/adapter", "gpt2"); });
  EXPECT_NE(said.find("does not belong to this base model"), std::string::npos) << said;
  EXPECT_NE(said.find("the base has no linear layer model.layers.0.self_attn.q_proj"), std::string::npos) << said;
  EXPECT_NE(said.find("../../bases/llama/hf"), std::string::npos) << said;
  const auto qwen = story_of([&] { (void)opened(recorded_tuning / "lora/mixtral_experts/adapter", "qwen2"); });
  EXPECT_NE(qwen.find("the base has no linear layer model.layers.0.mlp.experts"), std::string::npos) << qwen;
}

TEST_F(PeftTest, DamagedAdaptersAreRefusedByName) {
  const auto expect_said = [&](const char* expected, const std::string& name, const TensorChange& change) {
    const auto said = story(name, change);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  };
  const auto query_a = first_query + ".lora_A.weight", query_b = first_query + ".lora_B.weight";
  expect_said("is NaN", "llama_qv", [&](auto& tensors) { tensors[query_a].floats()[3] = std::nanf(""); });
  expect_said("every tensor of the adapter is zero", "llama_qv", [](auto& tensors) {
    for (auto& one : tensors) std::fill(one.second.raw().begin(), one.second.raw().end(), std::byte{0});
  });
  // As a program writes them that multiplies by 0.
  expect_said("every tensor of the adapter is zero", "llama_qv", [](auto& tensors) {
    for (auto& one : tensors) std::ranges::fill(one.second.floats(), -0.0F);
  });
  expect_said("linear_qkv.q_proj: has no lora_B", "llama_qv", [&](auto& tensors) { tensors.erase(query_b); });
  expect_said("A is [4, 32] and B is [16, 4]; the base has 32 rows", "llama_qv",
              [&](auto& tensors) { tensors[query_b] = tensors[query_b].slice(0, 16); });
  expect_said("differs from model.embed_tokens.weight", "qwen2_tied_vocabulary",
              [](auto& tensors) { tensors["base_model.model.lm_head.weight"].floats()[0] += 1; });
  const auto folder = changed("llama_qv", [](auto&) {});
  fs::resize_file(folder / peft_weights_file, fs::file_size(folder / peft_weights_file) - 10);
  EXPECT_NE(story_of([&] { (void)opened(folder, "llama"); }).find("adapter_model.safetensors"), std::string::npos);
}

TEST_F(PeftTest, AnAdapterWithAFactorOfZerosInEveryLayerChangesNothing) {
  const auto zeros_of = [&](const std::vector<std::string>& ends) {
    return [ends](auto& tensors) {
      for (auto& [name, tensor] : tensors)
        for (const auto& end : ends)
          if (name.ends_with(end)) std::ranges::fill(tensor.floats(), end.size() % 2 == 0 ? 0.0F : -0.0F);
    };
  };
  const auto changes = [&](const std::string& name, const std::vector<std::string>& ends) {
    return !opened(changed(name, zeros_of(ends)), base_of(name)).changes_nothing();
  };
  EXPECT_TRUE(changes("llama_qv", {}));
  EXPECT_TRUE(changes("llama_qv", {"q_proj.lora_B.weight"}));
  EXPECT_FALSE(changes("llama_qv", {"lora_B.weight"}));
  EXPECT_FALSE(changes("llama_qv", {"q_proj.lora_B.weight", "v_proj.lora_A.weight"}));
  EXPECT_TRUE(changes("qwen2_tied_vocabulary", {"lora_B.weight"})) << "it has modules that were trained whole";
}

TEST_F(PeftTest, LogitsDifferByPartsOfTheLargest) {
  EXPECT_EQ(difference({1, -4}, {1, -3}), 0.25);
  EXPECT_EQ(difference({0.25F, 0}, {0, 0}), 0.25) << "of 1, where all are smaller";
  EXPECT_EQ(difference({1, 2}, {1, 2}), 0);
  for (const auto& wrong : {std::vector<float>{1, std::nanf("")}, std::vector<float>{1}})
    EXPECT_FALSE(difference({1, 2}, wrong) <= most_of_merge);
}

}  // namespace
}  // namespace tessera::hugging_face
