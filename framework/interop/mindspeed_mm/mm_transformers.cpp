#include "framework/interop/mindspeed_mm/mm_transformers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/options/option_type.h"

namespace tessera::mindspeed_mm {
namespace {

namespace fs = std::filesystem;
using hugging_face::WeightRow;
using hugging_face::WeightStep;

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

hugging_face::HuggingFaceConfig config_of(const fs::path& file, const options::Mappings& mappings) {
  auto config = hugging_face::read_hugging_face_config(file, mappings);
  if (config.family != family_name)
    throw ConfigError(
        text(file.string(), ": model_type is ", config.family, "; Qwen2VLConverter converts ", family_name));
  return config;
}

std::int64_t number_in(const options::Value& config, const char* key, const std::string& speaker) {
  std::int64_t number = 0;
  const auto* value = config.find(key);
  if (value == nullptr || !options::OptionType<std::int64_t>::read(*value, number) || number < 1)
    throw ConfigError(text(speaker, ": does not give ", key));
  return number;
}

bool has_step(const WeightRow& row, WeightStep step) { return std::ranges::find(row.steps, step) != row.steps.end(); }

/// Our row with the name and the layout of MindSpeed-MM.
WeightRow row_of_theirs(WeightRow row, const MmTable& table, bool concatenated) {
  const auto keep_groups = !concatenated || !table.is_tower_qkv(row.name);
  row.name = table.name_of(row.name);
  std::erase(row.steps, WeightStep::flatten);
  if (!keep_groups) std::erase(row.steps, WeightStep::group_qkv);
  return row;
}

std::string file_of(const Json& map, const hugging_face::WeightTable& table, const std::string& name,
                    std::string& spelled, const fs::path& index) {
  for (auto& other : table.names_in_files(name))
    if (const auto* file = map.find(other); file != nullptr && file->is_string()) {
      spelled = std::move(other);
      if (!is_part_of_file_name(file->string()))
        throw ConfigError(text(index.string(), ": ", spelled, " is in '", file->string(), "', which names no file"));
      return file->string();
    }
  throw ConfigError(text(index.string(), ": has no file for ", name, "; give the folder whose model was trained"));
}

/// One tensor of Transformers: a part of a tensor of MindSpeed-MM.
struct Piece {
  const WeightRow* row;
  std::size_t part;
  Shape shape;
};

class TransformersWriter {
 public:
  TransformersWriter(const MmSource& source, const MmModel& model, const fs::path& like) : source_(source) {
    const auto index = like / index_name;
    const auto map = fs::exists(index) ? read_json(read_file(index)).value("weight_map", Json()) : Json();
    if (fs::exists(index) && !map.is_object())
      throw ConfigError(text(index.string(), ": is not an index of safetensors files: it has no 'weight_map'"));
    for (const auto& row : model.rows()) {
      const auto shapes = part_shapes_of(row, tensor(row).shape);
      for (std::size_t part = 0; part < shapes.size(); ++part) {
        auto spelled = row.from[part];
        const auto file =
            map.is_object() ? file_of(map, model.table(), row.from[part], spelled, index) : std::string(single_name);
        files_[file].emplace(spelled, Piece{&row, part, shapes[part]});
      }
    }
  }

  void write(const fs::path& out) {
    for (const auto& [file, pieces] : files_) {
      std::vector<std::pair<std::string, checkpoint::SafetensorsEntry>> entries;
      for (const auto& [name, piece] : pieces) entries.push_back({name, {tensor(*piece.row).type, piece.shape, 0, 0}});
      const auto& of_file = pieces;
      checkpoint::write_safetensors_as_library(out / file, std::move(entries), {{"format", "pt"}},
                                               [&](const std::string& name) { return elements(of_file.at(name)); });
    }
  }

 private:
  const MmTensor& tensor(const WeightRow& row) const {
    const auto found = source_.tensors().find(row.name);
    if (found == source_.tensors().end())
      throw ConfigError(text("the checkpoint has no ", row.name,
                             ", which config.json needs (tie_word_embeddings); give the folder of the same model"));
    return found->second;
  }

  std::span<const std::byte> elements(const Piece& piece) {
    const auto& of = tensor(*piece.row);
    if (held_of_ != piece.row) {
      held_.resize(of.bytes());
      source_.read(of, held_);
      held_ = to_theirs(*piece.row, std::move(held_), size_of(of.type), part_shapes_of(*piece.row, of.shape));
      held_of_ = piece.row;
    }
    const auto shapes = part_shapes_of(*piece.row, of.shape);
    std::size_t before = 0;
    for (std::size_t i = 0; i < piece.part; ++i)
      before += static_cast<std::size_t>(shapes[i].elements()) * size_of(of.type);
    return std::span(held_).subspan(before, static_cast<std::size_t>(piece.shape.elements()) * size_of(of.type));
  }

  const MmSource& source_;
  std::map<std::string, std::map<std::string, Piece>> files_;  ///< by name of the file, then of the tensor
  std::vector<std::byte> held_;                                ///< the last tensor that was converted
  const WeightRow* held_of_ = nullptr;
};

void copy_others(const fs::path& from, const fs::path& to) {
  for (const auto& entry : list_folder(from)) {
    if (!fs::is_regular_file(entry) || entry.extension() == ".safetensors") continue;
    write_file_atomic(to / entry.filename(), read_file(entry));
  }
}

}  // namespace

MmModel::MmModel(const fs::path& config, const options::Mappings& mappings, const MmTable& table, bool concatenated)
    : MmModel(config_of(config, mappings), config.string(), mappings, table, concatenated) {}

MmModel::MmModel(const hugging_face::HuggingFaceConfig& config, const std::string& speaker,
                 const options::Mappings& mappings, const MmTable& table, bool concatenated)
    : table_(hugging_face::weight_table(config.weights_table, config.model_config, mappings, speaker)),
      layers_(table.towers().size(), 0),
      attention_(table.towers().size()),
      embedding_{number_in(config.model_config, "vocab_size", speaker),
                 number_in(config.model_config, "hidden_size", speaker)},
      tied_(true) {
  for (const auto& row : table_.rows()) {
    rows_.push_back(row_of_theirs(row, table, concatenated));
    const auto& name = rows_.back().name;
    if (name == table.tied().first) tied_ = false;
    const auto place = table.theirs(name);
    if (place->layer < 0) continue;
    layers_[place->row->tower] = std::max(layers_[place->row->tower], place->layer + 1);
    if (has_step(row, WeightStep::group_qkv)) attention_[place->row->tower] = row;
  }
}

std::vector<options::Finding> MmModel::mistakes(const MmLayout& layout, const std::vector<std::string>& names) const {
  std::vector<options::Finding> all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const auto sum = layout.towers[i].sum(); sum != layers_[i])
      all.push_back({names[i],
                     text(names[i], " is ", words(layout.towers[i]), ", ", sum, " layers; the model has ", layers_[i]),
                     "give the stages all layers of the model"});
    const auto& heads = attention_[i].heads;
    if (heads.groups % layout.tensor_parallel != 0)
      all.push_back({"tp_size",
                     text("tp_size ", layout.tensor_parallel, " does not divide the ", heads.groups,
                          " key/value heads of the layers of ", names[i]),
                     "give a divisor of the number of heads"});
  }
  return all;
}

TransformersSource::TransformersSource(const fs::path& folder, const options::Mappings& mappings, const MmModel& model,
                                       const MmTable& table)
    : checked_(folder, mappings), files_(folder), model_(model) {
  if (checked_.is_packed())
    throw ConfigError(text(folder.string(), ": has weights in 4 bits; MindSpeed-MM's checkpoints have none"));
  for (const auto& row : model.rows()) {
    const auto place = table.theirs(row.name);
    const auto type = files_.dtype(checked_.found(row.from.front()));
    for (const auto& part : row.from)
      if (files_.dtype(checked_.found(part)) != type)
        throw ConfigError(text(folder.string(), ": ", part, " is ", name_of(files_.dtype(checked_.found(part))), ", ",
                               row.from.front(), " ", name_of(type), "; they become one tensor and need one type"));
    tensors_.emplace(row.name, MmTensor{place->row, place->layer, type, shape_of(row, part_shapes(row))});
    rows_.emplace(row.name, &row);
  }
}

std::vector<Shape> TransformersSource::part_shapes(const WeightRow& row) const {
  std::vector<Shape> shapes;
  for (const auto& part : row.from) shapes.push_back(files_.shape(checked_.found(part)));
  return shapes;
}

void TransformersSource::read(const MmTensor& tensor, std::span<std::byte> into) const {
  const auto& row = *rows_.at(tensor.name());
  std::vector<std::byte> parts(into.size());
  std::size_t at = 0;
  for (const auto& part : row.from) {
    const auto elements = files_.tensor(checked_.found(part));
    checkpoint::must_be_finite(elements, text(checked_.folder().string(), ": tensor '", part, "'"));
    std::memcpy(parts.data() + at, elements.raw().data(), elements.bytes());
    at += elements.bytes();
  }
  files_.require_intact();
  parts = to_ours(row, std::move(parts), size_of(tensor.type), part_shapes(row));
  std::memcpy(into.data(), parts.data(), parts.size());
}

void write_transformers(const fs::path& out, const MmSource& source, const MmModel& model, const fs::path& like) {
  TransformersWriter(source, model, like).write(out);
  copy_others(like, out);
}

}  // namespace tessera::mindspeed_mm
