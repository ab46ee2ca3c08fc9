#include <algorithm>
#include <array>
#include <charconv>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/model_code.h"
#include "framework/interop/torch/tensor_folder.h"
#include "framework/recipe/merge_record.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 15> carried = {"config.json",
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "tokenizer.model",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "preprocessor_config.json",
                                                 "processor_config.json",
                                                 "video_preprocessor_config.json",
                                                 recipe::merged_record};

/// The tree of a recipe with model_config and the groups moe_config and vision_config that are in it.
options::Value groups_of_model(options::Value model_config) {
  options::Value tree;
  tree.kind = options::Value::Kind::group;
  auto& fields = model_config.fields;
  for (const char* group : {"moe_config", "vision_config"}) {
    const auto inner =
        std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == group; });
    if (inner == fields.end()) continue;
    tree.fields.push_back(std::move(*inner));
    fields.erase(inner);
  }
  tree.fields.push_back({"model_config", std::move(model_config)});
  return tree;
}

/// What stands before the names of the model in the keys of `files`, "model."; of several, before which most rows of
/// `table` find their tensors, and of these the shortest.
std::string prefix_in(const checkpoint::NamedTensors& files, const WeightTable& table) {
  std::vector<std::string> spelled, prefixes = {""};
  for (const auto& row : table.rows())
    for (const auto& from : row.from)
      for (auto& name : table.names_in_files(from)) spelled.push_back(std::move(name));
  const auto all = files.names();
  for (std::size_t i = 0; i < std::min<std::size_t>(spelled.size(), 4); ++i)
    for (const auto& key : all) {
      const auto end = "." + spelled[i];
      if (key.size() > end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0)
        prefixes.push_back(key.substr(0, key.size() - spelled[i].size()));
    }
  const auto found = [&](const std::string& prefix) {
    return std::count_if(spelled.begin(), spelled.end(), [&](const auto& name) { return files.has(prefix + name); });
  };
  std::sort(prefixes.begin(), prefixes.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return *std::max_element(prefixes.begin(), prefixes.end(),
                           [&](const auto& a, const auto& b) { return found(a) < found(b); });
}

}  // namespace

std::unique_ptr<const checkpoint::NamedTensors> open_model_tensors(const fs::path& folder,
                                                                   const HuggingFaceConfig& config,
                                                                   const options::Mappings& mappings) {
  auto files = torch::open_tensor_folder(folder);
  if (auto* of_processes = dynamic_cast<torch::DcpTensors*>(files.get())) {
    const auto table = weight_table(config.weights_table, config.model_config, mappings, folder.string());
    of_processes->take_below(prefix_in(*files, table));
  }
  return files;
}

std::optional<fs::path> HuggingFaceFormat::find(const fs::path& folder) const {
  return fs::exists(folder / "config.json") && !fs::exists(folder / "manifest.json") ? std::optional(folder)
                                                                                     : std::nullopt;
}

std::unique_ptr<checkpoint::OpenedCheckpoint> HuggingFaceFormat::open(const fs::path& folder,
                                                                      const options::Mappings& mappings) const {
  return std::make_unique<HuggingFaceModel>(folder, mappings);
}

fs::path HuggingFaceFormat::model_config_file(const fs::path& folder) const { return folder / "config.json"; }

std::string HuggingFaceFormat::weights_table(const fs::path& folder, const options::Mappings& mappings) const {
  return read_hugging_face_config(model_config_file(folder), mappings).weights_table;
}

std::optional<options::Value> HuggingFaceFormat::model_config(const fs::path& folder, const options::Mappings& mappings,
                                                              std::vector<std::string>& notes) const {
  const auto file = model_config_file(folder);
  auto config = read_hugging_face_config(file, mappings);
  notes.insert(notes.end(), config.notes.begin(), config.notes.end());
  if (const auto* further = config.model_config.find("mtp_num_layers"); further != nullptr && further->scalar != "0")
    drop_absent_predictions(config, *open_model_tensors(folder, config, mappings), mappings, file.string());
  return groups_of_model(std::move(config.model_config));
}

checkpoint::Blobs HuggingFaceFormat::carried_files(const fs::path& folder) const {
  checkpoint::Blobs files;
  for (const auto* name : carried)
    if (fs::exists(folder / name)) files[std::string(carried_prefix) + name] = read_file(folder / name);
  for (const auto& name : code_files(folder)) files[carried_prefix + name] = read_file(folder / name);
  if (const auto index = folder / index_file; fs::exists(index)) files[carried_index] = read_file(index);
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
  if (!kind.is_string() || kind.string().rfind("GPT2", 0) != 0) return {};
  return {group + "tokenizer_type=GPT2BPETokenizer", group + "vocab_file=" + (folder / "vocab.json").string(),
          group + "merge_file=" + (folder / "merges.txt").string()};
}

std::vector<std::int32_t> end_tokens(const fs::path& folder) {
  for (const auto* name : {"generation_config.json", "config.json"})
    for (const auto& file : {folder / name, folder / "blobs" / (std::string(carried_prefix) + name)}) {
      const auto json = fs::exists(file) ? parse_json(read_file(file)) : Json();
      if (!json.is_object() || !json.contains("eos_token_id")) continue;
      const auto& given = json["eos_token_id"];
      std::vector<std::int32_t> all;
      for (const auto& id : given.is_array() ? given : Json::array({given}))
        if (id.is_number_integer()) all.push_back(id.get<std::int32_t>());
      if (!all.empty()) return all;
    }
  return {};
}

options::Value recipe_with(const options::Value& model_config) {
  constexpr std::int64_t longest = 2048;
  auto model = model_config;
  const auto* positions = model.find("max_position_embeddings");
  const auto most = positions != nullptr ? std::strtoll(positions->scalar.c_str(), nullptr, 10) : longest;
  model.set("seq_length", options::Value::of(text(std::min<std::int64_t>(most, longest)), {"conversion", 0, "", 1}));
  return groups_of_model(std::move(model));
}

std::uint64_t HuggingFaceModel::bytes() const {
  std::uint64_t all = 0;
  for (const auto& path : list_folder(folder_))
    if (fs::is_regular_file(path)) all += fs::file_size(path);
  return all;
}

std::string HuggingFaceModel::description() const {
  const auto form = files_->form();
  return text("Hugging Face Transformers, ", config_.family, form.empty() ? "" : ", ", form);
}

std::vector<std::string> HuggingFaceModel::notes() const {
  auto notes = config_.notes;
  for (auto& note : notes_of_files()) notes.push_back(std::move(note));
  return notes;
}

void HuggingFaceModel::verify() const {
  if (files_->verify()) return;
  throw ConfigError(text(folder_.string(),
                         ": files of Hugging Face Transformers have no checksums, so nothing can be compared; `tessera "
                         "checkpoint inspect` reads their headers"));
}

}  // namespace tessera::hugging_face
