#include "framework/interop/hugging_face/hugging_face_export.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <set>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/new_folder.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/hugging_face/config_rules.h"
#include "framework/interop/tables/config_table.h"
#include "framework/interop/tables/our_names.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

/// What this program has no use for, from the config.json the model came with.
void take_over(const Json& old, const tables::ConfigRows& rows, Json& json) {
  if (!old.is_object()) return;
  static const std::set<std::string> own = {"model_type", "architectures", "dtype", "torch_dtype",
                                            "transformers_version"};
  for (const auto& [key, value] : old.items())
    if (rows.is_carried(key) && own.count(key) == 0 && !json.contains(key)) json[key] = value;
}

/// One tensor of theirs and where it comes from.
struct Piece {
  std::string name;
  std::size_t row, part;
  Shape shape;
  DType dtype;
  std::vector<std::size_t> experts = {};  ///< the rows of all experts that it has, one behind the other; empty: one row
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(shape.elements()) * size_of(dtype); }
};

std::string shard_name(std::size_t number, std::size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name.data();
}

class Exporter {
 public:
  Exporter(const checkpoint::WeightSource& weights, const HuggingFaceExport& how, WeightTable table)
      : weights_(weights), how_(how), table_(std::move(table)) {
    refuse_what_does_not_match();
    plan();
  }

  void write(const fs::path& folder) {
    Json map = Json::object();
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const auto name = shard_name(i, shards_.size());
      write_shard(folder / name, shards_[i]);
      for (const auto& piece : shards_[i]) {
        map[piece.name] = name;
        total += piece.bytes();
      }
    }
    if (shards_.size() > 1)
      write_file_atomic(folder / "model.safetensors.index.json",
                        Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
    for (const auto& [name, content] : how_.files) write_file_atomic(folder / name, content);
  }

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void refuse_what_does_not_match() const {
    std::set<std::string> taken;
    std::string message;
    for (const auto& row : table_.rows()) {
      taken.insert(row.name);
      if (!weights_.has(row.name))
        message += text("\n  ", row.name, ": required by ", how_.family, ", but the model does not have it");
    }
    for (const auto& name : weights_.names())
      if (taken.count(name) == 0) message += text("\n  ", name, ": ", how_.family, " has no such weight");
    if (!message.empty())
      throw ConfigError(
          text(weights_.folder().string(), ": cannot be saved as model_type ", how_.family, ":", message));
  }

  bool is_padded(const std::string& name) const {
    return tables::counts_tokens(name) && how_.vocabulary > 0 && weights_.shape(name)[0] > how_.vocabulary;
  }
  /// Of our tensor, without the padding of the vocabulary.
  Shape kept_shape(const std::string& name) const {
    const auto shape = weights_.shape(name);
    if (!is_padded(name)) return shape;
    return shape.rank() == 1 ? Shape{how_.vocabulary} : Shape{how_.vocabulary, shape[1]};
  }

  void plan() {
    shards_.emplace_back();
    for (std::size_t i = 0; i < table_.rows().size(); ++i) {
      const auto& row = table_.rows()[i];
      if (is_padded(row.name))
        notes_.push_back(text(row.name, ": rows ", how_.vocabulary, " to ", weights_.shape(row.name)[0] - 1,
                              " are padding and left out"));
      const auto shapes = part_shapes_of(row, kept_shape(row.name));
      if (row.expert) {
        if (*row.expert == 0) place(of_experts(row, i, shapes.at(0)));
        continue;
      }
      for (std::size_t part = 0; part < shapes.size(); ++part)
        place({row.from[part], i, part, shapes[part], type(row)});
    }
    plan_copies();
  }

  /// The tensor of all experts that begins with row `first`, of the first expert: its rows are in the order of experts.
  Piece of_experts(const WeightRow& row, std::size_t first, const Shape& shape) const {
    Piece piece{row.from.at(0), first, 0, {}, type(row)};
    for (auto i = first; i < table_.rows().size(); ++i)
      if (table_.rows()[i].expert && table_.rows()[i].from == row.from) piece.experts.push_back(i);
    std::vector<std::int64_t> dims = {static_cast<std::int64_t>(piece.experts.size())};
    dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
    piece.shape = Shape(dims);
    return piece;
  }

  void plan_copies() {
    for (const auto& copy : table_.copies())
      for (std::size_t i = 0; i < table_.rows().size() && copy.written; ++i) {
        const auto& row = table_.rows()[i];
        const auto of = std::find(row.from.begin(), row.from.end(), copy.of);
        if (of == row.from.end()) continue;
        const auto part = static_cast<std::size_t>(of - row.from.begin());
        place({copy.name, i, part, part_shapes_of(row, kept_shape(row.name))[part], type(row)});
      }
  }

  /// Into the file that is being filled, or a new one.
  void place(Piece piece) {
    if (filled_ > 0 && filled_ + piece.bytes() > how_.shard_bytes) {
      shards_.emplace_back();
      filled_ = 0;
    }
    filled_ += piece.bytes();
    shards_.back().push_back(std::move(piece));
  }

  DType type(const WeightRow& row) const {
    return row.always_float32 ? DType::float32 : how_.dtype.value_or(weights_.dtype(row.name));
  }

  /// A tensor of ours, converted, in their layout.
  std::vector<std::byte> converted(std::size_t number) {
    const auto& row = table_.rows()[number];
    const auto written = type(row);
    const auto shape = weights_.shape(row.name);
    std::vector<std::byte> ours(static_cast<std::size_t>(shape.elements()) * size_of(written));
    const Tensor all{std::span(ours), written, shape};
    weights_.read(row.name, all);
    checkpoint::must_be_finite(all,
                               text(weights_.folder().string(), ": tensor '", row.name, "' as ", name_of(written)));
    const auto kept = kept_shape(row.name);
    ours.resize(static_cast<std::size_t>(kept.elements()) * size_of(written));
    return to_theirs(row, std::move(ours), size_of(written), part_shapes_of(row, kept));
  }

  /// The last two tensors that were converted stay in memory: between parts of one there may be another.
  const std::vector<std::byte>& held(std::size_t row) {
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const auto& one) { return one.first == row; });
    if (found != held_.end()) return found->second;
    if (held_.size() > 1) held_.pop_front();
    auto elements = converted(row);
    return held_.emplace_back(row, std::move(elements)).second;
  }

  /// The rows of all experts that a piece has, one behind the other; until the next call.
  std::span<const std::byte> of_all_experts(const Piece& piece) {
    joined_.clear();
    for (const auto row : piece.experts) {
      const auto one = converted(row);
      joined_.insert(joined_.end(), one.begin(), one.end());
    }
    return joined_;
  }

  std::span<const std::byte> elements_of(const Piece& piece) {
    if (!piece.experts.empty()) return of_all_experts(piece);
    const auto& row = table_.rows()[piece.row];
    const auto shapes = part_shapes_of(row, kept_shape(row.name));
    std::size_t before = 0;
    for (std::size_t i = 0; i < piece.part; ++i)
      before += static_cast<std::size_t>(shapes[i].elements()) * size_of(piece.dtype);
    return std::span(held(piece.row)).subspan(before, piece.bytes());
  }

  void write_shard(const fs::path& path, const std::vector<Piece>& pieces) {
    std::vector<std::pair<std::string, checkpoint::SafetensorsEntry>> entries;
    std::map<std::string, const Piece*> by_name;
    for (const auto& piece : pieces) {
      entries.push_back({piece.name, {piece.dtype, piece.shape, 0, 0}});
      by_name.emplace(piece.name, &piece);
    }
    checkpoint::write_safetensors(path, std::move(entries), {{"format", "pt"}},
                                  [&](const std::string& name) { return elements_of(*by_name.at(name)); });
  }

  const checkpoint::WeightSource& weights_;
  const HuggingFaceExport& how_;
  WeightTable table_;
  std::vector<std::vector<Piece>> shards_;
  std::uint64_t filled_ = 0;  ///< bytes of the last of them
  std::vector<std::string> notes_;
  std::deque<std::pair<std::size_t, std::vector<std::byte>>> held_;  ///< converted tensors of ours, by row
  std::vector<std::byte> joined_;
};

/// The class of Transformers; with a score head the classifier of the family, with one label.
std::string class_of(const std::string& language_model, const options::Value& model_config, Json& json) {
  const auto* score = model_config.find("score_head");
  if (score == nullptr || score->scalar != "true") return language_model;
  json["id2label"] = {{"0", "LABEL_0"}};
  json["label2id"] = {{"LABEL_0", 0}};
  for (const std::string end : {"ForCausalLM", "LMHeadModel"})
    if (language_model.ends_with(end))
      return language_model.substr(0, language_model.size() - end.size()) + of_classifier;
  throw ConfigError(text("a model with score_head cannot be written as ", language_model));
}

}  // namespace

std::string write_hugging_face_config(const options::Value& model_config, const std::string& family, DType dtype,
                                      const std::string& carried, const options::Mappings& mappings) {
  const auto table = hugging_face_table(mappings, family), common = mappings.table("models/common.yaml");
  Json json = {{"model_type", family}};
  if (const auto* name = table.find("architecture"))
    json["architectures"] = {class_of(name->scalar, model_config, json)};
  json =
      read_json(tables::write_by_table(with_facts(model_config, table, family), table, family, &common, json.dump()));
  json["dtype"] = name_of(dtype);
  json["torch_dtype"] = name_of(dtype);
  const auto old = parse_json(carried);
  take_over(old, {table, &common}, json);
  if (const auto* flattened = table.find("flattened"); flattened != nullptr && old.is_object())
    for (const auto& name : flattened->items) take_over(old.value(name.scalar, Json()), {table, &common}, json);
  return json.dump(2) + "\n";
}

std::vector<std::string> write_hugging_face(const fs::path& out, const options::Value& model_config,
                                            const checkpoint::WeightSource& weights, const HuggingFaceExport& how,
                                            const options::Mappings& mappings) {
  const auto table = hugging_face_table(mappings, how.family);
  return write_hugging_face(out, weight_table(table.find("weights")->scalar, model_config, mappings, how.family),
                            weights, how);
}

std::vector<std::string> write_hugging_face(const fs::path& out, WeightTable table,
                                            const checkpoint::WeightSource& weights, const HuggingFaceExport& how) {
  Exporter exporter(weights, how, std::move(table));
  make_new_folder(out, [&](const fs::path& folder) { exporter.write(folder); });
  return exporter.notes();
}

}  // namespace tessera::hugging_face
