// Token files in the order of Megatron-LM's GPTDataset.

#include <sstream>

#include "framework/data/data_path.h"
#include "framework/data/gpt_dataset.h"
#include "framework/data/indexed_dataset.h"

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

namespace {

struct GptOptions {
  DataPath data_path;
  std::optional<std::string> split;
  DataPath train_data_path, valid_data_path, test_data_path;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool add_extra_token_to_sequence = true, drop_last_partial_validation_sequence = true;
};

constexpr const char* usual_split = "969, 30, 1";

void describe(Schema<GptOptions>& s) {
  using O = GptOptions;
  s.option("data_path", &O::data_path,
           "Prefix of a .bin and .idx file; `split` divides it into train, valid and test.");
  s.option("split", &O::split, "Weights of train, valid and test, for example \"969, 30, 1\"; null: these.");
  s.option("train_data_path", &O::train_data_path, "Prefix of the training data, instead of `data_path`.");
  s.option("valid_data_path", &O::valid_data_path, "Prefix of the validation data.");
  s.option("test_data_path", &O::test_data_path, "Prefix of the test data.");
  describe_documents(s);
  s.planned("data_cache_path", std::string(), "Folder where index files are kept from run to run.");
}

const std::string& prefix_of(const DataPath& path, const char* option) {
  if (path.parts.size() > 1)
    throw ConfigError(text(option, " names ", path.parts.size(),
                           " things; blending several datasets is not built yet, give one prefix"));
  return path.parts[0];
}

std::unique_ptr<Dataset> whole(const DataPath& path, const char* option, int split, const DocumentOptions& documents,
                               const DataParts& parts) {
  if (path.empty()) return nullptr;
  const auto& prefix = prefix_of(path, option);
  const auto source = std::make_shared<IndexedDataset>(prefix);
  return one_split(source, prefix, split, {0, source->sequences()}, documents, parts);
}

std::unique_ptr<DataSplits> make(const GptOptions& o, DataParts parts) {
  const auto documents = DocumentOptions::of(o);
  const bool apart = !o.train_data_path.empty() || !o.valid_data_path.empty() || !o.test_data_path.empty();
  if (apart && !o.data_path.empty())
    throw ConfigError(
        "data_path and train_data_path, valid_data_path, test_data_path exclude each other; give one kind");
  if (apart && o.split)
    throw ConfigError("split cuts data_path; with train_data_path, valid_data_path or test_data_path leave it out");
  if (!apart && o.data_path.empty())
    throw ConfigError("dataset_type gpt needs data_path, or train_data_path; make one with `tessera data preprocess`");
  if (!apart) {
    const auto& prefix = prefix_of(o.data_path, "data_path");
    return std::make_unique<DataSplits>(split_dataset(std::make_shared<IndexedDataset>(prefix), prefix,
                                                      o.split.value_or(usual_split), documents, parts));
  }
  auto splits = std::make_unique<DataSplits>();
  splits->train = whole(o.train_data_path, "train_data_path", 0, documents, parts);
  splits->valid = whole(o.valid_data_path, "valid_data_path", 1, documents, parts);
  splits->test = whole(o.test_data_path, "test_data_path", 2, documents, parts);
  return splits;
}

}  // namespace

void register_gpt(DatasetRegistry& shelf) {
  shelf.add("gpt", make, "Megatron-LM's GPTDataset: .bin and .idx files, same sample order.", {"GPTDataset"});
}

}  // namespace tessera
