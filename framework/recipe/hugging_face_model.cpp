#include "framework/recipe/hugging_face_model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/model/gpt_options.h"
#include "framework/options/yaml.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::array<const char*, 10> carried = {"config.json",
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "tokenizer.model",
                                                 "chat_template.jinja"};

Value group(std::vector<Value::Field> fields) {
  Value value;
  value.kind = Value::Kind::group;
  value.fields = std::move(fields);
  return value;
}

const Origin conversion{"conversion", 0, "", 1};

Recipe read_imported(const Value& model_config, const std::vector<std::string>& sets, const Registries& registries) {
  constexpr std::int64_t longest = 2048;
  auto model = model_config;
  const auto* positions = model.find("max_position_embeddings");
  const auto most = positions != nullptr ? std::strtoll(positions->scalar.c_str(), nullptr, 10) : longest;
  model.set("seq_length", Value::of(text(std::min<std::int64_t>(most, longest)), conversion));
  return imported_recipe(group({{"model_config", std::move(model)}}), sets, registries);
}

/// Change the layer of every value below.
void set_layers(Value& value, const std::function<int(int)>& change) {
  value.origin.layer = change(value.origin.layer);
  for (auto& item : value.items) set_layers(item, change);
  for (auto& [name, field] : value.fields) set_layers(field, change);
}

// --- The way back: which family is this model?

/// "fa_config.pre_tokens" -> its text, for every option.
void flatten(const Value& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.kind != Value::Kind::group) {
    out[path] = text(value);
    return;
  }
  for (const auto& [name, field] : value.fields) flatten(field, path.empty() ? name : path + "." + name, out);
}

std::map<std::string, std::string> options_of(const Value& model_config, const Value& not_compared) {
  std::map<std::string, std::string> all;
  flatten(model_config, "", all);
  const bool rotary = all["position_embedding_type"] == "rope", bent = all["rope_scaling_type"] != "none";
  for (auto at = all.begin(); at != all.end();) {
    const auto begins = [&](const std::string& start) { return at->first.rfind(start, 0) == 0; };
    const bool skipped = std::any_of(not_compared.items.begin(), not_compared.items.end(),
                                     [&](const auto& item) { return begins(item.scalar); }) ||
                         (!rotary && (begins("rotary_") || begins("rope_"))) || (!bent && begins("rope_scaling_"));
    at = skipped ? all.erase(at) : std::next(at);
  }
  return all;
}

std::vector<std::string> differences(const std::map<std::string, std::string>& ours,
                                     const std::map<std::string, std::string>& theirs) {
  std::vector<std::string> found;
  for (const auto& [key, value] : ours) {
    const auto other = theirs.find(key);
    if (other == theirs.end() || other->second != value)
      found.push_back(text(key, " is ", value, ", there it would be ", other == theirs.end() ? "null" : other->second));
  }
  return found;
}

/// What a family would make of it otherwise; nothing when it fits.
struct Misfit {
  std::vector<std::string> stories;
  bool no_words = false;  ///< the family cannot even say it
  bool operator<(const Misfit& other) const {
    return std::pair(no_words, stories.size()) < std::pair(other.no_words, other.stories.size());
  }
};
Misfit misfits(const Value& whole, const std::string& family, std::int64_t vocabulary, const Registries& registries,
               const Mappings& mappings) {
  const auto common = mappings.table("models/common.yaml");
  const auto* not_compared = common.find("not_compared");
  must(not_compared != nullptr, "models/common.yaml says what is not compared");
  try {
    const auto words = write_hugging_face_config(whole, family, DType::float32, "", mappings);
    const auto back = parse_hugging_face_config(words, text("config.json of a ", family), mappings);
    const auto recipe = read_imported(back.model_config, {}, registries);
    return {differences(options_of(whole, *not_compared),
                        options_of(whole_model_config(recipe, vocabulary), *not_compared))};
  } catch (const ConfigError& error) {
    return {{error.what()}, true};
  }
}

}  // namespace

Recipe imported_recipe(Value tree, const std::vector<std::string>& sets, const Registries& registries) {
  if (tree.at("training_config.training_iters") == nullptr)
    tree.set("training_config.training_iters", Value::of("1", conversion));
  Report report;
  for (const auto& set : sets) {
    const auto equals = set.find('=');
    if (equals == std::string::npos) throw ConfigError(text("--set ", set, ": group.key=value was expected"));
    auto value = parse_yaml(set.substr(equals + 1), "--set " + set.substr(0, equals));
    value.origin = {"--set " + set.substr(0, equals), 0, "", 2};
    tree.set(set.substr(0, equals), std::move(value));
  }
  auto recipe = read_recipe(tree, registries, report);
  report.must_be_good();
  return recipe;
}

void lay_on_given_model(Value& tree, const Mappings& mappings, Report& report) {
  const auto* given = tree.at("training_config.load_checkpoint");
  if (given == nullptr || given->kind != Value::Kind::scalar || !is_hugging_face_folder(given->scalar)) return;
  try {
    const auto file = fs::path(given->scalar) / "config.json";
    auto model = read_hugging_face_config(file, mappings).model_config;
    set_layers(model, [](int) { return 1; });
    set_layers(tree, [](int layer) { return layer + 1; });
    report.note(given->origin, text("model_config is that of ", file.string(), " where the recipe says nothing"));
    if (const auto* own = tree.find("model_config")) model.lay(*own);
    for (auto& [name, field] : tree.fields)
      if (name == "model_config") field = model;
    if (tree.find("model_config") == nullptr) tree.fields.push_back({"model_config", std::move(model)});
  } catch (const Error& error) {
    report.problem(given->origin, "training_config.load_checkpoint", error.what());
  }
}

Blobs carried_files(const fs::path& folder) {
  Blobs files;
  for (const auto* name : carried)
    if (fs::exists(folder / name)) files[std::string(carried_prefix) + name] = read_file(folder / name);
  return files;
}

std::vector<std::string> folder_tokenizer_sets(const fs::path& folder) {
  const std::string group = "dataset_config.";
  if (fs::exists(folder / "tokenizer.json"))
    return {group + "tokenizer_type=HuggingFaceTokenizer", group + "tokenizer_model=" + folder.string()};
  if (!fs::exists(folder / "vocab.json") || !fs::exists(folder / "merges.txt")) return {};
  const auto config =
      fs::exists(folder / "tokenizer_config.json") ? parse_json(read_file(folder / "tokenizer_config.json")) : Json();
  const auto kind = config.is_object() ? config.value("tokenizer_class", Json("GPT2Tokenizer")) : Json("GPT2Tokenizer");
  if (!kind.is_string() || kind.get<std::string>().rfind("GPT2", 0) != 0) return {};
  return {group + "tokenizer_type=GPT2BPETokenizer", group + "vocab_file=" + (folder / "vocab.json").string(),
          group + "merge_file=" + (folder / "merges.txt").string()};
}

FolderRecipe recipe_of_folder(const HuggingFaceModel& model, const fs::path& folder,
                              const std::vector<std::string>& sets, const Registries& registries) {
  auto all = folder_tokenizer_sets(folder);
  FolderRecipe out;
  if (all.empty()) out.no_tokenizer = "it has neither tokenizer.json nor GPT-2's vocab.json and merges.txt";
  all.insert(all.end(), sets.begin(), sets.end());
  try {
    out.recipe = recipe_of(model, all, registries);
    out.tokenizer = out.recipe.tokenizer.make();
  } catch (const ConfigError& error) {
    out.no_tokenizer = error.what();
    out.recipe = recipe_of(model, sets, registries);  // a mistake that is not the tokenizer's is thrown here
    out.tokenizer = out.recipe.tokenizer.make();
  }
  return out;
}

Recipe recipe_of(const HuggingFaceModel& model, const std::vector<std::string>& sets, const Registries& registries) {
  return read_imported(model.model_config(), sets, registries);
}

TrainedModel load_hugging_face(const fs::path& folder, const Registries& registries, const Mappings& mappings) {
  const HuggingFaceModel model(folder, mappings);
  TrainedModel out;
  out.folder = folder;
  auto read = recipe_of_folder(model, folder, {}, registries);
  out.recipe = std::move(read.recipe);
  out.tokenizer = std::move(read.tokenizer);
  out.model = build_model(out.recipe, out.tokenizer.get());
  out.weights = std::make_unique<ModelState>(*out.model, nullptr);
  load_all(model, out.weights->weight_ranges());
  out.weights->weights_changed();
  return out;
}

Value whole_model_config(const Recipe& recipe, std::int64_t vocabulary) {
  const auto* gpt = recipe.model.options<GptOptions>();
  const auto* resolved = recipe.resolved.find("model_config");
  if (gpt == nullptr || resolved == nullptr)
    throw ConfigError(text("model_type ", recipe.model.type, ": only a gpt has a counterpart in other programs"));
  auto whole = *resolved;
  const auto set = [&](const char* key, const auto& value) {
    whole.set(key, OptionType<std::decay_t<decltype(value)>>::write(value));
  };
  set("vocab_size", vocabulary);
  set("ffn_hidden_size", gpt->inner());
  set("kv_channels", gpt->channels());
  set("group_query_attention", true);
  set("num_query_groups", gpt->groups());
  const auto positions = gpt->max_position_embeddings.value_or(recipe.size.seq_length);
  set("max_position_embeddings", positions);
  set("hidden_act", gpt->feed_forward());
  set("qkv_has_bias", gpt->qkv_bias());
  set("out_proj_has_bias", gpt->out_proj_bias());
  set("mlp_has_bias", gpt->mlp_bias());
  set("gated_linear_unit", false);  // hidden_act says it
  const auto [left, right] = gpt->window();
  set("sliding_window", left < 0 ? std::optional<std::int64_t>() : left + 1);
  set("window_size", std::array<std::int64_t, 2>{-1, right});
  if (left < 0) set("layer_types", std::vector<LayerSight>());
  if (gpt->query_pre_attn_scalar == static_cast<double>(gpt->channels())) whole.set("query_pre_attn_scalar", Value{});
  if (gpt->rope_scaling_type != RotaryScaling::Kind::none)
    set("rope_scaling_original_max_position_embeddings", gpt->rotary_scaling(positions).original);
  return whole;
}

std::string family_that_fits(const Recipe& recipe, std::int64_t vocabulary, const std::vector<std::string>& candidates,
                             const Registries& registries, const Mappings& mappings) {
  const auto whole = whole_model_config(recipe, vocabulary);
  std::string nearest;
  Misfit least;
  for (const auto& family : candidates) {
    auto found = misfits(whole, family, vocabulary, registries, mappings);
    if (found.stories.empty()) return family;
    if (nearest.empty() || found < least) {
      nearest = family;
      least = std::move(found);
    }
  }
  std::string story;
  for (const auto& one : least.stories) story += "\n  " + one;
  throw ConfigError(text("no family of Transformers computes what this model does; nearest is ", nearest, ":", story));
}

}  // namespace tessera
