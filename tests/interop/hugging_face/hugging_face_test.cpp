#include "framework/interop/hugging_face/hugging_face.h"

#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/files.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;

class HuggingFaceTest : public InOwnFolder {
 protected:
  options::Mappings mappings;

  /// config.json of a case with something changed, in this test's own folder.
  void write_config(const std::string& of, const std::function<void(LibraryJson&)>& change) {
    auto json = LibraryJson::parse(read_file(models / of / "hf/config.json"));
    change(json);
    write("config.json", json.dump());
  }
  std::string config_story(const std::string& of, const std::function<void(LibraryJson&)>& change) {
    write_config(of, change);
    return story_of([&] { hugging_face::read_hugging_face_config("config.json", mappings); });
  }
  std::string said(const options::Value& config, const std::string& key) {
    const auto* value = config.find(key);
    return value == nullptr ? "nothing" : value->scalar;
  }
  static std::vector<float> floats(const hugging_face::HuggingFaceModel& model, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(model.shape(name).elements()));
    model.read(name, out);
    return out;
  }
};

TEST_F(HuggingFaceTest, ConfigBecomesModelConfigInOurWords) {
  const auto gpt2 = hugging_face::read_hugging_face_config(models / "gpt2/hf/config.json", mappings).model_config;
  EXPECT_EQ(said(gpt2, "hidden_size"), "48");
  EXPECT_EQ(said(gpt2, "max_position_embeddings"), "64");
  EXPECT_EQ(said(gpt2, "hidden_act"), "gelu");
  EXPECT_EQ(said(gpt2, "untie_embeddings_and_output_weights"), "false");
  EXPECT_EQ(said(gpt2, "ffn_hidden_size"), "nothing");  // null: the family's habit, which is ours too
  EXPECT_EQ(said(gpt2, "hidden_dropout_rate"), "0.0");
  const auto llama = hugging_face::read_hugging_face_config(models / "llama/hf/config.json", mappings).model_config;
  EXPECT_EQ(said(llama, "group_query_attention"), "true");
  EXPECT_EQ(said(llama, "num_query_groups"), "2");
  EXPECT_EQ(said(llama, "hidden_act"), "swiglu");
  EXPECT_EQ(said(llama, "rotary_base"), "10000.0");
  EXPECT_EQ(said(llama, "qkv_has_bias"), "false");
}

TEST_F(HuggingFaceTest, TheSpellingsOfBothVersionsMeanTheSame) {
  for (const char* name : {"gpt2", "llama"}) {
    auto five = hugging_face::read_hugging_face_config(models / name / "hf/config.json", mappings).model_config;
    auto four =
        hugging_face::read_hugging_face_config(models / name / "hf/config.transformers4.json", mappings).model_config;
    const auto sorted = [](options::Value& config) {
      std::map<std::string, std::string> all;
      for (const auto& [key, value] : config.fields) all[key] = value.scalar;
      return all;
    };
    EXPECT_EQ(sorted(five), sorted(four)) << name;
  }
}

TEST_F(HuggingFaceTest, WhatThisProgramHasNothingForIsRefusedByName) {
  const auto refused = [&](const std::string& of, const std::function<void(LibraryJson&)>& change) {
    return config_story(of, change);
  };
  EXPECT_NE(refused("llama", [](LibraryJson& c) { c["model_type"] = "mamba"; })
                .find("model_type mamba is not supported; supported are bloom, deepseek_v2, deepseek_v3, falcon, "
                      "gemma, gemma2, gemma3_text, glm4, gpt2, gpt_neox, gpt_oss, granite"),
            std::string::npos);
  EXPECT_NE(
      refused("llama", [](LibraryJson& c) { c["model_type"] = "common"; }).find("model_type common is not supported"),
      std::string::npos);
  EXPECT_NE(refused("llama", [](LibraryJson& c) { c["clever_new_thing"] = 3; }).find("clever_new_thing is 3: no row"),
            std::string::npos);
  EXPECT_EQ(refused("llama", [](LibraryJson& c) { c["clever_new_thing"] = nullptr; }), "no error");
  EXPECT_NE(
      refused("llama", [](LibraryJson& c) { c["hidden_act"] = "tanh"; }).find("hidden_act is tanh: have {silu: swiglu"),
      std::string::npos);
  EXPECT_NE(refused("llama",
                    [](LibraryJson& c) {
                      c["rope_scaling"] = {{"rope_type", "llama3"}};
                    })
                .find("rope_scaling.rope_type is llama3"),
            std::string::npos);
  EXPECT_NE(refused("llama", [](LibraryJson& c) { c["rope_theta"] = 5; })
                .find("rope_theta is 5: but rope_parameters.rope_theta is 10000.0"),
            std::string::npos);
  EXPECT_NE(refused("llama",
                    [](LibraryJson& c) {
                      c["layer_types"] = {"full_attention", "sliding_attention"};
                    })
                .find("layer_types is sliding_attention"),
            std::string::npos);
  EXPECT_NE(
      refused("gpt2", [](LibraryJson& c) { c["scale_attn_weights"] = false; }).find("scale_attn_weights is false"),
      std::string::npos);
  const auto two = refused("gpt2", [](LibraryJson& c) {
    c["activation_function"] = "tanh";
    c["unheard_of"] = "x";
  });
  EXPECT_NE(two.find("activation_function"), std::string::npos);
  EXPECT_NE(two.find("unheard_of"), std::string::npos);
}

TEST_F(HuggingFaceTest, KeysWithoutEffectAreIgnoredAndNamedInOneLine) {
  write_config("llama", [](LibraryJson& c) {
    c["_attn_implementation_autoset"] = true, c["unsloth_fixed"] = true, c["unsloth_version"] = "2025.1";
    c["tokenizer_class"] = "LlamaTokenizer", c["transformers.js_config"] = {{"dtype", "q4"}}, c["temperature"] = 0.7;
    c["num_labels"] = 1, c["id2label"] = {{"0", "LABEL_0"}};
  });
  const auto config = hugging_face::read_hugging_face_config("config.json", mappings);
  ASSERT_EQ(config.notes.size(), 1);
  EXPECT_EQ(config.notes[0],
            "config.json: ignored, because they do not change the model: _attn_implementation_autoset, id2label, "
            "num_labels, temperature, tokenizer_class, transformers.js_config, unsloth_fixed, unsloth_version");
  write_config("llama", [](LibraryJson&) {});
  EXPECT_TRUE(hugging_face::read_hugging_face_config("config.json", mappings).notes.empty());
}

TEST_F(HuggingFaceTest, KeysThatChangeTheModelAreRefusedWithTheRemedy) {
  for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
    const auto story = config_story("llama", [&](LibraryJson& c) { c[key] = {{"bits", 4}}; });
    EXPECT_TRUE(says(story, text(key, " is {\"bits\":4}: "))) << story;
    EXPECT_TRUE(says(story, text("--ignore-key ", key, ", or training_config.ignore_config_keys: [", key, "]")))
        << story;
  }
  const auto unknown = config_story("llama", [](LibraryJson& c) { c["clever_new_thing"] = 3; });
  EXPECT_TRUE(says(unknown, "--ignore-key clever_new_thing")) << unknown;
  // Nothing can be left out of a file that lacks a key.
  const auto lacking = config_story("llama", [](LibraryJson& c) { c["rope_parameters"] = {{"rope_type", "linear"}}; });
  EXPECT_FALSE(says(lacking, "--ignore-key")) << lacking;
}

TEST_F(HuggingFaceTest, KeysToIgnoreAreReadAsIfTheyWereNotInTheFile) {
  mappings.ignore_keys({"clever_new_thing", "rope_parameters", "attention_bias", "not_there"});
  write_config("llama", [](LibraryJson& c) {
    c["clever_new_thing"] = 3, c["attention_bias"] = true;
    c["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 500.0}};
  });
  const auto config = hugging_face::read_hugging_face_config("config.json", mappings);
  EXPECT_EQ(said(config.model_config, "rope_scaling_type"), "none");
  EXPECT_EQ(said(config.model_config, "rotary_base"), "10000");
  EXPECT_EQ(said(config.model_config, "qkv_has_bias"), "nothing");
  EXPECT_EQ(config.notes, (std::vector<std::string>{"config.json: read as if these keys were not in it, as asked: "
                                                    "attention_bias, clever_new_thing, rope_parameters",
                                                    "config.json: has none of these keys, which are to be ignored: "
                                                    "not_there"}));
}

TEST_F(HuggingFaceTest, PythonCodeOfTheFamilysOwnClassIsNotRunAndOfAnotherRefused) {
  write_config("llama", [](LibraryJson& c) {
    c["auto_map"] = {{"AutoConfig", "configuration_llama.LlamaConfig"},
                     {"AutoModelForCausalLM", "modeling_llama.LlamaForCausalLM"}};
  });
  const auto config = hugging_face::read_hugging_face_config("config.json", mappings);
  ASSERT_EQ(config.notes.size(), 1);
  EXPECT_TRUE(says(config.notes[0], "auto_map names Python code, which is not run")) << config.notes[0];
  const auto other = [](LibraryJson& c) { c["auto_map"] = {{"AutoModelForCausalLM", "modeling_x.CleverForCausalLM"}}; };
  const auto story = config_story("llama", other);
  EXPECT_TRUE(says(story, "auto_map names Python code with the class CleverForCausalLM")) << story;
  EXPECT_TRUE(says(story, "--ignore-key auto_map")) << story;
  mappings.ignore_keys({"auto_map"});
  EXPECT_EQ(config_story("llama", other), "no error");
}

TEST_F(HuggingFaceTest, WindowsOfQwenAreThoseOfItsLayers) {
  const auto windows = [&](const char* family, const std::function<void(LibraryJson&)>& change) {
    write_config("llama", [&](LibraryJson& c) {
      c["model_type"] = family, c["use_sliding_window"] = true, c["sliding_window"] = 8;
      change(c);
    });
    const auto config = hugging_face::read_hugging_face_config("config.json", mappings).model_config;
    const auto* types = config.find("layer_types");
    return said(config, "sliding_window") + (types == nullptr ? "" : " " + text(*types));
  };
  for (const char* family : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows(family, [](LibraryJson&) {}), "nothing");  // the first 28 layers have none
    EXPECT_EQ(windows(family, [](LibraryJson& c) { c["max_window_layers"] = 3; }), "nothing");
    EXPECT_EQ(windows(family, [](LibraryJson& c) { c["max_window_layers"] = 0; }), "8");
    EXPECT_EQ(windows(family, [](LibraryJson& c) { c["max_window_layers"] = 1; }),
              "8 [full_attention, sliding_attention, sliding_attention]");
    EXPECT_EQ(windows(family, [](LibraryJson& c) { c["max_window_layers"] = 0, c["use_sliding_window"] = false; }),
              "nothing");
    EXPECT_EQ(windows(family,
                      [](LibraryJson& c) {
                        c["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
                      }),
              "8 [sliding_attention, full_attention, full_attention]");
  }
  EXPECT_EQ(windows("qwen2_moe", [](LibraryJson&) {}), "8 [sliding_attention, full_attention, sliding_attention]");
  EXPECT_EQ(windows("qwen3_moe", [](LibraryJson&) {}), "8");
  const auto story = config_story("llama", [](LibraryJson& c) {
    c["model_type"] = "qwen2", c["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  });
  EXPECT_TRUE(says(story, "layer_types has sliding_attention, but use_sliding_window is not true")) << story;
}

TEST_F(HuggingFaceTest, WhatAFileLeavesOutIsWhatTheFamilyMeansWithoutIt) {
  const auto read = [&](const std::string& words) {
    return hugging_face::parse_hugging_face_config(words, "config.json", mappings).model_config;
  };
  const std::string sizes =
      R"("vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 32, "intermediate_size": 8})";
  EXPECT_EQ(said(read(R"({"model_type": "gpt_neox", )" + sizes), "use_parallel_residual"), "true");
  EXPECT_EQ(
      said(read(R"({"model_type": "gpt_neox", "use_parallel_residual": false, )" + sizes), "use_parallel_residual"),
      "false");
  EXPECT_EQ(said(read(R"({"model_type": "mistral", )" + sizes), "sliding_window"), "4096");
  EXPECT_EQ(said(read(R"({"model_type": "mistral", )" + sizes), "num_query_groups"), "8");
  EXPECT_EQ(said(read(R"({"model_type": "mistral", "sliding_window": null, )" + sizes), "sliding_window"), "nothing");
  EXPECT_EQ(said(read(R"({"model_type": "llama", )" + sizes), "num_query_groups"), "nothing");
  EXPECT_EQ(said(read(R"({"model_type": "gemma", )" + sizes), "kv_channels"), "256");
  EXPECT_EQ(said(read(R"({"model_type": "gemma", )" + sizes), "hidden_act"), "geglu");
  EXPECT_EQ(said(read(R"({"model_type": "gemma", "hidden_act": "gelu", )" + sizes), "hidden_act"), "geglu");
  EXPECT_EQ(said(read(R"({"model_type": "qwen3", )" + sizes), "qk_layernorm"), "true");
}

TEST_F(HuggingFaceTest, BentRotaryFrequenciesAreReadInBothSpellings) {
  const auto changed = [&](const std::function<void(LibraryJson&)>& change) {
    write_config("llama", change);
    return hugging_face::read_hugging_face_config("config.json", mappings).model_config;
  };
  const LibraryJson llama3 = {{"rope_type", "llama3"},
                              {"factor", 4.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 32}};
  for (const bool five : {true, false}) {
    const auto config = changed([&](LibraryJson& c) {
      c.erase("rope_parameters");
      c[five ? "rope_parameters" : "rope_scaling"] = llama3;
    });
    EXPECT_EQ(said(config, "rope_scaling_type"), "llama3");
    EXPECT_EQ(said(config, "rope_scaling_factor"), "4.0");
    EXPECT_EQ(said(config, "rope_scaling_original_max_position_embeddings"), "32");
    EXPECT_EQ(said(config, "rotary_seq_len_interpolation_factor"), "nothing");
  }
  const auto linear = changed([](LibraryJson& c) {
    c.erase("rope_parameters");
    c["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  });
  EXPECT_EQ(said(linear, "rope_scaling_type"), "none");
  EXPECT_EQ(said(linear, "rotary_seq_len_interpolation_factor"), "2.0");
  EXPECT_NE(config_story("llama", [](LibraryJson& c) { c["rope_parameters"]["rope_type"] = "longrope"; })
                .find("rope_parameters.rope_type is longrope: have"),
            std::string::npos);
}

TEST_F(HuggingFaceTest, FusedProjectionsOfGpt2BecomeGroupedRows) {
  const hugging_face::HuggingFaceModel model(models / "gpt2/hf", mappings);
  const checkpoint::SafetensorsReader file(models / "gpt2/hf/model.safetensors");
  const auto theirs = file.tensor("transformer.h.1.attn.c_attn.weight").floats();  // [48, 144]
  const auto ours = floats(model, "decoder.layers.1.self_attention.linear_qkv.weight");
  EXPECT_EQ(model.shape("decoder.layers.1.self_attention.linear_qkv.weight"), (Shape{144, 48}));
  for (std::size_t head = 0; head < 4; ++head)
    for (std::size_t kind = 0; kind < 3; ++kind)
      for (std::size_t channel = 0; channel < 12; ++channel)
        for (std::size_t in = 0; in < 48; ++in)
          ASSERT_EQ(ours[((head * 3 + kind) * 12 + channel) * 48 + in],
                    theirs[in * 144 + kind * 48 + head * 12 + channel]);
  EXPECT_EQ(model.shape("decoder.layers.0.mlp.linear_fc1.weight"), (Shape{192, 48}));
  EXPECT_FALSE(model.has("output_layer.weight"));
}

TEST_F(HuggingFaceTest, SeparateProjectionsOfLlamaAreJoinedByGroupsAndGateComesFirst) {
  const hugging_face::HuggingFaceModel model(models / "llama/hf", mappings);
  const checkpoint::SafetensorsReader file(models / "llama/hf/model.safetensors");
  const auto q = file.tensor("model.layers.2.self_attn.q_proj.weight").floats();
  const auto k = file.tensor("model.layers.2.self_attn.k_proj.weight").floats();
  const auto v = file.tensor("model.layers.2.self_attn.v_proj.weight").floats();
  const auto ours =
      floats(model, "decoder.layers.2.self_attention.linear_qkv.weight");  // 2 groups of 2 q, k, v; 12 channels
  const std::size_t head = 12 * 48;
  for (std::size_t group = 0; group < 2; ++group)
    for (std::size_t i = 0; i < head; ++i) {
      const auto* row = ours.data() + group * 4 * head;
      ASSERT_EQ(row[i], q[2 * group * head + i]);
      ASSERT_EQ(row[head + i], q[(2 * group + 1) * head + i]);
      ASSERT_EQ(row[2 * head + i], k[group * head + i]);
      ASSERT_EQ(row[3 * head + i], v[group * head + i]);
    }
  const auto gate = file.tensor("model.layers.0.mlp.gate_proj.weight").floats();
  const auto up = file.tensor("model.layers.0.mlp.up_proj.weight").floats();
  const auto fc1 = floats(model, "decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(fc1.front(), gate.front());
  EXPECT_EQ(fc1[gate.size()], up.front());
  EXPECT_TRUE(model.has("output_layer.weight"));
}

TEST_F(HuggingFaceTest, TheWayBackGivesTheirTensorsBitForBitAndAllOfThem) {
  for (const char* name : {"gpt2", "llama"}) {
    const hugging_face::HuggingFaceModel model(models / name / "hf", mappings);
    const checkpoint::SafetensorsReader file(models / name / "hf");
    std::set<std::string> given_back;
    for (const auto& ours : model.names())
      for (const auto& theirs : model.theirs(ours, floats(model, ours))) {
        const auto expected = file.tensor(theirs.name).floats();
        EXPECT_EQ(theirs.shape, file.shape(theirs.name));
        EXPECT_EQ(theirs.elements, std::vector<float>(expected.begin(), expected.end())) << theirs.name;
        given_back.insert(theirs.name);
      }
    const auto all = file.names();
    EXPECT_EQ(given_back, std::set<std::string>(all.begin(), all.end())) << name;
  }
}

/// The tensors of a case under other names, in this test's own folder.
void write_renamed(const fs::path& of, const std::function<std::string(const std::string&)>& rename) {
  const checkpoint::SafetensorsReader file(of);
  std::map<std::string, Tensor> tensors;
  for (const auto& name : file.names())
    if (const auto renamed = rename(name); !renamed.empty()) tensors[renamed] = file.tensor(name);
  checkpoint::write_safetensors("model.safetensors", tensors);
}

TEST_F(HuggingFaceTest, ThePublishedSpellingOfGpt2WithMasksAndWithoutPrefixIsReadToo) {
  write_config("gpt2", [](LibraryJson&) {});
  const checkpoint::SafetensorsReader file(models / "gpt2/hf");
  std::map<std::string, Tensor> tensors;
  for (const auto& name : file.names()) tensors[name.substr(std::string("transformer.").size())] = file.tensor(name);
  tensors["h.0.attn.bias"] = file.tensor("transformer.ln_f.bias");
  checkpoint::write_safetensors("model.safetensors", tensors);
  const hugging_face::HuggingFaceModel bare(".", mappings), usual(models / "gpt2/hf", mappings);
  EXPECT_EQ(floats(bare, "embedding.word_embeddings.weight"), floats(usual, "embedding.word_embeddings.weight"));
}

TEST_F(HuggingFaceTest, MissingAndUnknownTensorsAreNamed) {
  write_config("llama", [](LibraryJson&) {});
  write_renamed(models / "llama/hf", [](const std::string& name) {
    if (name == "model.layers.1.mlp.up_proj.weight") return std::string();
    return name == "model.norm.weight" ? "model.final_norm.weight" : name;
  });
  const auto story = story_of([&] { hugging_face::HuggingFaceModel model(".", mappings); });
  EXPECT_NE(story.find("missing:\n  model.layers.1.mlp.up_proj.weight\n  model.norm.weight"), std::string::npos)
      << story;
  EXPECT_NE(story.find("unexpected:\n  model.final_norm.weight"), std::string::npos) << story;
}

TEST_F(HuggingFaceTest, MoreLayersInTheFilesThanInTheConfigAreNotDroppedInSilence) {
  write_config("llama", [](LibraryJson& c) { c["num_hidden_layers"] = 2; });
  write_renamed(models / "llama/hf", [](const std::string& name) { return name; });
  EXPECT_NE(story_of([&] {
              hugging_face::HuggingFaceModel model(".", mappings);
            }).find("model.layers.2.mlp.down_proj.weight"),
            std::string::npos);
}

TEST_F(HuggingFaceTest, HeadsThatDoNotFitTheProjectionAreRefused) {
  write_config("llama", [](LibraryJson& c) { c["num_key_value_heads"] = 4; });
  write_renamed(models / "llama/hf", [](const std::string& name) { return name; });
  EXPECT_NE(story_of([&] {
              hugging_face::HuggingFaceModel model(".", mappings);
            }).find("has shape [96, 48]; expected 144 rows"),
            std::string::npos);
}

TEST_F(HuggingFaceTest, Bfloat16WeightsInSeveralFilesAreWidened) {
  write_config("llama", [](LibraryJson&) {});
  const checkpoint::SafetensorsReader file(models / "llama/hf");
  std::map<std::string, std::map<std::string, Tensor>> files;
  std::deque<std::vector<bfloat16>> memory;
  LibraryJson map;
  for (const auto& name : file.names()) {
    const auto part = name.find("layers.1") != std::string::npos ? "b.safetensors" : "a.safetensors";
    auto& halves = memory.emplace_back(static_cast<std::size_t>(file.shape(name).elements()));
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = bfloat16(file.tensor(name).floats()[i]);
    files[part][name] = Tensor(std::span(halves), file.shape(name));
    map[name] = part;
  }
  for (const auto& [name, tensors] : files) checkpoint::write_safetensors(name, tensors);
  write("model.safetensors.index.json", LibraryJson{{"weight_map", map}}.dump());
  const hugging_face::HuggingFaceModel rounded(".", mappings), exact(models / "llama/hf", mappings);
  const std::string name = "decoder.layers.1.self_attention.linear_qkv.weight";
  const auto a = floats(rounded, name), b = floats(exact, name);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], static_cast<float>(bfloat16(b[i])));
}

TEST_F(HuggingFaceTest, AnIndexThatIsNotThatOfItsFilesIsNamed) {
  write_config("llama", [](LibraryJson&) {});
  const checkpoint::SafetensorsReader file(models / "llama/hf");
  std::map<std::string, std::map<std::string, Tensor>> files;
  LibraryJson map;
  for (const auto& name : file.names()) {
    const auto part = name.find("layers.1") != std::string::npos ? "b.safetensors" : "a.safetensors";
    files[part][name] = file.tensor(name);
    map[name] = part;
  }
  const auto story = [&](const LibraryJson& index) {
    write("model.safetensors.index.json", LibraryJson{{"weight_map", index}}.dump());
    return story_of([&] { hugging_face::HuggingFaceModel model(".", mappings); });
  };
  const std::string missing = "model.layers.1.mlp.up_proj.weight";
  for (const auto& [name, tensors] : files) checkpoint::write_safetensors(name, tensors);
  EXPECT_EQ(story(map), "no error");
  auto changed = map;
  changed.erase(missing);
  EXPECT_PRED2(says, story(changed), "index.json: does not name tensor '" + missing + "', which b.safetensors has");
  changed[missing] = "c.safetensors";
  EXPECT_PRED2(says, story(changed),
               "index.json: names c.safetensors for tensor '" + missing + "', but that file is not");
  changed[missing] = "a.safetensors";
  EXPECT_PRED2(says, story(changed), "tensor '" + missing + "' is not in a.safetensors where it should be");
  std::vector<float> other(file.tensor("model.layers.1.self_attn.k_proj.weight").floats().size() * 2);
  const auto shape = file.shape("model.layers.1.self_attn.k_proj.weight");
  files["b.safetensors"]["model.layers.1.self_attn.k_proj.weight"] =
      Tensor(std::span<float>(other), Shape{shape[0], 2 * shape[1]});
  checkpoint::write_safetensors("b.safetensors", files["b.safetensors"]);
  EXPECT_PRED2(says, story(map), "self_attn.k_proj.weight of");
  EXPECT_PRED2(says, story(map), "a file is of another model than config.json");
}

TEST_F(HuggingFaceTest, EveryTableOfAFamilyNamesATableOfWeights) {
  int families = 0;
  for (const auto& name : mappings.names()) {
    if (name.rfind("models/", 0) != 0 || name == "models/common.yaml") continue;
    ++families;
    const auto family = hugging_face::hugging_face_table(mappings, name.substr(7, name.size() - 12));
    ASSERT_NE(family.find("weights"), nullptr) << name;
    const auto weights = mappings.table(family.find("weights")->scalar);
    const model::WeightLayout layout{
        .towers = parallel::Towers({{.name = "vision_model.decoder", .layers = 2}, {.name = "decoder", .layers = 2}}),
        .heads = {{4, 4, 8}, {4, 2, 8}},
        .experts = 3,
        .predictions = 1};
    EXPECT_NO_THROW(hugging_face::WeightTable(weights, layout, [](const auto&) { return true; })) << name;
  }
  EXPECT_EQ(families, 28);
}

}  // namespace
}  // namespace tessera
