// Every case of tests/data/config_json: what Transformers 4 and 5 make of a config.json, recorded by
// tests/peers/record_config_json.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/model/gpt_options.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera {
namespace {

using LibraryJson = nlohmann::json;

constexpr const char* absent = "<absent>";
constexpr std::int64_t tokens_of_a_case = 24;

/// A model as config.json describes it, or why it does not.
struct Read {
  std::string refusal;  ///< empty: it is read
  std::map<std::string, std::string> options;
  std::vector<double> frequencies;             ///< of the rotary embedding, then the factor of cosines and sines
  LibraryJson windows = LibraryJson::array();  ///< of each layer: its sliding window; null: none
  std::int64_t parameters = 0;
};

std::map<std::string, std::string> flat(const options::Value& group, const std::string& before = "") {
  std::map<std::string, std::string> all;
  for (const auto& [name, value] : group.fields) {
    if (value.kind == options::Value::Kind::group)
      all.merge(flat(value, before + name + "."));
    else
      all[before + name] = text(value);
  }
  return all;
}

void add_rotary(Read& out, const model::GptOptions& gpt) {
  using Kind = nn::RotaryScaling::Kind;
  const auto scaling = gpt.rotary_scaling(*gpt.max_position_embeddings, tokens_of_a_case);
  out.frequencies = nn::rotary_frequencies(gpt.rotated_channels(), gpt.rotary_base, scaling);
  const bool scales = scaling.kind == Kind::yarn || scaling.kind == Kind::longrope;
  out.frequencies.push_back(scales ? scaling.attention_factor : 1);
}

Read read(LibraryJson config, const options::Mappings& mappings) {
  Read out;
  for (const char* key :
       {"num_mtp_layers", "num_nextn_predict_layers"})  // layers that Transformers' model does not have
    config.erase(key);
  out.refusal = story_of([&] {
    const auto ours = hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings);
    const auto recipe = recipe::imported_recipe(hugging_face::recipe_with(ours.model_config), {}, {});
    const auto* gpt = recipe.model.options<model::GptOptions>();
    out.options = flat(hugging_face::whole_model_config(recipe, *recipe.size.vocab_size));
    out.options.erase("seq_length");  // not of the model
    if (gpt->has_rotary()) add_rotary(out, *gpt);
    for (std::int64_t i = 0; i < gpt->num_layers; ++i)
      out.windows.push_back(gpt->window()[0] >= 0 && gpt->windowed(i) ? LibraryJson(gpt->window()[0] + 1)
                                                                      : LibraryJson());
    out.parameters = recipe::figures(recipe).parameters;
  });
  if (out.refusal == "no error") out.refusal.clear();
  return out;
}

LibraryJson changed(LibraryJson config, const LibraryJson& change) {
  for (const auto& [key, value] : change.items()) {
    config.erase(key);
    if (value != absent) config[key] = value;
  }
  return config;
}

/// Whether `value` has all keys that `own` has, also in objects in it.
bool has_keys_of(const LibraryJson& value, const LibraryJson& own) {
  return !own.is_object() ||
         (value.is_object() && std::all_of(own.items().begin(), own.items().end(), [&](const auto& one) {
            return value.contains(one.key()) && has_keys_of(value.at(one.key()), one.value());
          }));
}

/// What one version of Transformers records about one family.
struct Recorded {
  LibraryJson family, model_type;

  /// Whether this is what version 5 makes of rope_scaling, rope_theta and rope_parameters.
  bool is_complete(const std::string& key, const LibraryJson& value, const LibraryJson& result) const {
    if (key != "rope_parameters" || !value.is_object()) return false;
    const bool is_result = result.is_object() ? !result.at("config").contains(key)
                                              : value.contains("rope_type") && value.contains("rope_theta");
    return is_result || has_keys_of(value, family.at("config").at(key));
  }

  /// The whole configuration of a case, every key given.
  LibraryJson resolved(const LibraryJson& change, const LibraryJson& result) const {
    auto whole = family.at("config");
    const bool five = whole.contains("rope_parameters");
    for (const auto& [key, value] : change.items()) {
      if (value == absent && key == "head_dim") whole.erase(key);  // not a key of every configuration class
      if (value != absent && (!five || !key.starts_with("rope_") || is_complete(key, value, result)))
        whole[key] = value;
    }
    const std::string share = "partial_rotary_factor";  // which Transformers keeps where only it is left out
    if (five && whole.at("rope_parameters").is_object() && family.at("config").at("rope_parameters").contains(share) &&
        !whole.at("rope_parameters").contains(share))
      whole["rope_parameters"][share] = family.at("config").at("rope_parameters").at(share);
    if (result != "same")
      for (const auto& [key, value] : result.at("config").items()) whole[key] = value;
    whole["model_type"] = model_type;
    return whole;
  }
};

/// Differences between what is read and what a version records; empty: none.
std::string differences(const Read& ours, const Read& expected, const LibraryJson& facts) {
  std::string all;
  for (const auto& [key, value] : expected.options)
    if (const auto at = ours.options.find(key); at == ours.options.end() || at->second != value)
      all += text(" ", key, " ", at == ours.options.end() ? "nothing" : at->second, " for ", value, ";");
  if (const auto parameters = facts.at("parameters").get<std::int64_t>(); ours.parameters != parameters)
    all += text(" ", ours.parameters, " parameters for ", parameters, ";");
  if (const auto& windows = facts.at("windows"); !windows.is_null() && windows != ours.windows)
    all += text(" windows ", ours.windows.dump(), " for ", windows.dump(), ";");
  if (const auto& recorded = facts.at("frequencies"); !recorded.is_null()) {
    const auto theirs = recorded.get<std::vector<double>>();
    bool same = theirs.size() == ours.frequencies.size();
    for (std::size_t i = 0; same && i < theirs.size(); ++i)  // computed in float32 there
      same = std::abs(theirs[i] - ours.frequencies[i]) <= 4e-6 * std::abs(theirs[i]);
    if (!same) all += text(" frequencies ", LibraryJson(ours.frequencies).dump(), " for ", recorded.dump(), ";");
  }
  return all;
}

/// Reasons for which files that Transformers reads are refused. Everything else that it reads must be read.
const std::vector<std::string> reasons = {
    // Parts of models that no option describes.
    "rope_type is dynamic", "type is dynamic", "longrope", "rounded to whole dimensions", "rotates whole heads",
    "rope_type is linear", "type is linear", "rope_type is llama3", "type is llama3", "scaled by the root",
    "scaled by the layer's number", "always causal", "noise on the input", "are always divided",
    "are adjacent channels", "biases of latent attention", "experts have no biases", "equal and above 0",
    "windows in layers without rotary", "dropout behind the feed-forward", "same weights in every head",
    "hidden_size / num_attention_heads channels", "best two scores", "have epsilon", "follows from mscale",
    "patterns are not supported", "projections of the embedding", "norms behind attention", "norms without weights",
    "left out at random", "does not scale with type", "dropout behind the sum of both branches",
    "which this family needs",
    // Keys that contradict each other, of which Transformers takes one; keys of other families, which it ignores.
    "and both mean", "no row of the tables", "use_sliding_window is not true",
    // Values that make no sense: a window without tokens, zero where Transformers takes its default, null for false; no
    // experts of a token, which Transformers notices when it computes.
    "window is 0", "must be > 0, is 0", "they are rotated in pairs", "factor is null", "moe_router_topk",
    "rope_interleave is null", "norm_topk_prob is null"};

bool has_reason(const std::string& refusal) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const auto& reason) { return says(refusal, reason); });
}

class ConfigJson : public testing::TestWithParam<const char*> {
 protected:
  ConfigJson() {
    for (const char* version : {"4", "5"}) {
      const auto file = text(TESTS_DATA, "/config_json/transformers_", version, ".json");
      recorded_.push_back({LibraryJson::parse(read_file(file))["families"][GetParam()], GetParam()});
    }
  }

  /// The recorded results of each change, of version 4 and 5; null: that version has no such case.
  std::map<std::string, std::array<LibraryJson, 2>> results() const {
    std::map<std::string, std::array<LibraryJson, 2>> all;
    for (std::size_t i = 0; i < 2; ++i)
      for (const auto& one : recorded_[i].family.at("cases")) {
        const auto& change = one[0];
        // What Python returns, layers that are no part of the model, and the order of sums.
        if (!change.contains("output_router_logits") && !change.contains("num_mtp_layers") &&
            !change.contains("pretraining_tp"))
          all[change.dump()][i] = one[1];
      }
    return all;
  }

  /// Empty if version `i` makes of the change what we make of it.
  std::string differs(std::size_t i, const LibraryJson& change, const LibraryJson& result, const Read& ours) const {
    const auto& family = recorded_[i].family;
    const bool same = result == "same";
    auto facts = same ? family : result;
    for (const char* key : {"parameters", "frequencies", "windows"})
      if (!facts.contains(key))
        facts[key] = key == std::string("parameters") ? LibraryJson() : large(facts, family, key);
    const auto expected = read(recorded_[i].resolved(change, result), mappings_);
    if (!expected.refusal.empty()) return text(" what it resolves to is refused: ", expected.refusal);
    return differences(ours, expected, facts);
  }
  /// A model that computed nothing has no frequencies and windows.
  static LibraryJson large(const LibraryJson& facts, const LibraryJson& family, const char* key) {
    return facts.at("parameters").get<std::int64_t>() > 60'000'000 ? LibraryJson() : family.at(key);
  }

  options::Mappings mappings_;
  std::vector<Recorded> recorded_;
};

TEST_P(ConfigJson, IsReadAsTransformersReadsItOrRefused) {
  const auto given = recorded_[1].family.at("given");
  int number = 0, read_alike = 0, refused_alike = 0;
  for (const auto& [words, answers] : results()) {
    if (number++ % part_of_inputs != 0) continue;
    const auto change = LibraryJson::parse(words);
    const auto ours = read(changed(given, change), mappings_);
    const auto& newest = answers[1].is_null() ? answers[0] : answers[1];
    if (ours.refusal.empty()) {
      std::string all;
      bool alike = false;
      for (const std::size_t i : {1, 0}) {
        if (alike || answers[i].is_null() || answers[i] == "error") continue;
        const auto one = differs(i, change, answers[i], ours);
        alike = one.empty();
        all += text("\n  Transformers ", i + 4, ":", one);
      }
      EXPECT_TRUE(alike) << words << (all.empty() ? " is read; Transformers refuses it" : all);
      ++read_alike;
    } else {
      EXPECT_TRUE(newest == "error" || has_reason(ours.refusal)) << words << " " << ours.refusal;
      refused_alike += newest == "error" ? 1 : 0;
    }
  }
  EXPECT_GE(read_alike, sanitized ? 0 : 15);
  EXPECT_GE(refused_alike, sanitized ? 0 : 8);
}

/// Keys of other families that this one does not use.
TEST_P(ConfigJson, KeysOfOtherFamiliesChangeNothingOrAreRefused) {
  for (const auto& version : recorded_) {
    const auto given = version.family.at("given");
    const auto base = read(given, mappings_);
    ASSERT_EQ(base.refusal, "");
    int number = 0;
    for (const auto& [key, value] : version.family.at("unused").items()) {
      if (number++ % part_of_inputs != 0) continue;
      const auto ours = read(changed(given, {{key, value}}), mappings_);
      if (ours.refusal.empty())
        EXPECT_EQ(ours.options, base.options) << key;
      else
        EXPECT_TRUE(says(ours.refusal, key + " is ") && says(ours.refusal, "--ignore-key")) << ours.refusal;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConfigJson,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "phi3", "gemma",
                                         "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gemma2",
                                         "glm4", "granite", "smollm3", "stablelm", "olmo2", "phi", "opt", "gemma3_text",
                                         "gpt_oss", "bloom", "falcon"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace tessera
