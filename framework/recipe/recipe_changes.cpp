#include "framework/recipe/recipe_changes.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/checkpoint/format.h"
#include "framework/options/yaml.h"
#include "framework/recipe/describe.h"

namespace tessera::recipe {
namespace {

using options::Change;
using training::OptionChange;

/// A checkpoint's recipe, read as this program reads recipes.
struct Saved {
  options::Value tree;
  bool is_whole = false;  ///< it has all options; of an option that it lacks, the default held
  options::Report report = {};
  Recipe recipe = {};

  Saved(options::Value given, bool whole, const Registries& registries) : tree(std::move(given)), is_whole(whole) {
    recipe = read_recipe(tree, registries, report);
  }
};

std::optional<Saved> saved_recipe_of(const Recipe& own, const checkpoint::Blobs& blobs,
                                     const options::Value* described) {
  try {
    const auto file = blobs.find(checkpoint::recipe_blob);
    if (file != blobs.end())
      return Saved(options::parse_yaml(file->second, checkpoint::recipe_blob), true, *own.registries);
    if (described != nullptr) return Saved(*described, false, *own.registries);
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

/// Whether the schema's options are read in this recipe.
bool is_chosen(const Recipe& recipe, const std::string& group, const options::SchemaFacts& schema) {
  if (schema.key.empty()) return true;
  const auto* type = recipe.resolved.at(group + "." + schema.key);
  return type != nullptr && type->scalar == schema.type;
}

/// Whether the weights compute the same function with both values of the option.
bool is_same_function(const std::string& option, const std::string& one, const std::string& other) {
  const auto& entries = recipe_schema().entries();
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    const auto& same = entry.same_function;
    const auto has = [&](const auto& value) { return std::find(same.begin(), same.end(), value) != same.end(); };
    return entry.option == option && has(one) && has(other);
  });
}

bool refuses(Change change) { return change == Change::weights || change == Change::state; }

bool is_null(const options::Value& value) { return value.kind == options::Value::Kind::none; }

/// Whether the default of a null option follows from the recipe alone. That of a batch size depends on the number of
/// ranks too, that of a vocabulary on files.
bool has_known_default(const std::string& option) {
  return option != "model_config.vocab_size" && option != "dataset_config.micro_batch_num" &&
         option != "dataset_config.global_batch_size";
}

/// The value of an option; if it is null, its derived default.
std::string effective(const Recipe& recipe, const options::Value& value, const std::string& option) {
  if (is_null(value) && has_known_default(option))
    if (const auto derived = recipe.derived(option); derived && !derived->value.empty()) return derived->value;
  const auto words = text(value);
  return words.empty() ? "''" : words;
}

/// Compares one recipe with another, option by option.
class Comparison {
 public:
  Comparison(const Recipe& own, const Saved& saved) : own_(own), saved_(saved) {}

  void compare(const std::string& option, Change kind) {
    if (kind == Change::silent || kind == Change::file) return;
    const auto* here = own_.resolved.at(option);
    auto there = saved_value(option);
    if (here == nullptr || !there || !has_effect(own_, option) || !has_effect(saved_.recipe, option)) return;
    const bool follows = is_null(*here) && is_null(*there);
    if (follows && !refuses(kind)) return;  // the option that it follows from is named
    OptionChange change{
        option, effective(own_, *here, option), effective(saved_.recipe, *there, option), kind, here->origin, follows};
    if (is_same_function(option, change.value, change.saved)) change.kind = Change::told;
    if (change.value != change.saved) (follows ? follows_ : given_).push_back(std::move(change));
  }

  /// All differences. A derived default that differs follows from another option. If that one decides about weights
  /// too, it is the one to be refused.
  std::vector<OptionChange> all() {
    const bool is_explained =
        std::any_of(given_.begin(), given_.end(), [](const auto& change) { return change.kind == Change::weights; });
    for (auto& change : follows_) {
      if (is_explained) change.kind = Change::told;
      given_.push_back(std::move(change));
    }
    return std::move(given_);
  }

 private:
  /// The option's value in the checkpoint's recipe; of a value that this program refuses, the text.
  std::optional<options::Value> saved_value(const std::string& option) const {
    const auto* read = saved_.recipe.resolved.at(option);
    if (read == nullptr) return std::nullopt;
    if (saved_.report.concerns(option))
      if (const auto* written = saved_.tree.at(option)) return *written;
    if (!saved_.is_whole && read->origin.layer == 0 && !has_given_item(*read)) return std::nullopt;
    return *read;
  }
  static bool has_given_item(const options::Value& list) {
    return std::any_of(list.items.begin(), list.items.end(), [](const auto& item) { return item.origin.layer > 0; });
  }

  const Recipe& own_;
  const Saved& saved_;
  std::vector<OptionChange> given_, follows_;
};

/// The files of a tokenizer among `blobs`, by the option that gives the file, or for a folder by "option/name".
std::map<std::string, const std::string*> tokenizer_files(const checkpoint::Blobs& blobs) {
  const std::string start = "tokenizer.";
  std::map<std::string, const std::string*> files;
  for (const auto& [name, content] : blobs) {
    if (name.rfind(start, 0) != 0) continue;
    const auto rest = name.substr(start.size());
    files[rest.find('/') != std::string::npos ? rest : rest.substr(0, rest.find('.'))] = &content;
  }
  return files;
}

/// What the tokens are is in all files but this one, which has special tokens and the chat template.
bool names_tokens(const std::string& file) { return file.find("/tokenizer_config.json") == std::string::npos; }

/// The tokenizer's files whose content differs.
std::vector<OptionChange> file_changes(const Recipe& own, const checkpoint::Blobs& files,
                                       const checkpoint::Blobs& saved) {
  const auto here = tokenizer_files(files), there = tokenizer_files(saved);
  std::set<std::string> names;
  for (const auto* all : {&here, &there})
    for (const auto& file : *all) names.insert(file.first);
  std::vector<OptionChange> changes;
  for (const auto& name : names) {
    const auto a = here.find(name), b = there.find(name);
    if (a != here.end() && b != there.end() && *a->second == *b->second) continue;
    const auto slash = name.find('/');
    const auto option = "dataset_config." + name.substr(0, slash);
    const auto* path = own.resolved.at(option);
    if (path == nullptr) continue;  // of another type of tokenizer
    const auto file = slash == std::string::npos ? "" : " (" + name.substr(slash + 1) + ")";
    changes.push_back({option, text(*path, a == here.end() ? " without it" : "", file),
                       b == there.end() ? "none" : "a file with other content",
                       names_tokens(name) ? Change::weights : Change::told, path->origin});
  }
  return changes;
}

bool same_tokenizer_type(const Recipe& a, const Recipe& b) {
  return a.tokenizer.type == b.tokenizer.type && !a.tokenizer.type.empty();
}

}  // namespace

std::optional<std::vector<OptionChange>> recipe_changes(const Recipe& own, const checkpoint::Blobs& files,
                                                        const checkpoint::Blobs& saved,
                                                        const options::Value* described) {
  const auto theirs = saved_recipe_of(own, saved, described);
  if (!theirs) return std::nullopt;
  Comparison comparison(own, *theirs);
  for (const auto& [group, schemas] : own.facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        if (is_chosen(own, group, schema)) comparison.compare(group + "." + option.name, option.change);
  auto changes = comparison.all();
  if (theirs->is_whole && same_tokenizer_type(own, theirs->recipe))
    for (auto& change : file_changes(own, files, saved)) changes.push_back(std::move(change));
  return changes;
}

}  // namespace tessera::recipe
