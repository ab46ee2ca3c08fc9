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
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/room.h"
#include "framework/interop/hugging_face/config_rules.h"
#include "framework/interop/tables/config_table.h"
#include "framework/interop/tables/our_names.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

/// The members of the object `old` under `key` whose rows say that they are carried; null: none.
Json carried_members(const std::string& key, const Json& old, const tables::ConfigRows& rows) {
  Json kept;
  for (const auto& [name, value] : old.items())
    if (const auto* row = rows.find(text(key, ".", name)); row != nullptr && row->find("carried") != nullptr)
      kept[name] = value;
  return kept;
}

/// What this program has no use for, from the config.json the model came with.
void take_over(const Json& old, const tables::ConfigRows& rows, Json& json) {
  if (!old.is_object()) return;
  static const std::set<std::string> own = {"model_type", "architectures", "dtype", "torch_dtype",
                                            "transformers_version"};
  for (const auto& [key, value] : old.items()) {
    if (own.count(key) != 0 || json.contains(key)) continue;
    if (rows.is_carried(key))
      json[key] = value;
    else if (auto members = value.is_object() ? carried_members(key, value, rows) : Json(); !members.is_null())
      json[key] = std::move(members);
  }
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

  std::uint64_t bytes() const {
    std::uint64_t all = 0;
    for (const auto& shard : shards_)
      for (const auto& piece : shard) all += piece.bytes();
    return all;
  }

  void write(const fs::path& folder) {
    Json map = Json::object();
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const auto name = names_.empty() ? shard_name(i, shards_.size()) : names_[i];
      write_shard(folder / name, shards_[i]);
      for (const auto& piece : shards_[i]) map[piece.name] = name;
    }
    if (shards_.size() > 1 || !names_.empty())
      write_file_atomic(folder / index_file,
                        Json{{"metadata", {{"total_size", bytes()}}}, {"weight_map", map}}.dump(2) + "\n");
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
    if (how_.shards == Shards::source) know_files_of_source();
    shards_.resize(std::max<std::size_t>(1, names_.size()));
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
    for (std::size_t i = shards_.size(); i-- > 0 && !names_.empty();)
      if (shards_[i].empty()) {  // all of its tensors are left out
        shards_.erase(shards_.begin() + static_cast<std::ptrdiff_t>(i));
        names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
      }
  }

  void know_files_of_source() {
    const auto index = parse_json(how_.index);
    const auto* map = index.is_object() ? index.find("weight_map") : nullptr;
    if (map == nullptr || !map->is_object() || map->empty())
      throw ConfigError(text(weights_.folder().string(), ": has no ", index_file,
                             " of the files that it was read from; give a size or `layer`"));
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items())
      if (file.is_string() && file.string().ends_with(".safetensors") && file.string().find('/') == std::string::npos)
        names.insert(files_[tensor] = file.string());
      else
        throw ConfigError(text(weights_.folder().string(), ": ", index_file, " names ", file.dump(), " for tensor '",
                               tensor, "'; a file *.safetensors without folder was expected"));
    names_.assign(names.begin(), names.end());
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

  /// Into its file: the one that is being filled, or a new one.
  void place(Piece piece) {
    if (how_.shards == Shards::source) {
      const auto file = files_.find(piece.name);
      const auto at = file == files_.end() ? names_.end() - 1 : std::ranges::find(names_, file->second);
      shards_[static_cast<std::size_t>(at - names_.begin())].push_back(std::move(piece));
      return;
    }
    const auto layer = checkpoint::layer_of(table_.rows()[piece.row].name);
    const bool is_full = how_.shards == Shards::layer ? layer >= 0 && layer_ >= 0 && layer != layer_
                                                      : filled_ + piece.bytes() > how_.shard_bytes;
    if (filled_ > 0 && is_full) {
      shards_.emplace_back();
      filled_ = 0;
    }
    if (layer >= 0) layer_ = layer;
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

  /// Our box from `offsets` on, in the type in which it is written.
  void read_ours(const WeightRow& row, std::vector<std::int64_t> offsets, const Tensor& into) const {
    const checkpoint::TensorRange box{
        .name = row.name, .global_shape = weights_.shape(row.name), .offsets = std::move(offsets), .tensor = into};
    weights_.read_box(box);
    checkpoint::must_be_finite(
        into, text(weights_.folder().string(), ": tensor '", row.name, "' as ", name_of(into.dtype())), box.offsets);
  }

  bool in_rows(const Piece& piece) const {
    const auto& row = table_.rows()[piece.row];
    return !piece.experts.empty() || (makes_rows(row) && weights_.reads_rows(row.name));
  }

  /// Rows of theirs that are columns of ours, from the column `first` on.
  void fill_columns(const WeightRow& row, std::int64_t first, const Tensor& into) const {
    const auto rows = weights_.shape(row.name)[0], columns = into.shape()[0];
    std::vector<std::byte> ours(into.bytes());
    read_ours(row, {0, first}, Tensor(std::span(ours), into.dtype(), Shape{rows, columns}));
    auto one = row;
    one.from.resize(1);
    const auto theirs = to_theirs(one, std::move(ours), size_of(into.dtype()), {Shape{columns, rows}});
    std::ranges::copy(theirs, into.raw().begin());
  }

  /// Rows of theirs that are rows of ours, from row `first` of the concatenated parts on.
  void fill_rows(const WeightRow& row, std::int64_t rows, std::int64_t first, const Tensor& into) const {
    const auto count = into.shape()[0], width = weights_.shape(row.name).elements() / weights_.shape(row.name)[0];
    const auto ours = [&](std::int64_t at) { return our_row_of(row, rows, first + at); };
    for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
      for (end = begin + 1; end < count && ours(end) == ours(begin) + end - begin;) ++end;
      const bool is_matrix = weights_.shape(row.name).rank() == 2;
      read_ours(row, is_matrix ? std::vector<std::int64_t>{ours(begin), 0} : std::vector<std::int64_t>{ours(begin)},
                into.slice(begin, end - begin)
                    .reshaped(is_matrix ? Shape{end - begin, width} : Shape{(end - begin) * width}));
    }
  }

  /// Writes `into`, a piece or some rows of it.
  void fill(const Piece& piece, const checkpoint::TensorRange& into) {
    const auto& row = table_.rows()[piece.row];
    const auto first = into.offsets.empty() ? 0 : into.offsets[0];
    if (!piece.experts.empty()) {
      for (std::int64_t i = 0; i < into.tensor.shape()[0]; ++i)
        std::ranges::copy(converted(piece.experts[static_cast<std::size_t>(first + i)]),
                          into.tensor.slice(i, 1).raw().begin());
      return;
    }
    const auto shapes = part_shapes_of(row, kept_shape(row.name));
    std::int64_t before = 0, rows = 0, bytes_before = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      rows += shapes[i].rank() > 0 ? shapes[i][0] : 1;
      if (i + 1 == piece.part) before = rows;
      if (i < piece.part) bytes_before += shapes[i].elements() * static_cast<std::int64_t>(size_of(piece.dtype));
    }
    if (!in_rows(piece) || shapes[0].rank() == 0)  // then the whole piece is wanted
      std::ranges::copy(std::span(held(piece.row)).subspan(static_cast<std::size_t>(bytes_before), piece.bytes()),
                        into.tensor.raw().begin());
    else if (!row.steps.empty() && row.steps.front() == WeightStep::transpose)
      fill_columns(row, before + first, into.tensor);
    else
      fill_rows(row, rows, before + first, into.tensor);
  }

  void write_shard(const fs::path& path, const std::vector<Piece>& pieces) {
    std::vector<checkpoint::TensorRange> ranges;
    std::map<std::string, const Piece*> by_name;
    for (const auto& piece : pieces) {
      ranges.push_back(checkpoint::whole(piece.name, Tensor::without_elements(piece.dtype, piece.shape)));
      by_name.emplace(piece.name, &piece);
    }
    const checkpoint::FilledState tensors(
        std::move(ranges), [&](const auto& into) { fill(*by_name.at(into.name), into); },
        [&](const auto& range) { return in_rows(*by_name.at(range.name)); }, how_.bytes_of_rows);
    checkpoint::write_safetensors(path, tensors, {{"format", "pt"}});
    held_.clear();
  }

  const checkpoint::WeightSource& weights_;
  const HuggingFaceExport& how_;
  WeightTable table_;
  std::vector<std::vector<Piece>> shards_;
  std::uint64_t filled_ = 0;                       ///< bytes of the last of them
  std::int64_t layer_ = -1;                        ///< of the last tensor that belongs to one
  std::vector<std::string> names_ = {};            ///< Shards::source: of the files, else empty
  std::map<std::string, std::string> files_ = {};  ///< Shards::source: the file of each of their tensors
  std::vector<std::string> notes_;
  std::deque<std::pair<std::size_t, std::vector<std::byte>>> held_;  ///< converted tensors of ours, by row
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
  if (old.is_object() && old.value("model_type", Json()) != Json(family)) json.erase("auto_map");  // of another model
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
  checkpoint::must_have_room(out, exporter.bytes());
  make_new_folder(out, [&](const fs::path& folder) { exporter.write(folder); });
  return exporter.notes();
}

}  // namespace tessera::hugging_face
