#include "framework/interop/hugging_face/family.h"

#include <algorithm>
#include <map>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/recipe/imported_recipe.h"

namespace tessera::hugging_face {
namespace {

/// "fa_config.pre_tokens" -> its text, for every option.
void flatten(const options::Value& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.kind != options::Value::Kind::group) {
    out[path] = text(value);
    return;
  }
  for (const auto& [name, field] : value.fields) flatten(field, path.empty() ? name : path + "." + name, out);
}

std::map<std::string, std::string> options_of(const options::Value& model_config, const options::Value& not_compared) {
  std::map<std::string, std::string> all;
  flatten(model_config, "", all);
  const bool rotary = all["position_embedding_type"] == "rope" || all["position_embedding_type"] == "mrope";
  const bool bent = all["rope_scaling_type"] != "none" || all["rope_type"] == "yarn";
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
  std::vector<std::string> messages;
  bool no_words = false;  ///< the family cannot even say it
  bool operator<(const Misfit& other) const {
    return std::pair(no_words, messages.size()) < std::pair(other.no_words, other.messages.size());
  }
};
Misfit misfits(const options::Value& whole, const std::string& family, std::int64_t vocabulary,
               const recipe::Registries& registries, const options::Mappings& mappings) {
  try {
    const auto words = write_hugging_face_config(whole, family, DType::float32, "", mappings);
    const auto back = parse_hugging_face_config(words, text("config.json of a ", family), mappings);
    const auto recipe = recipe::imported_recipe(recipe_with(back.model_config), {}, registries);
    return {model_differences(whole, whole_model_config(recipe, vocabulary), mappings)};
  } catch (const ConfigError& error) {
    return {{error.what()}, true};
  }
}

}  // namespace

options::Value whole_model_config(const recipe::Recipe& recipe, std::int64_t vocabulary) {
  auto whole = recipe.architecture ? recipe.architecture->canonical_options(recipe.resolved, vocabulary) : std::nullopt;
  if (!whole)
    throw ConfigError(text("model_type ", recipe.model.type, ": only a gpt has a counterpart in other programs"));
  return *std::move(whole);
}

std::vector<std::string> model_differences(const options::Value& ours, const options::Value& theirs,
                                           const options::Mappings& mappings) {
  const auto common = mappings.table("models/common.yaml");
  const auto* not_compared = common.find("not_compared");
  must(not_compared != nullptr, "models/common.yaml says what is not compared");
  return differences(options_of(ours, *not_compared), options_of(theirs, *not_compared));
}

std::string family_that_fits(const recipe::Recipe& recipe, std::int64_t vocabulary,
                             const std::vector<std::string>& candidates, const recipe::Registries& registries,
                             const options::Mappings& mappings) {
  const auto whole = whole_model_config(recipe, vocabulary);
  std::string nearest;
  Misfit least;
  for (const auto& family : candidates) {
    auto found = misfits(whole, family, vocabulary, registries, mappings);
    if (found.messages.empty()) return family;
    if (nearest.empty() || found < least) {
      nearest = family;
      least = std::move(found);
    }
  }
  std::string message;
  for (const auto& one : least.messages) message += "\n  " + one;
  throw ConfigError(
      text("no model_type of Transformers computes what this model does; the nearest is ", nearest, ":", message));
}

}  // namespace tessera::hugging_face
