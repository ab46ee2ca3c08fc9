#include "framework/gpt/gpt_data_options.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

#include "framework/base/home.h"
#include "framework/gpt/gpt_dataset.h"
#include "framework/gpt/split.h"
#include "framework/options/limits.h"

namespace tessera::gpt {

bool DataPath::Option::read(const options::Value& value, DataPath& out) {
  DataPath given;
  if (value.kind == options::Value::Kind::scalar) {
    std::istringstream words(value.scalar);
    for (std::string word; words >> word;) given.parts.push_back(with_home(word));
  } else if (value.kind == options::Value::Kind::list) {
    for (const auto& item : value.items) {
      if (item.kind != options::Value::Kind::scalar) return false;
      given.parts.push_back(with_home(item.scalar));
    }
  } else if (value.kind != options::Value::Kind::none) {
    return false;
  }
  out = std::move(given);
  return true;
}

options::Value DataPath::Option::write(const DataPath& path) {
  if (path.parts.empty()) return {};
  // A text is divided at white space when it is read.
  if (path.parts.size() == 1 && path.parts[0].find_first_of(" \t\n\v\f\r") == std::string::npos)
    return options::Value::of(path.parts[0], {});
  options::Value value;
  value.kind = options::Value::Kind::list;
  for (const auto& part : path.parts) value.items.push_back(options::Value::of(part, {}));
  return value;
}

namespace {

using O = GptDataOptions;
constexpr std::size_t longest_set_name = 64;  // bytes
constexpr const char* weights_of_validation =
    "the validation data has weights, but multiple_validation_sets evaluates each prefix separately";
constexpr const char* leave_weights_out = "leave the weights out";

bool has_weights(const std::optional<Blend>& blend) { return blend && blend->weights; }
bool has_own_paths(const O& o) {
  return !o.train_data_path.empty() || !o.valid_data_path.empty() || !o.test_data_path.empty();
}
bool is_split_apart(const O& o) { return has_own_paths(o) || o.per_split_data_args_path; }

/// A name becomes part of a JSON key, of a TensorBoard tag and of a line.
std::optional<options::Finding> broken_set_names(const O& o) {
  const auto& names = o.validation_set_names;
  if (!names.empty() && !o.multiple_validation_sets)
    return options::Finding{.option = "",
                            .message = "validation_set_names is given, but multiple_validation_sets is false",
                            .advice = "set it to true, or leave the names out"};
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-+/:=").find(c) != std::string_view::npos;
  };
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty() || name->size() > longest_set_name || !std::all_of(name->begin(), name->end(), fits))
      return options::Finding{.option = "",
                              .message = text("validation_set_names: \"", *name, "\" is not 1 to ", longest_set_name,
                                              " ASCII letters, digits and . _ - + / : ="),
                              .advice = "give another name"};
    if (std::find(names.begin(), name, *name) != name)
      return options::Finding{.option = "",
                              .message = text("validation_set_names: ", *name, " is given twice"),
                              .advice = "give each set a name of its own"};
  }
  return std::nullopt;
}

std::optional<options::Finding> broken_validation(const O& o) {
  if (auto broken = broken_blend(o.valid_data_path.parts, "valid_data_path")) return broken;
  if (!o.multiple_validation_sets || !has_weights(read_blend(o.valid_data_path.parts, "valid_data_path")))
    return std::nullopt;
  return options::Finding{
      .option = "", .message = text("valid_data_path: ", weights_of_validation), .advice = leave_weights_out};
}

}  // namespace

void describe(options::Schema<GptDataOptions>& s) {
  s.when_changed(options::Change::told);
  s.option("data_path", &O::data_path,
           "Prefixes of .bin and .idx files: one, several that are blended, or pairs of a weight and a prefix; `split` "
           "divides them into train, valid and test.")
      .replaces({"train_data_path", "valid_data_path", "test_data_path", "data_args_path", "per_split_data_args_path"})
      .when_changed(options::Change::order)
      .must(
          "DAT2", [](const O& o) { return !is_split_apart(o) || (o.data_path.empty() && !o.data_args_path); },
          [](const O&) {
            return "data_path and train_data_path, valid_data_path, test_data_path are mutually exclusive";
          },
          "give one kind",
          {"train_data_path", "valid_data_path", "test_data_path", "data_args_path", "per_split_data_args_path"})
      .must("DAT4", [](const O& o) { return broken_blend(o.data_path.parts, "data_path"); });
  s.option("split", &O::split, "Weights of train, valid and test, for example \"8, 1, 1\".")
      .when_changed(options::Change::order)
      .otherwise([](const O& o) { return o.weights_of_splits(); }, "\"969, 30, 1\"")
      .must(
          "DAT5", [](const O& o) { return !is_split_apart(o) || !o.split; },
          [](const O&) {
            return "split divides data_path, but train_data_path, valid_data_path or test_data_path is given";
          },
          "leave split out", {"train_data_path", "valid_data_path", "test_data_path", "per_split_data_args_path"})
      .must("DAT5", [](const O& o) { return broken_split(o.split); });
  s.option("train_data_path", &O::train_data_path, "Training data, instead of `data_path`: prefixes or a blend.")
      .replaces({"data_path", "data_args_path", "per_split_data_args_path", "split"})
      .when_changed(options::Change::order)
      .must("DAT4", [](const O& o) { return broken_blend(o.train_data_path.parts, "train_data_path"); });
  s.option("valid_data_path", &O::valid_data_path, "Validation data: prefixes or a blend.")
      .must("DAT4", [](const O& o) { return broken_validation(o); }, {"multiple_validation_sets"});
  s.option("test_data_path", &O::test_data_path, "Test data: prefixes or a blend.").must("DAT4", [](const O& o) {
    return broken_blend(o.test_data_path.parts, "test_data_path");
  });
  s.option("data_args_path", &O::data_args_path,
           "Text file with the words of `data_path`, separated by white space, for long blends.")
      .replaces({"data_path", "train_data_path", "valid_data_path", "test_data_path", "per_split_data_args_path"})
      .when_changed(options::Change::order)
      .must(
          "DAT2", [](const O& o) { return o.data_path.empty() || !o.data_args_path; },
          [](const O&) { return "data_args_path and data_path are mutually exclusive"; }, "give one of them",
          {"data_path"});
  s.option("per_split_data_args_path", &O::per_split_data_args_path,
           "JSON file with the keys train, valid and test: the words of `train_data_path`, `valid_data_path` and "
           "`test_data_path`, as lists or texts.")
      .replaces({"data_path", "data_args_path", "train_data_path", "valid_data_path", "test_data_path", "split"})
      .when_changed(options::Change::order)
      .must(
          "DAT2", [](const O& o) { return !has_own_paths(o) || !o.per_split_data_args_path; },
          [](const O&) {
            return "per_split_data_args_path and train_data_path, valid_data_path, test_data_path are mutually "
                   "exclusive";
          },
          "give one kind", {"train_data_path", "valid_data_path", "test_data_path"});
  s.option("data_cache_path", &O::data_cache_path,
           "Folder of the index files, which Megatron-LM uses too; null: PREFIX/cache/GPTDataset_indices for each "
           "prefix, and no files for the order of a blend.")
      .when_changed(options::Change::silent);
  s.option("num_dataset_builder_threads", &O::num_dataset_builder_threads,
           "Number of threads that build the index files of the parts of a blend.")
      .when_changed(options::Change::silent)
      .above(0)
      .at_most(options::most_threads);
  s.option("mmap_bin_files", &O::mmap_bin_files, "Map the .bin files into memory; false: read them with plain reads.")
      .when_changed(options::Change::silent);
  s.option("no_shared_storage", &O::no_shared_storage,
           "Build the index files on each host without waiting for other hosts, for hosts without shared storage; "
           "false: hosts with shared storage build them once.")
      .when_changed(options::Change::silent);
  s.option("mid_level_dataset_surplus", &O::mid_level_dataset_surplus,
           "Additional samples that are prepared for each part of a blend, as a fraction of the number that its weight "
           "requires.")
      .when_changed(options::Change::order)
      .at_least(0)
      .at_most(1000);
  s.option("multiple_validation_sets", &O::multiple_validation_sets,
           "Each prefix of `valid_data_path` is a validation set that is evaluated and logged separately; weights are "
           "refused.");
  s.option("validation_set_names", &O::validation_set_names,
           "Names of the sets of `multiple_validation_sets` in logs and metrics, in order; empty: 0, 1, ...")
      .when_changed(options::Change::silent)
      .must("DAT4", [](const O& o) { return broken_set_names(o); }, {"multiple_validation_sets"});
  describe_documents(s);
}

namespace {

std::optional<Blend> blend_of(const std::optional<std::string>& file, const DataPath& path, const char* file_option,
                              const char* path_option) {
  return file ? read_blend(words_of_file(*file, file_option), file_option) : read_blend(path.parts, path_option);
}

}  // namespace

void must_name_data(const GptDataOptions& o) {
  if (o.data_path.empty() && !o.data_args_path && !o.per_split_data_args_path && o.train_data_path.empty() &&
      o.valid_data_path.empty() && o.test_data_path.empty())
    throw ConfigError(
        "data_path is missing: dataset_type gpt needs it, or train_data_path; make one with `tessera data preprocess`");
}

GptSources gpt_sources(const GptDataOptions& o) {
  options::refuse("dataset_config", options::broken_rules(o));
  must_name_data(o);
  const bool joined = !o.data_path.empty() || o.data_args_path;
  GptSources sources;
  if (joined) {
    sources.blend = blend_of(o.data_args_path, o.data_path, "data_args_path", "data_path");
    sources.split = o.weights_of_splits();
  } else if (o.per_split_data_args_path) {
    const auto words = words_of_splits(*o.per_split_data_args_path, "per_split_data_args_path");
    for (std::size_t k = 0; k < words.size(); ++k)
      sources.per_split[k] = read_blend(words[k], "per_split_data_args_path");
    if (o.multiple_validation_sets && has_weights(sources.per_split[1]))
      throw ConfigError(text("per_split_data_args_path: ", weights_of_validation, "; ", leave_weights_out));
  } else {
    sources.per_split = {read_blend(o.train_data_path.parts, "train_data_path"),
                         read_blend(o.valid_data_path.parts, "valid_data_path"),
                         read_blend(o.test_data_path.parts, "test_data_path")};
  }
  return sources;
}

}  // namespace tessera::gpt
