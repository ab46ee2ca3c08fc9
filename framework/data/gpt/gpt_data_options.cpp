#include "framework/data/gpt/gpt_data_options.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

#include "framework/data/gpt/gpt_dataset.h"
#include "framework/options/limits.h"

namespace tessera {

bool OptionType<DataPath>::read(const Value& value, DataPath& out) {
  DataPath given;
  if (value.kind == Value::Kind::scalar) {
    std::istringstream words(value.scalar);
    for (std::string word; words >> word;) given.parts.push_back(word);
  } else if (value.kind == Value::Kind::list) {
    for (const auto& item : value.items) {
      if (item.kind != Value::Kind::scalar) return false;
      given.parts.push_back(item.scalar);
    }
  } else if (value.kind != Value::Kind::none) {
    return false;
  }
  out = std::move(given);
  return true;
}

Value OptionType<DataPath>::write(const DataPath& path) {
  if (path.parts.empty()) return {};
  if (path.parts.size() == 1) return Value::of(path.parts[0], {});
  Value value;
  value.kind = Value::Kind::list;
  for (const auto& part : path.parts) value.items.push_back(Value::of(part, {}));
  return value;
}

void describe(Schema<GptDataOptions>& s) {
  using O = GptDataOptions;
  s.option("data_path", &O::data_path,
           "Prefixes of .bin and .idx files that are blended, each with or all without a weight before it; `split` "
           "divides them into train, valid and test.");
  s.option("split", &O::split, "Weights of train, valid and test, for example \"969, 30, 1\"; null: these.");
  s.option("train_data_path", &O::train_data_path, "Training data, instead of `data_path`: prefixes or a blend.");
  s.option("valid_data_path", &O::valid_data_path, "Validation data: prefixes or a blend.");
  s.option("test_data_path", &O::test_data_path, "Test data: prefixes or a blend.");
  s.option("data_args_path", &O::data_args_path,
           "Text file with the words of `data_path`, separated by white space, for long blends.");
  s.option("per_split_data_args_path", &O::per_split_data_args_path,
           "JSON file with the keys train, valid and test: the words of `train_data_path`, `valid_data_path` and "
           "`test_data_path`, as lists or texts.");
  s.option("data_cache_path", &O::data_cache_path,
           "Folder of the index files, which Megatron-LM uses too; null: PREFIX/cache/GPTDataset_indices for each "
           "prefix, and no files for the order of a blend.");
  s.option("num_dataset_builder_threads", &O::num_dataset_builder_threads,
           "Number of threads that build the index files of the parts of a blend.")
      .above(0)
      .at_most(most_threads);
  s.option("mmap_bin_files", &O::mmap_bin_files, "Map the .bin files into memory; false: read them with plain reads.");
  s.option("no_shared_storage", &O::no_shared_storage,
           "Hosts share no storage: each builds its own index files and waits for no other. false: hosts that do share "
           "it build them once.");
  s.option("mid_level_dataset_surplus", &O::mid_level_dataset_surplus,
           "Fraction by which more samples are prepared of each part of a blend than its weight asks for.")
      .at_least(0)
      .at_most(1000);
  s.option("multiple_validation_sets", &O::multiple_validation_sets,
           "Each prefix of `valid_data_path` is a validation set that is evaluated and logged separately; weights are "
           "refused.");
  s.option("validation_set_names", &O::validation_set_names,
           "Names of the sets of `multiple_validation_sets` in logs and metrics, in order; empty: 0, 1, ...");
  describe_documents(s);
}

namespace {

constexpr const char* usual_split = "969, 30, 1";
constexpr std::size_t longest_set_name = 64;  // bytes

std::optional<Blend> blend_of(const std::optional<std::string>& file, const DataPath& path, const char* file_option,
                              const char* path_option) {
  return file ? read_blend(words_of_file(*file, file_option), file_option) : read_blend(path.parts, path_option);
}

/// A name becomes part of a JSON key, of a TensorBoard tag and of a line.
void check_validation_sets(const GptDataOptions& o) {
  const auto& names = o.validation_set_names;
  if (!names.empty() && !o.multiple_validation_sets)
    throw ConfigError("validation_set_names needs multiple_validation_sets: true; set it or leave the names out");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& name = names[i];
    const auto fits = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("._-+/:=").find(c) != std::string_view::npos;
    };
    if (name.empty() || name.size() > longest_set_name || !std::all_of(name.begin(), name.end(), fits))
      throw ConfigError(text("validation_set_names: \"", name, "\" is not 1 to ", longest_set_name,
                             " ASCII letters, digits and . _ - + / : =; give another name"));
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), name) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      throw ConfigError(text("validation_set_names: ", name, " is given twice; give each set a name of its own"));
  }
}

/// The blend of the validation sets; weights mean nothing there.
std::optional<Blend> without_weights(const GptDataOptions& o, std::optional<Blend> blend, const char* option) {
  if (o.multiple_validation_sets && blend && blend->weights)
    throw ConfigError(text(option,
                           ": the validation data has weights, but multiple_validation_sets evaluates each prefix "
                           "separately; leave the weights out"));
  return blend;
}

}  // namespace

void check_gpt_sources(const GptDataOptions& o) {
  check_validation_sets(o);
  const bool own_paths = !o.train_data_path.empty() || !o.valid_data_path.empty() || !o.test_data_path.empty();
  const bool apart = own_paths || o.per_split_data_args_path;
  const bool joined = !o.data_path.empty() || o.data_args_path;
  if (!o.data_path.empty() && o.data_args_path)
    throw ConfigError("data_args_path and data_path exclude each other; give one of them");
  if (own_paths && o.per_split_data_args_path)
    throw ConfigError(
        "per_split_data_args_path and train_data_path, valid_data_path, test_data_path exclude each other; give one "
        "kind");
  if (apart && joined)
    throw ConfigError(
        "data_path and train_data_path, valid_data_path, test_data_path exclude each other; give one kind");
  if (apart && o.split)
    throw ConfigError("split divides data_path; with train_data_path, valid_data_path or test_data_path leave it out");
  (void)read_blend(o.data_path.parts, "data_path");
  (void)read_blend(o.train_data_path.parts, "train_data_path");
  (void)without_weights(o, read_blend(o.valid_data_path.parts, "valid_data_path"), "valid_data_path");
  (void)read_blend(o.test_data_path.parts, "test_data_path");
}

GptSources gpt_sources(const GptDataOptions& o) {
  check_gpt_sources(o);
  const bool joined = !o.data_path.empty() || o.data_args_path;
  if (!joined && !o.per_split_data_args_path && o.train_data_path.empty() && o.valid_data_path.empty() &&
      o.test_data_path.empty())
    throw ConfigError(
        "data_path is missing: dataset_type gpt needs it, or train_data_path; make one with `tessera data preprocess`");
  GptSources sources;
  if (joined) {
    sources.blend = blend_of(o.data_args_path, o.data_path, "data_args_path", "data_path");
    sources.split = o.split.value_or(usual_split);
  } else if (o.per_split_data_args_path) {
    const auto words = words_of_splits(*o.per_split_data_args_path, "per_split_data_args_path");
    for (std::size_t k = 0; k < words.size(); ++k)
      sources.per_split[k] = read_blend(words[k], "per_split_data_args_path");
    sources.per_split[1] = without_weights(o, std::move(sources.per_split[1]), "per_split_data_args_path");
  } else {
    sources.per_split = {read_blend(o.train_data_path.parts, "train_data_path"),
                         read_blend(o.valid_data_path.parts, "valid_data_path"),
                         read_blend(o.test_data_path.parts, "test_data_path")};
  }
  return sources;
}

}  // namespace tessera
